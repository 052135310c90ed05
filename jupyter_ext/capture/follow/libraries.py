"""Define assumptions about calls of code outside the notebook, by function name."""

from __future__ import annotations

import ast
import re


def _names(*themes: str) -> frozenset[str]:
    return frozenset(" ".join(themes).split())


# Container methods that change their receiver and retain their arguments.
STORING = _names(
    "append appendleft extend extendleft insert pop popleft popitem remove clear sort reverse rotate move_to_end",
    "update setdefault add discard subtract difference_update intersection_update symmetric_difference_update",
    "fill put itemset resize",  # arrays
    "write writelines",  # files
    "__setitem__ __delitem__ __setattr__ __iadd__",
)
COMPARING = _names("count index remove sort")  # They compare elements of the receiver.
OF_SETS = _names("copy union intersection difference symmetric_difference")  # They return another set.
# Methods that change their receiver, and perhaps its elements; so do those whose names end in an underscore.
CHANGING = _names(
    "load_state_dict train eval step backward zero_grad apply cuda to half double float",  # modules, optimizers
    "register add_module register_buffer register_parameter register_forward_hook",
    "fit fit_transform fit_predict partial_fit",  # estimators
    "send throw close read readline readlines seek",  # generators, files
    "set reset acquire put_nowait get_nowait",  # locks, queues
    "execute executemany executescript commit rollback fetchone fetchmany fetchall nextset",  # databases
)
# Library functions that change their first argument.
CHANGING_FUNCTIONS = _names(
    "heappush heappop heapify heapreplace heappushpop insort insort_left insort_right shuffle",
    "setitem delitem iadd isub imul iconcat ior iand",  # operator
    "next anext setattr delattr update_wrapper",
    "put place copyto fill_diagonal putmask put_along_axis",  # numpy
    "weight_norm spectral_norm register_parametrization remove_parametrizations vector_to_parameters",  # of torch.nn
    "l1_unstructured random_unstructured ln_structured random_structured custom_from_mask",  # its pruning
    "SubElement",  # of ElementTree
)
# Packages that train. Of all that their calls are given, they change models, optimizers and the like, and no data.
TRAINING = _names(
    "torch torchvision torchmetrics lightning pytorch_lightning fastai transformers accelerate peft timm skorch",
    "keras tensorflow sklearn imblearn xgboost lightgbm catboost statsmodels umap hdbscan numpy tqdm",
)
# Attributes of a tensor: one that has been stored in these may share memory with a parameter, or have a gradient.
GRADIENTS = _names("data grad requires_grad")
_OF_DATA = _names("numpy pandas polars pyarrow scipy PIL cv2 skimage datasets torchaudio csv json gzip io")
_DATA_OF_TORCH = {("utils", "data"), ("nn", "functional"), ("nn", "utils", "rnn"), ("linalg",), ("fft",), ("special",)}
_NO_DATA = _names("load compile Parameter Buffer ParameterList ParameterDict from_pretrained vector_to_parameters")
_ESTIMATORS = _names("make_pipeline make_union make_column_transformer clone")
# Calls that only display or read: `df.head()` in a cell of its own changes nothing.
LOOKING = _names(
    "print display pprint len type repr str help dir id isinstance hasattr callable vars format",
    "sum min max any all list tuple set dict sorted",
    "keys values items get count index copy join startswith endswith",
    "head tail describe info sample value_counts isnull isna unique mean std",  # tables
    "plot hist show savefig",  # figures
    "log log_metric log_metrics add_scalar add_scalars add_histogram add_text set_postfix set_description",  # trackers
    "numel tolist numpy size shape item parameters named_parameters state_dict summary",  # tensors, modules
)
# Attributes and methods of data whose values are numbers and the like.
MEASURES = _names("shape size ndim dim dtype device nbytes itemsize numel nelement nunique")
# Functions whose results share no objects with their arguments.
SCALAR = _names(
    "len int float str bool complex bytes abs round divmod pow range ord chr hex bin oct ascii format repr hash id",
    "isinstance issubclass callable hasattr any all print input",
)
# Packages whose functions return numbers, except those that call methods of their arguments.
_COUNTING = _names("math cmath time")
_ASKING = _names("prod sumprod ceil floor trunc")
FRESH = _names("deepcopy clone tolist item loads dumps join split strip lower upper format count index")
# Methods that return their receiver, or a view of it.
VIEWS = _names(
    "view reshape ravel transpose permute squeeze unsqueeze expand expand_as swapaxes narrow select diagonal",
    "flatten detach requires_grad_ type_as to cuda cpu numpy train eval fit",
)
# Functions whose results may be an argument, or a view of it.
SAME = VIEWS | _names(
    "asarray asanyarray ascontiguousarray from_numpy as_tensor atleast_1d atleast_2d broadcast_to array_split",
    "chunk unbind unfold",
    "get setdefault pop popleft popitem heappop __getitem__ itemgetter attrgetter memoryview",
    "getattr vars min max next cast reduce super",
    "register enter_context",  # return their receiver
    "register_forward_hook register_forward_pre_hook register_full_backward_hook register_hook",  # a handle of it
    "wraps update_wrapper dataclass total_ordering contextmanager property staticmethod classmethod lru_cache cache",
)
# Their results hold the elements of their arguments, but are new objects.
COPYING = _names("list tuple set frozenset dict sorted copy OrderedDict deque Counter defaultdict")
# Functions whose results change when they are used, such as iterators.
STATEFUL = _names(
    "iter map filter zip enumerate reversed",
    "chain from_iterable cycle islice count repeat takewhile dropwhile starmap accumulate tee groupby product",
    "open StringIO BytesIO reader DictReader finditer nditer Queue",
    "default_rng RandomState Random Generator manual_seed",
)
# Methods of random generators that return generators; the others return numbers, or what they are given.
SPAWNING = _names("spawn jumped manual_seed")
# Packages that plot, print or log: their arguments stay unchanged.
DRAWING = _names("matplotlib seaborn plotly bokeh altair IPython pprint rich logging time")
# Functions whose results belong to the package: changing one affects all callers.
SHARED = _names("getLogger get_logger getcontext localcontext")
# State that any later statement may depend on without naming it.
AMBIENT = frozenset(
    {
        *(("sys", "path"), ("sys", "modules"), ("sys", "meta_path"), ("sys", "setrecursionlimit"), ("os", "environ")),
        *(("site", "addsitedir"), ("locale", "setlocale"), ("dotenv", "load_dotenv"), ("mlflow", "autolog")),
    }
)
# Methods that begin or end an effect of a package's object, as `torch.no_grad().__enter__()`.
ENTERING = _names("__enter__ __exit__ start stop enter_context")
# Functions and modules of torch that draw random numbers.
_DRAWS = _names(
    "rand randn randint randperm rand_like randn_like randint_like normal bernoulli multinomial poisson random_split",
    "Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Embedding EmbeddingBag",
    "RNN LSTM GRU RNNCell LSTMCell GRUCell MultiheadAttention",
    "Transformer TransformerEncoder TransformerEncoderLayer TransformerDecoderLayer dropout",
    "uniform_ normal_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_ trunc_normal_",
    "sparse_ reset_parameters",
)
_SEEDING_TORCH = _names("manual_seed seed set_rng_state")
STATES = {  # by package
    "random": "the state of random",
    "numpy": "the state of numpy.random",
    "torch": "the state of torch's generator",
}
ALL_STATES = frozenset(STATES.values())
_SEEDING_ALL = _names("seed_everything set_seed set_seeds seed_all set_global_seed fix_seed set_random_seed")
_OF_OTHER_DEVICES = _names("cuda mps xpu mtia")  # their generators are not torch's CPU generator
# sklearn functions that draw from numpy's state unless they get a `random_state`.
_SHUFFLING = _names(
    "train_test_split shuffle resample make_classification make_regression make_blobs make_moons make_circles",
    "make_multilabel_classification make_friedman1 make_swiss_roll make_s_curve KMeans MiniBatchKMeans",
    "RandomForestClassifier RandomForestRegressor ExtraTreesClassifier ExtraTreesRegressor MLPClassifier MLPRegressor",
    "SGDClassifier SGDRegressor TSNE ShuffleSplit StratifiedShuffleSplit GaussianMixture",
)
SEED_ARGUMENTS = _names("generator random_state seed rng")
# Methods of tensors that draw.
_DRAWING_METHODS = _names("normal_ uniform_ random_ bernoulli_ exponential_ cauchy_ log_normal_ geometric_ multinomial")
# Functions that return a different value in each process, by package.
_CHANCE = {
    "time": _names("time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time"),
    "datetime": _names("now utcnow today"),
    "uuid": _names("uuid1 uuid4"),
    "os": _names("urandom getpid"),
    "secrets": _names("token_hex token_bytes token_urlsafe randbelow randbits choice"),
    "tempfile": _names("mkdtemp mkstemp TemporaryDirectory NamedTemporaryFile"),
}
# Generators that the operating system seeds if they get no seed.
_GENERATORS = {
    "random": _names("Random SystemRandom seed"),
    "numpy": _names("default_rng RandomState SeedSequence PCG64 MT19937 seed"),
    "torch": _names("seed"),
}
# Functions that return a sequence of their argument's elements, in iteration order.
ORDERING = _names("list tuple enumerate iter zip map array fromkeys join DataFrame Series Index deque islice chain pop")
# Calls that change a module's settings: `torch.manual_seed(0)`, `sys.path.append(...)`, `wandb.init(...)`.
_SETTING = re.compile(
    r"_*(set|seed|manual_seed|use|enable|disable|register|add|update|append|insert|extend|remove|filter|simplefilter"
    r"|basicConfig|config|reset|reload|patch|pop|clear|field_size_limit|option"
    r"|rc$|rcdefaults$|pandas$|load_dotenv$|setdefault|captureWarnings|signal$|dictConfig|fileConfig|tzset"
    r"|init$|init_(?:run|project|notebook_mode)$|initialize|start$|start_run$|finish$|end_run$|stop$|autolog$)"
)
# Functions that sound like it and change a model that they are given.
_OF_MODELS = _names(
    "update_bn remove_weight_norm remove_spectral_norm register_parametrization remove_parametrizations",
    "set_model_state_dict set_optimizer_state_dict set_state_dict set_peft_model_state_dict",
)
_KEEPING = re.compile(r"register|callback|on_|add_|connect|subscribe|attach|push|enter_context|bind|set_|install|hook")


