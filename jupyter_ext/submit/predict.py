"""Submit predictions and evaluations: a small definition of the rows, with the code of the model that gets them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_ext.capture import Capture, capture_file
from jupyter_ext.submit.submit import SubmitOptions, check, send
from kernel_backend.client import Client
from kernel_backend.commands.verb import Call
from kernel_backend.data.declared import is_url
from kernel_backend.definition.parse import parse_snapshot
from kernel_backend.definition.prediction_form import EVALUATING, PREDICTING, UseOfModel
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.ids import Reference, parse_source
from kernel_backend.model.labels import Labels
from kernel_backend.model.record import Value
from kernel_backend.model.search.methods import CHECKPOINTS
from kernel_backend.model.search.records import Search
from kernel_backend.model.sizes import size
from kernel_backend.model.snapshot import CAPTURED, Data, Piece
from kernel_backend.model.views.overview import Overview
from kernel_backend.snapshots.loaded import TRAVELLED, module_name
from kernel_backend.spec.config_text import to_config
from kernel_backend.spec.labels import labels_of
from kernel_backend.trained.own_code import check_owner

ROLES = ("train_data", "validation_data", "test_data")
MOST_BYTES = 256 * 2**20  # of rows that travel with the snapshot
USES = {each.form: each for each in (PREDICTING, EVALUATING)}
_USED = {"model", "loss", "metrics", "step"}  # functions of a training that its predictions and evaluations may call
_ROWS = f"{CAPTURED}/rows.safetensors"
_READ_ROWS = f'''
def {{role}}():
    from pathlib import Path

    from safetensors.torch import load_file

    found = load_file(Path(__file__).parent / "{_ROWS}")
    return {{returned}}
'''
_DOES = {"prediction": "predicts", "evaluation": "on"}  # in the name of an experiment
_ONE, _NAMED, _PAIRS = 'found["rows"]', "found", "found['input'], found['target']"


def submit(call: Call, form: str, model: Any, given: Mapping[str, Value]) -> Overview:
    """Submit what the arguments of `daylight predict` or `evaluate` describe, and return the new experiment.

    `form` is prediction or evaluation, `model` names what is used, and `given` has hyperparameters.
    """
    options, use = call.arguments, USES[form]
    module = None if options.module is None else Path(options.module).expanduser()
    config = to_config(options)
    if use is EVALUATING and (options.follow or options.each_checkpoint):
        config = of_checkpoints(config, follow=options.follow)
    rows = _definition(use, options.data, module)
    return submit_use(
        call.client,
        use,
        model,
        rows.capture,
        given,
        config,
        labels=labels_of(options),
        data=rows.data,
        role=rows.role,
        include=tuple(options.include or ()),
        file=module,
        trust=options.trust,
        called=options.data or options.module or "",
    )


def submit_use(
    client: Client,
    use: UseOfModel,
    model: Any,
    capture: Capture,
    given: Mapping[str, Value],
    config: Config,
    *,
    labels: Labels,
    data: tuple[str, ...] = (),
    role: str = "",
    include: tuple[str, ...] = (),
    file: Path | None = None,
    trust: str | None = None,
    called: str = "its rows",
) -> Overview:
    """Submit a prediction or evaluation of rows by `model`, and return the new experiment.

    Parameters
    ----------
    client : Client
        Client of the service.
    use : UseOfModel
        What is done with the rows.
    model : str or Source
        Model that is used: an experiment, a trial, one of its checkpoints, or a version of a model.
    capture : Capture
        Definition with `predict_data` or `evaluate_data`.
    given : dict
        Hyperparameters.
    config : Config
        Slots and other settings.
    labels : Labels
        Name, tags and note; without a name it is called after the model and `called`.
    data : tuple of str
        Files and folders that are fingerprinted.
    role : str
        Function of the training that returns the rows, such as `test_data`; empty if they come from elsewhere.
    include : tuple of str
        Files of the project that travel.
    file : Path, optional
        File from which the definition comes.
    trust : str, optional
        Owner of the model's code, if it is another user's.
    called : str
        What the rows are, in the experiment's name.

    Raises
    ------
    InvalidRequest
        There is no such data, or a definition says nothing of it.
    Forbidden
        The model's code is another user's, who is not named by `trust`.
    """
    named = parse_source(model) if isinstance(model, str) else model
    subject = named.subject
    if isinstance(subject, Reference) and not config.follows:
        named = named._replace(subject=Reference(subject.experiment, subject.trial or client.front(subject.experiment)))
    if isinstance(subject, Reference):
        number = subject.experiment
    elif config.follows:
        raise InvalidRequest(f"{named} is one checkpoint: name an experiment or a trial, to measure its checkpoints")
    else:
        number = client.model_version(subject).experiment
    if config.follows and named.step is not None:
        raise InvalidRequest(f"{named} is one checkpoint: leave out the step, to measure all")
    source = str(named)
    overview = client.experiment(number)
    if config.follows:  # the values are compared as those of the training
        config = config.model_copy(update={"metric": overview.experiment.config.metric})
    if trust != overview.experiment.owner:
        check_owner(client, overview, f"--trust {overview.experiment.owner}")
    if labels.name is None:
        labels = labels._replace(name=f"{source} {_DOES[use.form]} {Path(called).name or called}"[:100])
    config = config.model_copy(update={"weights_from": source})
    checked = check(capture, given, SubmitOptions(include=include, data=data, labels=labels), file, config=config)
    declared = checked.declared
    inputs = _inputs(client, overview.experiment, role)
    if taken := declared.inputs.keys() & {each.into for each in inputs}:
        raise InvalidRequest(
            f"an input of the training is called {min(taken)}, as this one is: save the rows in a file, and name it"
        )
    checked = replace(checked, declared=declared._replace(data=(*declared.data, *inputs)))
    return send(checked, client=client, again=True).overview


def _inputs(client: Client, training: Experiment, role: str) -> tuple[Data, ...]:
    """Return the inputs of a training that its function `role`, or its model and what measures it, may read.

    Their lists of objects travel with the code of the training.
    """
    source, snapshot = client.source(training.number)
    inputs = [each for each in snapshot.data if each.into]
    if not inputs:
        return ()
    if not role:
        definition = parse_snapshot(source, snapshot)
        used = (function for name in _USED & definition.functions.keys() for function in definition.needs(name))
        taken = {parameter.name for function in used for parameter in function.parameters}
        inputs = [each for each in inputs if each.into in taken]
    folder, data_at = f"{TRAVELLED}/{module_name(training.snapshot)}", training.config.data_at
    return tuple(
        each.model_copy(update={"path": data_at.get(each.name, each.path), "listed": f"{folder}/{each.listed}"})
        for each in inputs
    )


def of_checkpoints(config: Config, *, follow: bool) -> Config:
    """Return the configuration of an evaluation of all checkpoints of a training, in a trial for each.

    With `follow`, those to come are measured, too, and the training gets the values as validations.
    """
    options: dict[str, Value] = {"follow": True} if follow else {}
    return config.model_copy(update={"search": Search(method=CHECKPOINTS.name, options=options)})


def with_rows(use: UseOfModel, values: Any, target: str = "") -> Capture:
    """Return a definition with which rows travel that are in the notebook; raise InvalidRequest beyond 256 MB.

    `values` are a tensor, an array, a dict of these, a DataFrame of numbers, or a dataset whose samples are tensors. To
    be measured, rows have targets: the values are a pair of arrays, or the DataFrame has a column `target`.
    """
    from safetensors.torch import save

    tensors = _pairs(values, target) if use is EVALUATING else _tensors(values)
    data = save({name: each.contiguous() for name, each in tensors.items()})
    if len(data) > MOST_BYTES:
        raise InvalidRequest(
            f"these rows have {size(len(data))}, and up to {size(MOST_BYTES)} travel: save them in a file"
        )
    returned = _PAIRS if list(tensors) == ["input", "target"] else _ONE if list(tensors) == ["rows"] else _NAMED
    return _captured(_READ_ROWS.format(role=use.data, returned=returned), {_ROWS: data})


def _pairs(values: Any, target: str) -> dict[str, Any]:
    if hasattr(values, "select_dtypes"):
        if target not in values.columns:
            raise InvalidRequest(f"the DataFrame has no column {target}" if target else "target= names no column")
        values = (_tensors(values.drop(columns=[target]))["rows"], values[target].to_numpy())
    if not isinstance(values, tuple | list | Mapping) and hasattr(values, "__len__") and hasattr(values, "__getitem__"):
        values = _collated(values)
    if isinstance(values, Mapping):
        return _tensors(values)
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise InvalidRequest("rows that are measured have targets: give (x, y), a dataset of pairs, or a path")
    return {"input": _tensor(values[0]), "target": _tensor(values[1])}


def _tensors(values: Any) -> dict[str, Any]:
    if hasattr(values, "select_dtypes"):
        numbers = values.select_dtypes("number")
        if len(numbers.columns) < len(values.columns):
            raise InvalidRequest("the DataFrame has columns that are no numbers: save it as parquet, and name the file")
        values = numbers.to_numpy(dtype="float32")
    if isinstance(values, Mapping):
        return {str(name): _tensor(each) for name, each in values.items()}
    if hasattr(values, "shape"):
        return {"rows": _tensor(values)}
    if not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
        raise InvalidRequest(
            f"{type(values).__name__} has no numbered rows: give an array, a dataset or the path of a file"
        )
    batch = _collated(values)
    if isinstance(batch, list | tuple):
        batch = batch[0]
    return dict(batch) if isinstance(batch, Mapping) else {"rows": batch}


def _tensor(values: Any) -> Any:
    """Return an array as a tensor; one of numpy is copied, as torch warns of arrays that are read only."""
    import numpy as np
    import torch

    return torch.as_tensor(values.copy() if isinstance(values, np.ndarray) else values)


def _collated(dataset: Any) -> Any:
    """Return all samples of a dataset as one batch."""
    from torch.utils.data import default_collate

    return default_collate([dataset[row] for row in range(len(dataset))])


class Rows(NamedTuple):
    """Definition of rows; the values of `--data` for what it reads; and the training's function that returns them."""

    capture: Capture
    data: tuple[str, ...] = ()  # a path to fingerprint, or an input
    role: str = ""


