"""Define the templates from which scripts are composed; each script contains only the functions that it calls.

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

EVALUATE = '''
def evaluate(net, data, tag, global_step, epoch<passed>):
    """Return the mean loss and the metrics over all samples of a dataset."""
    means, modes = Means(), [(module, module.training) for module in net.modules()]
    ?whole whole, kept, found = None, [], {}
    ?held for each in metric_objects(<metrics_function>):
    ?held     each.reset()
    ?objects objects = <metrics_call>
    ?objects for each in objects.values():
    ?objects     each.reset()
    ?objects     if hasattr(each, "to"):
    ?objects         each.to(device)
    net.eval()
    with torch.no_grad()<autocast>:
        for number, (samples, batch) in enumerate(batches(data, tag)):
            ?accumulate [(_, batch)] = batch
            reseed("validation", global_step, number, 0)
            ?move batch = move(batch)
            ?splits inputs, named, target = split(batch, net)
            ?output output = net(*inputs, **named)
            ?loss means.add("loss", <loss_value>, samples)
            <evaluated_steps>
            ?whole values = {<kept>}
            ?whole if whole is None:
            ?whole     try:
            ?whole         found = <metrics_call>
            ?whole         whole = not all(per_sample(each, samples) for each in found.values())
            ?whole     except Exception:  # one batch may be too small for it
            ?whole         whole = True
            ?whole elif not whole:
            ?whole     found = <metrics_call>
            ?whole if whole:
            ?whole     kept.append(values)
            ?whole else:
            ?whole     for name, each in found.items():
            ?whole         means.add(name, torch.as_tensor(each), samples)
            ?objects for each in objects.values():
            ?objects     each.update(output, target)
        ?metrics reseed("validation", global_step, "metrics")
        ?whole found = {}
        ?whole if whole:  # a number, such as an F1, is one of all samples
        ?whole     values = join(kept)
        ?held     for each in metric_objects(<metrics_function>):
        ?held         each.reset()
        ?whole     found = <metrics_once>
        ?whole     found = {name: float(torch.as_tensor(each).double().mean()) for name, each in found.items()}
        ?objects found = {}
        ?objects for name, each in objects.items():
        ?objects     value = each.compute()
        ?objects     found |= value if isinstance(value, dict) else {name: value}
        ?objects found = {name: float(each) for name, each in found.items()}
    for module, training in modes:
        module.training = training
    ?metrics return means.values() | found
    ?!metrics return means.values()
'''

EVALUATED_STEP = """
with torch.enable_grad():
    result = <call>
if result is not None:
    value, logged = scalar(result)
    for name, each in {"<label>": value, **logged}.items():
        means.add(name, each, samples)
"""

STEP = """
?several for parameter in own["<role>"]:
?several     parameter.grad = None
?!several net.zero_grad()
?steps trained = False
?accumulate for part, (size, batch) in enumerate(parts):
?accumulate     if not size:
?accumulate         continue
?accumulate     <part>
?!accumulate <part>
?steps if trained:
?steps     <update>
?!steps <update>
"""

PART = """
reseed("step", global_step, 0<draws>)
?several with trained_alone(net, own["<role>"]):
?several     <forward_backward>
?!several <forward_backward>
"""

FORWARD_BACKWARD = """
?autocast with <autocast>:
?autocast     <forward>
?!autocast <forward>
?steps if result is not None:
?steps     trained = True
?steps     <backward>
?!steps <backward>
"""

FORWARD = """
?move given = move(batch)
?!move given = batch
?augment given = <augment>
?splits inputs, named, target = split(given, net)
?!steps output = net(*inputs, **named)
result = <call>
"""

BACKWARD = """
value, values = scalar(result)
for name, each in values.items():
    logged.add(name, each, <size>)
?accumulate value = value * (size / samples)
?fp16 scalers["<role>"].scale(value).backward()
?!fp16 value.backward()
losses["<label>"] = losses.get("<label>", 0.0) + value.detach()
"""

UPDATE = """
reseed("update", global_step<draws>)
?clip_scaled for each in <opts>:
?clip_scaled     scalers["<role>"].unscale_(each)
?clip torch.nn.utils.clip_grad_norm_(<own>, args.clip)
for each in <opts>:
    ?fp16 scalers["<role>"].step(each)
    ?!fp16 each.step()
