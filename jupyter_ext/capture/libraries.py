"""What is assumed about calls of code that is not in the notebook, by their names."""

from __future__ import annotations

import re

# fmt: off
# Methods of containers: they change what they are called on, and keep their arguments.
STORING = frozenset({
    "append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "remove", "clear",
    "update", "setdefault", "add", "discard", "sort", "reverse", "rotate", "subtract", "move_to_end",
    "difference_update", "intersection_update", "symmetric_difference_update", "__setitem__", "__delitem__",
    "__setattr__", "__iadd__", "fill", "put", "itemset", "resize", "write", "writelines",
})
# Methods that change what they are called on, and perhaps what that holds; one that ends in an underscore does too.
CHANGING = frozenset({
    "load_state_dict", "fit", "fit_transform", "fit_predict", "partial_fit", "train", "eval", "register",
    "add_module", "register_buffer", "register_parameter", "register_forward_hook", "step", "backward", "apply",
    "send", "throw", "close", "read", "readline", "readlines", "seek", "set", "reset", "acquire", "put_nowait",
    "get_nowait", "zero_grad", "cuda", "to", "half", "double", "float",
})
# Functions of libraries that change what they are given first.
CHANGING_FUNCTIONS = frozenset({
    "heappush", "heappop", "heapify", "heapreplace", "heappushpop", "insort", "insort_left", "insort_right", "shuffle",
    "setitem", "delitem", "iadd", "isub", "imul", "iconcat", "ior", "iand", "next", "anext", "setattr", "delattr",
    "put", "place", "copyto", "fill_diagonal", "putmask", "put_along_axis", "update_wrapper",
})
# Calls that only look: `df.head()` in a cell of its own changes nothing.
LOOKING = frozenset({
    "print", "display", "pprint", "len", "type", "repr", "str", "help", "dir", "id", "sum", "min", "max", "list",
    "sorted", "isinstance", "hasattr", "summary", "head", "tail", "describe", "info", "plot", "hist", "show",
    "sample", "value_counts", "isnull", "isna", "mean", "std", "unique", "numel", "tolist", "numpy", "keys",
    "values", "items", "get", "parameters", "named_parameters", "state_dict", "size", "shape", "item", "savefig",
    "count", "index", "copy", "tuple", "set", "dict", "any", "all", "vars", "callable", "join", "startswith",
    "endswith", "format",
})
# Their results share nothing with what they were given.
SCALAR = frozenset({
    "len", "int", "float", "str", "bool", "complex", "bytes", "abs", "round", "isinstance", "issubclass", "id",
    "hash", "repr", "ord", "chr", "hex", "bin", "oct", "callable", "hasattr", "format", "ascii", "divmod", "pow",
    "any", "all", "print", "range", "input",
})
FRESH = frozenset({
    "deepcopy", "clone", "tolist", "item", "loads", "dumps", "join", "split", "strip", "lower", "upper", "format",
    "count", "index",
})
# Their results may be what they were given, or a view of it.
SAME = frozenset({
    "asarray", "asanyarray", "ascontiguousarray", "from_numpy", "as_tensor", "view", "reshape", "ravel",
    "transpose", "permute", "squeeze", "unsqueeze", "expand", "expand_as", "detach", "numpy", "swapaxes", "narrow",
    "select", "diagonal", "chunk", "unbind", "unfold", "flatten", "get", "setdefault", "pop", "popleft", "popitem",
    "getattr", "vars", "min", "max", "next", "cast", "requires_grad_", "atleast_1d", "atleast_2d", "array_split",
    "to", "cuda", "cpu", "train", "eval", "fit", "register", "type_as", "__getitem__", "itemgetter", "attrgetter",
    "memoryview", "super", "wraps", "dataclass", "total_ordering", "contextmanager", "property", "staticmethod",
    "classmethod", "lru_cache", "cache", "reduce", "heappop", "update_wrapper", "broadcast_to",
})
# Their results hold the elements of what they were given, but are things of their own.
COPYING = frozenset({
    "list", "tuple", "set", "frozenset", "dict", "sorted", "copy", "OrderedDict", "deque", "Counter", "defaultdict",
})
# Their results are changed by being used.
STATEFUL = frozenset({
    "iter", "map", "filter", "zip", "enumerate", "reversed", "open", "chain", "cycle", "islice", "count", "repeat",
    "takewhile", "dropwhile", "starmap", "accumulate", "tee", "groupby", "product", "from_iterable", "default_rng",
    "RandomState", "Random", "Generator", "StringIO", "BytesIO", "reader", "DictReader", "finditer", "nditer",
    "Queue", "manual_seed",
})
# Packages that draw: what they are given stays as it is.
DRAWING = frozenset({
    "matplotlib", "seaborn", "plotly", "IPython", "pprint", "bokeh", "altair", "rich", "logging", "time",
})
# What any later statement may depend on without naming it.
AMBIENT = frozenset({("sys", "path"), ("os", "environ")})
_DRAWS = frozenset({
    "rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "rand_like", "randn_like",
    "randint_like", "poisson", "Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d",
    "ConvTranspose2d", "ConvTranspose3d", "Embedding", "EmbeddingBag", "RNN", "LSTM", "GRU", "RNNCell", "LSTMCell",
    "GRUCell", "MultiheadAttention", "Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer",
    "TransformerEncoder", "random_split", "dropout", "uniform_", "normal_", "xavier_uniform_", "xavier_normal_",
    "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "trunc_normal_", "sparse_", "reset_parameters",
})
# fmt: on
# Calls on a module that set something: `torch.manual_seed(0)`, `np.random.seed(0)`, `sys.path.append(...)`.
_SETTING = re.compile(
    r"_*(set|seed|manual_seed|use|enable|disable|register|add|update|append|insert|extend|remove|filter|simplefilter"
    r"|basicConfig|config|reset|reload|patch|pop|clear|field_size_limit|chdir|option)"
)
_KEEPING = re.compile(r"register|callback|on_|add_|connect|subscribe|attach|push|enter_context|bind|set_|install|hook")


def sets(path: tuple[str, ...]) -> bool:
    """Whether a call of `path` on a module sets something in it."""
    return bool(path and _SETTING.match(path[-1]))


def only_looks(name: str | None, path: tuple[str, ...]) -> bool:
    """Whether a call of `name.path()`, whose value nobody keeps, was made to look at something."""
    return set(path or [name]) <= LOOKING or bool(path and path[-1] in LOOKING)


def changes(method: str) -> bool:
    """Whether a method changes the object that it is called on (and what that holds)."""
    return method in CHANGING or (method.endswith("_") and not method.startswith("_"))


def random_state(package: str, path: tuple[str, ...]) -> str | None:
    """Which of the generators that nobody names a call draws from or seeds, as the name of its state."""
    name = path[-1] if path else ""
    if package == "random" and name[:1].islower():
        return "the state of random"
    if package == "numpy" and "random" in path[:-1] and name not in ("default_rng", "RandomState", "Generator"):
        return "the state of numpy.random"
    if package == "torch" and (name in _DRAWS or name in ("manual_seed", "seed", "set_rng_state")):
        return "the state of torch's generator"
    return None


def seeds(name: str) -> bool:
    """Whether a call by that name sets a generator's state, whatever it was."""
    return name in ("seed", "manual_seed", "setstate", "set_state", "set_rng_state")


def keeps(method: str) -> bool:
    """Whether a method of an object keeps what it is given though it returns something, as `on_click(f)` may."""
    return _KEEPING.match(method) is not None