def read_data(use: UseOfModel, data: str) -> Rows:
    """Return the definition whose rows are in a file or folder, or of a role of the training.

    Raises InvalidRequest if there is no such file.
    """
    return _definition(use, data, None)


def _definition(use: UseOfModel, data: str | None, module: Path | None) -> Rows:
    capture = None if module is None else capture_file(module)
    own = capture is not None and f"def {use.data}(" in capture.source
    if data is None:
        if capture is None or not own:
            raise InvalidRequest(
                f"--data is missing: name a file, a folder or {' or '.join(ROLES)}, or write {use.data}() into the "
                "file of --with"
            )
        return Rows(capture)
    if own:
        raise InvalidRequest(f"--data and {use.data}() of {module} both give the rows: leave one of them out")
    path, remote = Path(data).expanduser(), is_url(data)
    place = str(path.absolute()) if path.exists() and not remote else data
    if not path.exists() and not remote and data not in ROLES:
        roles = ", ".join(ROLES)
        raise InvalidRequest(f"--data {data}: there is no such file or folder, it is no URL, and it is none of {roles}")
    reads = f"\n\ndef {use.data}(data={place!r}):\n    return data\n"
    if capture is None:
        capture = _captured(reads.lstrip())
    else:
        last = Piece(cell=None, file="the command line", line=capture.source.count("\n") + 1, count=4, cell_line=1)
        capture = Capture(capture.source + reads, (*capture.pieces, last), roles_from=1)
    if remote:
        return Rows(capture, (f"data={data}",))  # the argument of that function: a local path in the job
    return Rows(capture, (place,)) if path.exists() else Rows(capture, role=data)


def _captured(source: str, files: Mapping[str, bytes] | None = None) -> Capture:
    piece = Piece(cell=None, file="the command line", line=1, count=source.count("\n"), cell_line=1)
    return Capture(source, (piece,), roles_from=1, files=dict(files or {}))


def options_of(**options: Any) -> Config:
    """Return the configuration for options by name, such as `slots=2`."""
    return to_config(Namespace(**{name: value for name, value in options.items() if value is not None}))