def sets(path: tuple[str, ...]) -> bool:
    """Return True if the last name of a dotted path sounds like a function that changes settings of its module."""
    of_model = bool(path) and (path[-1] in _OF_MODELS or path[-2:] == ("prune", "remove"))
    return bool(path and _SETTING.match(path[-1])) and not of_model


def only_looks(name: str | None, path: tuple[str, ...]) -> bool:
    """Return True if the call `name.path()`, with its value discarded, only displays something and changes nothing."""
    return set(path or [name]) <= LOOKING or bool(path and path[-1] in LOOKING)


def is_scalar(package: str | None, name: str) -> bool:
    """Return True if a function of a package returns only numbers or strings, as `math.sqrt` does."""
    return package in _COUNTING and name not in _ASKING


def makes_data(package: str, path: tuple[str, ...], node: ast.Call | None = None) -> bool:
    """Return True if what `package.path` is or returns is data: it has neither weights nor gradients of its own.

    Functions of torch return such tensors, too, since those that a gradient reaches are among their arguments. `node`
    is the call.
    """
    name = path[-1] if path else ""
    if name in _NO_DATA or (node is not None and any(each.arg in (None, "requires_grad") for each in node.keywords)):
        return False
    if package == "torch":
        whole = len(path) == 1 and not name[:1].isupper()
        return whole or name.endswith("Loss") or any(path[: len(each)] == each for each in _DATA_OF_TORCH)
    if package == "sklearn":
        return name[:1].islower() and name not in _ESTIMATORS
    return package in _OF_DATA or (package == "torchvision" and path[:1] != ("models",))


