"""Define the templates from which a script's training loop and evaluation are composed.

In a template, a line that begins with `?flag` is kept only with that flag, one with `?!flag` only without it. `<name>`
is replaced by one or more lines.
"""

from __future__ import annotations

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
