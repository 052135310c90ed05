"""Read settings of this process that affect results, with the statements that set them.

Nothing is imported: a library that this process has not imported has default settings. Left out are settings that a
job's options determine (threads, deterministic algorithms, cudnn.benchmark, the seed), and those that only affect
display (print options, plots, filters that hide warnings).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from kernel_backend.installed_code import is_of_package
from kernel_backend.model.snapshot import MODULE, OTHER_MODULE, Process

_JEDIS = 3000  # recursion limit set by jedi, which IPython imports to complete names
_OURS = ("kernel_backend", "jupyter_ext", "daylight")
_DEFINITIONS = ("__main__", MODULE, OTHER_MODULE)
# Modules and classes in which library functions may be replaced.
_PLACES = (
    *("torch", "torch.nn.functional", "torch.nn.init", "torch.utils.data", "torch.Tensor", "torch.nn.Module"),
    *("torch.optim.Optimizer", "numpy", "numpy.random", "pandas", "pandas.DataFrame", "pandas.Series"),
    *("random", "math", "time"),
)


class Setting(NamedTuple):
    """Setting of a library that affects results, such as torch's default dtype.

    `read` takes the imported library and returns the setting's value as a Python expression; it may raise.
    """

    name: str
    library: str
    read: Callable[[Any], str]
    begins: str  # the default value
    statement: str  # statement that sets the value `{}`
    said: str = ""  # regular expression for code that sets it, if it differs from the statement
    refuses: bool = True  # whether a job refuses to train with another value, or only notes it

    @property
    def concerns_all(self) -> bool:
        """Return True if the setting affects all code, not only code that imports its library."""
        return self.library in ("torch", "locale", "sys", "warnings")

    def line(self, value: str) -> str:
        """Return the statement that sets this setting to a value."""
        return self.statement.replace("{}", value)

    def is_set_in(self, source: str) -> bool:
        """Return True if source code sets this setting, by a call of its function or an assignment to its attribute."""
        called, parenthesis, _ = self.statement.partition("(")
        target = self.statement.partition(" = ")[0]
        last = re.escape((called if parenthesis else target).rpartition(".")[2])
        pattern = self.said or (rf"\b{last}\s*\(" if parenthesis else rf"\b{last}\s*=(?!=)")
        return re.search(pattern, source) is not None


def process(variables: Iterable[str] = ()) -> Process:
    """Return this process's settings, the environment variables `variables`, and replaced library functions."""
    return Process(
        settings=_values(),
        variables={name: os.environ.get(name) for name in variables},
        replaced=dict(_replaced()),
    )


def cell_of(source: str, line: int) -> str:
    """Return the text of the submitted cell: the part of a definition's source from `line` on."""
    return "\n".join(source.split("\n")[line - 1 :])


def exists(path: str) -> bool:
    """Return True if a dotted path such as `torch.nn.functional.relu` exists in the imported modules."""
    package, _, inner = path.partition(".")
    try:
        attrgetter(inner)(sys.modules[package])
    except (KeyError, AttributeError):
        return False
    return True


def _values() -> dict[str, str]:
    found = {}
    for setting in SETTINGS.values():
        library = sys.modules.get(setting.library)
        if library is not None:
            with contextlib.suppress(Exception):  # another version may lack the setting, or fail to report it
                found[setting.name] = setting.read(library)
    return found


def _replaced() -> Iterator[tuple[str, str]]:
    """Yield (path, replacement) for each library function that the user's code has replaced."""
    for place in _PLACES:
        package, _, inner = place.partition(".")
        if package not in sys.modules or (inner and not exists(place)):
            continue
        holder = attrgetter(inner)(sys.modules[package]) if inner else sys.modules[package]
        for name, value in list(vars(holder).items()):
            if isinstance(value, types.FunctionType) and _is_users(value.__globals__):
                module = str(value.__globals__.get("__name__"))
                own = module in _DEFINITIONS
                yield f"{place}.{name}", value.__qualname__ if own else f"{module}.{value.__qualname__}"


def _is_users(namespace: dict[str, Any]) -> bool:
    """Return True if a function with these globals is defined in the user's code, not in an installed library."""
    name, file = str(namespace.get("__name__")), namespace.get("__file__")
    if name in _DEFINITIONS:
        return True
    package = name.partition(".")[0]
    if package in sys.stdlib_module_names or package in _OURS or not isinstance(file, str):
        return False
    return not is_of_package(file)


