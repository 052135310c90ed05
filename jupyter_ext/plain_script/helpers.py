"""Define the templates of the functions that scripts may contain; each script has only those that it calls.

In a template, a line that begins with `?flag` is kept only with that flag, one with `?!flag` only without it. `<name>`
is replaced by one or more lines.
"""

from __future__ import annotations

SEEDS = '''
# Random numbers follow from the seed and the place in the training, not from what was drawn before.


def splitmix64(state):
    state = (state + 0x9E3779B97F4A7C15) & (2**64 - 1)
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return state ^ (state >> 31)


def chain(*parts):
    """Return 64 bits that follow from the seed and these parts."""
    state = splitmix64(args.seed)
    for part in parts:
        if isinstance(part, str):
            part = int.from_bytes(hashlib.blake2b(part.encode(), digest_size=8).digest(), "little")
        state = splitmix64(state ^ part)
    return state


def seed_all(value, of_numpy, of_torch):
    random.seed(value)
    numpy.random.seed(of_numpy | 2**31)
    torch.default_generator.manual_seed(of_torch)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(value)


def reseed(*parts):
    """Seed Python, numpy and torch for a place such as ("step", 12)."""
    value = chain(*parts) >> 1
    seed_all(value, value >> 32, value & (2**31 - 1))
'''

SAMPLES = '''
def scatter(position, key):
    """Return a number below 2**31, another one for each position."""
    x = (position + key + (position >> 31) * (key >> 31)) & (2**31 - 1)
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & (2**31 - 1)
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & (2**31 - 1)
    return x ^ (x >> 16)


class SampleSeeds:
    """Seeds for what each sample of a dataset draws, by its position."""

    def __init__(self, tag):
        self.first, self.keys = chain(tag), [chain(tag, library) >> 1 for library in ("numpy", "torch")]

    def at(self, position):
        value = splitmix64(self.first ^ position) >> 1
        seed_all(value, *(scatter(position, key) for key in self.keys))
'''

MOVE = '''
def move(value):
    """Return a batch on the device."""
    if isinstance(value, dict):
        return {name: move(each) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(move, value))
    if isinstance(value, (list, tuple)):
        return [move(each) for each in value]
    return value.to(device, non_blocking=True) if hasattr(value, "to") else value
'''

SPLIT = '''
def split(batch, net):
    """Return a batch as the arguments of the model, those by name, and the target."""
    if isinstance(batch, dict):
        names = inspect.signature(net.forward).parameters
        return (), {name: batch[name] for name in batch if name in names}, batch.get("labels", batch.get("target"))
    *inputs, target = batch
    return inputs, {}, target
'''

SPLIT_WHOLE = '''
def split(batch, net):
    """Return a batch as the arguments of the model, those by name, and the target, of which there may be none."""
    if isinstance(batch, dict):
        names = inspect.signature(net.forward).parameters
        return (), {name: batch[name] for name in batch if name in names}, batch.get("labels", batch.get("target"))
    parameters = inspect.signature(net.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = sum(each.kind in kinds and each.default is each.empty for each in parameters)
    if not isinstance(batch, (list, tuple)):
        return (batch,), {}, None
    if len(batch) <= max(1, required):
        return tuple(batch), {}, None
    return batch[:-1], {}, batch[-1]
'''

SCALAR = '''
def scalar(result):
    """Return a loss and the values to log beside it, of a tensor, (loss, values) or a dict."""
    if isinstance(result, tuple):
        loss, logged = result
    elif isinstance(result, dict) and "loss" in result:
        loss, logged = result["loss"], {name: each for name, each in result.items() if name != "loss"}
    elif isinstance(result, dict):
        loss, logged = sum(each.reshape(()) for each in result.values()), result
    else:
        loss, logged = result, {}
    return loss.reshape(()), logged
'''

MEANS = '''
class Means:
    """Means over samples, in 64 bits."""

    def __init__(self):
        self.sums = {}

    def add(self, name, value, samples):
        """Add a value for each of some samples, or their mean."""
        if isinstance(value, torch.Tensor) and value.numel() > 1:
            total = float(value.detach().double().reshape(samples, -1).mean(1).sum())
        else:
            total = float(value) * samples
        before, count = self.sums.get(name, (0.0, 0))
        self.sums[name] = before + total, count + samples

    def values(self):
        return {name: total / count for name, (total, count) in self.sums.items()}
'''