?fp16 scalers["<role>"].update()
"""

ADVANCE = """
for each in lr_schedules:
    if not isinstance(each, torch.optim.lr_scheduler.ReduceLROnPlateau):
        each.step()
"""

OPTIMIZERS = """
opts = opt if isinstance(opt, dict) else {"": opt}
?several keys = {role: [role.removeprefix("step_")] for role in <role_names> if role != "step"}
?several keys["step"] = [key for key in opts if [key] not in keys.values()]
?several own = {}  # the parameters that each step trains
?several for role in <role_names>:
?several     groups = [group for key in keys[role] for group in opts[key].param_groups]
?several     trained = {id(each) for group in groups for each in group["params"]}
?several     own[role] = [each for each in net.parameters() if id(each) in trained]
"""

MAIN = """
def main():
    <data>
    per_epoch = steps_per_epoch(train)
    ?!counts_steps steps = args.epochs * per_epoch
    ?counts_steps steps = args.steps
    <model>
    ?steps if isinstance(net, dict):
    ?steps     net = torch.nn.ModuleDict(net)
    net = net.to(device)
    ?compile for each in net.values() if isinstance(net, torch.nn.ModuleDict) else [net]:
    ?compile     each.compile()
    ?ema average_by = torch.optim.swa_utils.get_ema_multi_avg_fn(args.ema)
    ?ema average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=average_by)
    pairs = any(isinstance(each, torch.nn.modules.batchnorm._BatchNorm) for each in net.modules())
    <optimizers>
    ?schedule <schedules>
    ?fp16 scalers = {role: torch.amp.GradScaler(device.type) for role in <role_names>}
    <others>
    global_step, over = 0, False
    ?judged best, best_weights = None, None
    ?patience stale = 0
    ?validate_first epoch = 0
    ?validate_first <validation>
    ?counts_steps for epoch in itertools.count():
    ?!counts_steps for epoch in range(args.epochs):
        for number, (samples, batch) in enumerate(batches(train, "sample", epoch, pairs), 1):
            ?accumulate parts = batch
            losses, logged = {}, Means()
            <steps>
            ?schedule_per_step <advance>
            ?ema average.update_parameters(net)
            global_step += 1
            ends = number == per_epoch
            over = global_step == steps
            if over or ends or global_step % args.log_every == 0:
                report("training", global_step, global_step / per_epoch, losses | logged.values() | losses)
            ?schedule_per_epoch if ends:
            ?schedule_per_epoch     <advance>
            ?judged if over or <due>:
            ?judged     <validation>
            ?on_epoch if ends:
            ?on_epoch     <on_epoch>
            if over:
                break
        if over:
            break
    ?judged weights = best_weights or <net>.state_dict()
    ?!judged weights = <net>.state_dict()
    ?test <net>.load_state_dict(weights)
    ?test found = evaluate(<net>, test, "test", global_step, epoch<passed>)
    ?test report("test", global_step, global_step / per_epoch, found)
    if args.save:
        torch.save(weights, args.save)


if __name__ == "__main__":
    main()
"""

VALIDATION = """
found = evaluate(<net>, validation, "validation", global_step, epoch<passed>)
report("validation", global_step, global_step / per_epoch, found)
?plateau for each in lr_schedules:
?plateau     if isinstance(each, torch.optim.lr_scheduler.ReduceLROnPlateau):
?plateau         each.step(found["<metric>"])
value = found.get("<metric>", math.nan)
improved = math.isfinite(value) and (best is None or value <better> best)
if improved:
    best, best_weights = value, copy.deepcopy(<net>.state_dict())
?patience stale = 0 if improved else stale + 1
?patience over = over or stale >= args.patience
"""

ON_EPOCH = """
modes = [(module, module.training) for module in <net>.modules()]
<net>.eval()
reseed("on_epoch", epoch)
with torch.no_grad():
    <call>
for module, training in modes:
    module.training = training
"""