def _attribute(path: str, begins: str, said: str = "") -> Setting:
    """Return the record of a setting that is the attribute of torch at the dotted `path`; `begins` is its default.

    `said` is a regular expression for code that sets it, if that is no assignment.
    """
    name = f"torch.{path}"
    return Setting(name, "torch", lambda torch: repr(attrgetter(path)(torch)), begins, f"{name} = {{}}", said)


def _precision(path: str, begins: str) -> Setting:
    return _attribute(
        f"backends.{path}.fp32_precision", begins, "fp32_precision|set_float32_matmul_precision|allow_tf32"
    )


def _older(name: str, read: Callable[[Any], object], begins: str, statement: str) -> Setting:
    """Return the record of a float32 precision setting that only torch versions without `fp32_precision` have.

    In later versions it is not read, as using both ways to set the precision raises an error. The arguments are fields
    of `Setting`; `read` returns the value from the module torch.
    """

    def value(torch: Any) -> str:
        if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
            raise AttributeError
        return repr(read(torch))

    return Setting(name, "torch", value, begins, statement)


def _told(name: str, read: str, begins: str, statement: str) -> Setting:
    """Return the record of a setting of torch whose value the function at the dotted path `read` returns.

    `begins` is the default, and `statement` the call in torch that sets it, such as `set_default_dtype({})`.
    """
    return Setting(name, "torch", lambda torch: str(attrgetter(read)(torch)()), begins, f"torch.{statement}")


def _autocast(device: str) -> Setting:
    statement = f'torch.set_autocast_enabled("{device}", {{}})'

    def read(torch: Any) -> str:
        return str(torch.is_autocast_enabled(device))

    return Setting(f"torch's autocast on {device}", "torch", read, "False", statement)


def _attention(kind: str) -> Setting:
    read, statement = f"backends.cuda.{kind}_sdp_enabled", f"backends.cuda.enable_{kind}_sdp({{}})"
    return _told(f"torch's {kind} attention", read, "True", statement)


def _flushes_denormal(torch: Any) -> str:
    return str(5e-310 * float("1") == 0.0)


def _locale(category: str) -> Setting:
    statement = f"locale.setlocale(locale.{category}, {{}})"

    def read(locale: Any) -> str:
        return repr(locale.setlocale(getattr(locale, category)))

    return Setting(f"locale {category}", "locale", read, "'C'", statement, r"\bsetlocale\s*\([^)]*,")


def _raising(numpy: Any) -> str:
    """Return arguments of numpy's `seterr` for those floating-point errors that raise or call a function.

    If there are none, return `all='warn'`.
    """
    found = {kind: how for kind, how in numpy.geterr().items() if how in ("raise", "call")}
    if len(found) == 4 and len(set(found.values())) == 1:
        found = {"all": next(iter(found.values()))}
    return ", ".join(f"{kind}={how!r}" for kind, how in found.items()) or "all='warn'"


def _option(name: str, begins: str) -> Setting:
    """Return the record of a setting that is an option of pandas; `begins` is its default."""

    def read(pandas: Any) -> str:
        with warnings.catch_warnings():  # the option may be deprecated
            warnings.simplefilter("ignore")
            return repr(pandas.get_option(name))

    statement, last = f'pd.set_option("{name}", {{}})', name.rpartition(".")[2]
    said = rf"\bset_option\s*\([^)]*\b{last}\b|\.{last}\s*=(?!=)"
    return Setting(f"pandas' {name}", "pandas", read, begins, statement, said)


def _config(name: str, begins: str) -> Setting:
    """Return the record of a setting that is an option of scikit-learn; `begins` is its default."""
    statement = f"sklearn.set_config({name}={{}})"
    said = rf"\bset_config\s*\([^)]*\b{name}\b"
    return Setting(
        f"sklearn's {name}", "sklearn", lambda sklearn: repr(sklearn.get_config()[name]), begins, statement, said
    )


def _recursion(sys: Any) -> str:
    limit = sys.getrecursionlimit()
    return "1000" if limit == _JEDIS and "jedi" in sys.modules else str(limit)