METRICS = '''
def per_sample(value, samples):
    """Return whether a metric is a value for each sample; a number is one of the whole set."""
    value = torch.as_tensor(value)
    return value.dim() > 0 and (value.numel() != 1 or samples == 1)


def join(values):
    """Return the batches of a value as one."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(values)
    if isinstance(first, dict):
        return {name: join([each[name] for each in values]) for name in first}
    if isinstance(first, (list, tuple)) and all(isinstance(each, torch.Tensor) for each in first):
        return [join(list(column)) for column in zip(*values)]
    raise TypeError(f"batches of {type(first).__name__} cannot be joined for metrics over the whole set")
'''

ALONE = '''
@contextlib.contextmanager
def trained_alone(net, own):
    """Compute gradients for these parameters of the model alone."""
    others = [each for each in net.parameters() if each.requires_grad and all(each is not mine for mine in own)]
    for each in others:
        each.requires_grad_(False)
    try:
        yield
    finally:
        for each in others:
            each.requires_grad_(True)
'''

METRIC_OBJECTS = '''
def metric_objects(function, known=()):
    """Return the objects with update, compute and reset that a function uses, which keep earlier samples."""
    values = [function.__globals__.get(name) for name in function.__code__.co_names]
    values += [each.cell_contents for each in function.__closure__ or ()]
    held = []
    for value in values:
        of_value = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
        held += [each for each in of_value if callable(getattr(each, "compute", None)) and hasattr(each, "reset")]
        if inspect.isfunction(value) and value not in known:
            held += metric_objects(value, [*known, function, value])
    return held
'''

BY_ROWS = '''
def by_rows(data):
    """Return tensors or arrays (x, y), or a dict of them, as a list of samples; other data as it is."""
    columns = list(data.values()) if isinstance(data, dict) else data
    if not isinstance(data, (dict, tuple)) or len(columns) > 4 or not all(hasattr(each, "ndim") for each in columns):
        return data
    samples = zip(*map(torch.as_tensor, columns))
    return [dict(zip(data, each)) for each in samples] if isinstance(data, dict) else list(samples)
'''

REPORT = '''
def report(kind, step, epoch, values):
    """Print values, and write them into the file of --log."""
    values = {name: float(value) for name, value in values.items()}
    text = "  ".join(f"{name} {value:.6g}" for name, value in values.items())
    print(f"{kind} at step {step} (epoch {epoch:.4g}): {text}", flush=True)
    if args.log:
        with open(args.log, "a") as file:
            print(json.dumps({"kind": kind, "step": step, "epoch": epoch, "metrics": values}), file=file)
'''

BATCHES = '''
def opened(data):
    """Return dataset, batch size, the function that makes a batch of samples, and whether short ones are left out."""
    ?loader if isinstance(data, DataLoader):
    ?loader     sampler = type(data.sampler).__name__
    ?loader     if data.batch_size is None or sampler not in ("RandomSampler", "SequentialSampler"):
    ?loader         raise SystemExit(f"this script has an order of its own, and no {sampler}")
    ?loader     return data.dataset, data.batch_size, <collate_of_loader>, data.drop_last
    ?columns data = by_rows(data)
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")) or len(data) > 10**7:
        raise SystemExit("this script reads datasets of up to 10 million samples, and no streams")
    return data, args.batch_size, <collate>, False


def steps_per_epoch(data):
    data, size, _, drop_last = opened(data)
    return (len(data) // size if drop_last<or_drop> else 0) or -(-len(data) // size)


def batches(data, tag, epoch=None, pairs=False):
    """Yield the batches of a dataset with their numbers of samples: in an epoch's order, or without one as it stands.

    With `pairs` no batch is a single sample, which BatchNorm cannot train on.
    """
    data, size, collate, drop_last = opened(data)
    order = torch.arange(len(data))
    if epoch is not None:
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(chain("order", epoch) >> 1))
    if drop_last<or_drop_training>:
        order = order[: len(data) // size * size or len(data)]
    edges = [*range(0, len(order), size), len(order)]
    if pairs and len(order) % size == 1 and len(order) > 1 and size > 2:
        edges[-2] -= 1
    draws, collated, first = SampleSeeds(tag), SampleSeeds(f"collate {tag}"), (epoch or 0) * len(data)

    def read(start, stop):
        samples = []
        for position in range(start, stop):
            draws.at(first + position)
            samples.append(data[int(order[position])])
        collated.at(first + start)
        return collate(samples)

    for start, stop in zip(edges, edges[1:]):
        ?!accumulate yield stop - start, read(start, stop)
        ?accumulate parts = args.accumulate if epoch is not None else 1
        ?accumulate if pairs and stop - start < 2 * parts:
        ?accumulate     parts = max(1, (stop - start) // 2)
        ?accumulate cuts = [start + number * (stop - start) // parts for number in range(parts + 1)]
        ?accumulate yield stop - start, [(b - a, read(a, b) if a < b else None) for a, b in zip(cuts, cuts[1:])]
'''