def shares_memory(name: str, node: ast.Call) -> bool:
    """Return True if a call makes its argument a parameter, so that training this changes the argument."""
    return name in _NO_DATA or name == "requires_grad_" or any(each.arg == "_weight" for each in node.keywords)


def only_trains(package: str | None, path: tuple[str, ...], node: ast.Call) -> bool:
    """Return True if a call of `package.path()` changes no data that it is given."""
    return package in TRAINING - {"numpy"} and "distributed" not in path and not overwrites(node)


def overwrites(node: ast.Call) -> bool:
    """Return True if a call has an option such as `copy=False`, by which functions or objects overwrite their input."""
    return any((each.arg or "").startswith(("copy", "overwrite")) for each in node.keywords)


def changes(method: str) -> bool:
    """Return True if a method with this name changes its receiver and its elements, as `append` or `add_`."""
    return method in CHANGING or (method.endswith("_") and not method.startswith("_"))


def random_effect(package: str, path: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return two sets: the random states that a call of `package.path()` seeds, and those from which it draws."""
    name = path[-1] if path else ""
    if name in _SEEDING_ALL and (package != "tensorflow" or "keras" in path):
        return ALL_STATES, frozenset()
    state = _random_state(package, path)
    states = frozenset(() if state is None else (state,))
    return (states, frozenset()) if seeds(name) else (frozenset(), states)


def _random_state(package: str, path: tuple[str, ...]) -> str | None:
    """Return the name of the global random state that a call draws from or seeds; None if it does neither."""
    name = path[-1] if path else ""
    draws = (
        (package == "random" and name[:1].islower())
        or (package == "numpy" and "random" in path[:-1] and name not in ("default_rng", "RandomState", "Generator"))
        or (package == "sklearn" and name in _SHUFFLING)
        or (package == "torch" and not _OF_OTHER_DEVICES & {*path} and name in _DRAWS | _SEEDING_TORCH)
    )
    return STATES["numpy" if package == "sklearn" else package] if draws else None


def draws_by_method(name: str, node: ast.Call) -> str | None:
    """Return the package from whose random state a method draws, as `df.sample(frac=1)` does; None if it draws none."""
    if seeded(node):
        return None
    if name in _DRAWING_METHODS:
        return "torch"
    sizes = [each for each in node.args if not isinstance(each, ast.Tuple | ast.List)]
    if name == "sample" and (sizes or any(each.arg in ("n", "frac") for each in node.keywords)):
        return "numpy"
    return None


def seeded(node: ast.Call) -> bool:
    """Return True if a call passes a seed or a generator."""
    return any(each.arg in SEED_ARGUMENTS and not _is_none(each.value) for each in node.keywords)


def by_chance(package: str, path: tuple[str, ...], node: ast.Call) -> bool:
    """Return True if a call returns a different value in each process, such as a time or a uuid."""
    name = path[-1] if path else ""
    if name in _GENERATORS.get(package, ()):
        return all(map(_is_none, node.args)) and not any(not _is_none(each.value) for each in node.keywords)
    return name in _CHANCE.get(package, ())


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def random_states(package: str) -> set[str]:
    """Return the names of the random states from which a package draws; empty if there is none."""
    return {STATES[package]} if package in STATES else set()


def seeds(name: str) -> bool:
    """Return True if a function with this name seeds a random generator."""
    return name in ("seed", "manual_seed", "setstate", "set_state", "set_rng_state")


def keeps(method: str) -> bool:
    """Return True if a method may store its arguments, like `on_click(f)`, although it returns a value."""
    return _KEEPING.match(method) is not None