def _errors_of_warnings(warnings: Any) -> str:
    """Return the categories of warnings that are raised as errors, as text, without those set by IPython."""
    kinds = {category for action, _, category, *_ in warnings.filters if action == "error"}
    return ", ".join(sorted(kind.__name__ for kind in kinds if not kind.__module__.startswith("IPython.")))


SETTINGS = {
    each.name: each
    for each in (
        _told("torch's default dtype", "get_default_dtype", "torch.float32", "set_default_dtype({})"),
        Setting(
            "torch's default device",
            "torch",
            lambda torch: repr(torch.get_default_device().type),
            "'cpu'",
            "torch.set_default_device({})",
        ),
        _told("torch's grad mode", "is_grad_enabled", "True", "set_grad_enabled({})"),
        Setting(
            "torch's inference mode",
            "torch",
            lambda torch: str(torch.is_inference_mode_enabled()),
            "False",
            "mode = torch.inference_mode({}); mode.__enter__()",  # inference mode ends when `mode` is deleted
            r"\binference_mode\([^)]*\)",
        ),
        _told("torch's anomaly detection", "is_anomaly_enabled", "False", "autograd.set_detect_anomaly({})"),
        *map(_autocast, ("cpu", "cuda")),
        Setting("torch's flushing of denormals", "torch", _flushes_denormal, "False", "torch.set_flush_denormal({})"),
        *map(_attention, ("flash", "mem_efficient", "math")),
        _told(
            "torch's fast path of transformers",
            "backends.mha.get_fastpath_enabled",
            "True",
            "backends.mha.set_fastpath_enabled({})",
        ),
        _attribute("backends.cudnn.enabled", "True"),
        _attribute("backends.cudnn.deterministic", "False"),
        _attribute("backends.mkldnn.enabled", "True"),
        _attribute("backends.cuda.matmul.allow_fp16_reduced_precision_reduction", "True"),
        _attribute("backends.cuda.matmul.allow_bf16_reduced_precision_reduction", "True"),
        _precision("cuda.matmul", "'none'"),
        _precision("cudnn.conv", "'tf32'"),
        _precision("cudnn.rnn", "'tf32'"),
        _precision("mkldnn.matmul", "'none'"),
        _precision("mkldnn.conv", "'none'"),
        _older(
            "torch's float32 matmul precision",
            lambda torch: torch.get_float32_matmul_precision(),
            "'highest'",
            "torch.set_float32_matmul_precision({})",
        ),
        _older(
            "torch.backends.cudnn.allow_tf32",
            lambda torch: torch.backends.cudnn.allow_tf32,
            "True",
            "torch.backends.cudnn.allow_tf32 = {}",
        ),
        Setting("numpy's floating-point errors", "numpy", _raising, "all='warn'", "np.seterr({})"),
        _option("mode.copy_on_write", "True"),
        _option("mode.chained_assignment", "'warn'"),
        _option("mode.string_storage", "'auto'"),
        _option("future.infer_string", "True"),
        _option("future.no_silent_downcasting", "False"),
        _option("future.distinguish_nan_and_na", "False"),
        _option("compute.use_bottleneck", "True"),
        _option("compute.use_numexpr", "True"),
        _config("transform_output", "'default'"),
        _config("assume_finite", "False"),
        Setting(
            "decimal's precision",
            "decimal",
            lambda decimal: str(decimal.getcontext().prec),
            "28",
            "decimal.getcontext().prec = {}",
            r"\bprec\s*=(?!=)",
        ),
        Setting(
            "decimal's rounding",
            "decimal",
            lambda decimal: repr(decimal.getcontext().rounding),
            "'ROUND_HALF_EVEN'",
            "decimal.getcontext().rounding = {}",
            r"\brounding\s*=(?!=)",
        ),
        *map(_locale, ("LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY")),
        Setting("the recursion limit", "sys", _recursion, "1000", "sys.setrecursionlimit({})", refuses=False),
        Setting(
            "the warnings that are errors",
            "warnings",
            _errors_of_warnings,
            "",
            "for each in ({},): warnings.simplefilter('error', each)",
            r"\b(?:simplefilter|filterwarnings)\s*\(\s*['\"]error",
            refuses=False,
        ),
    )
}
