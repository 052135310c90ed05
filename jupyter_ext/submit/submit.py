"""Check a capture, prepare its snapshot and submit it as an experiment; problems are reported before sending."""

from __future__ import annotations

import glob
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jupyter_ext.capture import Capture, Problem
from jupyter_ext.project import LIMIT, Imported, ProjectFiles, collect, place_of
from jupyter_ext.project.packages import installed_packages
from jupyter_ext.recognise import in_other_cells, recognise
from jupyter_ext.submit.implicit_context import ArchiveBudget, ImplicitContext, collect_context
from jupyter_ext.submit.process import notebook_process
from jupyter_ext.submit.secret_check import find_leaks, without_secrets
from kernel_backend import NUMERICS, __version__
from kernel_backend.client import Client
from kernel_backend.data import Declared, declare
from kernel_backend.definition.binding import bind_inputs, bind_space, configured, with_epochs
from kernel_backend.definition.command.choice import OWN_CHECKPOINTS
from kernel_backend.definition.command_line import Command
from kernel_backend.definition.contract import CONTRACT, REQUIRED, Definition
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.definition.forms.registry import problems as problems_of_forms
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.definition.script.modules import project_modules
from kernel_backend.errors import CaptureError, InvalidDefinition, InvalidRequest
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import ModelReference, parse_source
from kernel_backend.model.labels import UNLABELLED, Labels
from kernel_backend.model.record import Value
from kernel_backend.model.record import checked as record_of
from kernel_backend.model.search.domains import Choices
from kernel_backend.model.search.space import UNSEARCHED, Space
from kernel_backend.model.sizes import parse_size, size, size_word
from kernel_backend.model.snapshot import Process, Snapshot, State
from kernel_backend.model.values import nearest
from kernel_backend.model.views.overview import Overview
from kernel_backend.secret_scan import find_secrets, is_secret, known_secrets, text_of
from kernel_backend.snapshots.archive import MAX_BYTES, MAX_MEMBERS, pack_snapshot
from kernel_backend.snapshots.environment import record
from kernel_backend.snapshots.loaded import travelling_archive
from kernel_backend.snapshots.state import state_of
from kernel_backend.spec.assignments import ParsedAssignments, parse_line
from kernel_backend.spec.config_text import specified_options, to_config
from kernel_backend.spec.labels import label_texts, labels_of
from kernel_backend.spec.options import OPTIONS
from kernel_backend.spec.search_rules import check_length, check_line

T = TypeVar("T")
_USUAL = Config()
_OURS = 100  # members reserved for the definition, its description and the records next to it


@dataclass(frozen=True)
class SubmitOptions:
    """Options of a submission besides the configuration: files to include, checks, name."""

    include: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()  # notebook names
    state_check: bool = True  # whether the job compares its values with the notebook's
    limit: int = LIMIT  # bytes of project files
    data: tuple[str, ...] = ()  # folders, files and URLs that are fingerprinted
    commits: tuple[str, ...] = ()  # external versions of data
    labels: Labels = UNLABELLED
    allow_unused: bool = False  # True if functions with names similar to a role may be unused
    form: str | None = None  # fixed form of a program, regardless of its content

    @property
    def texts(self) -> dict[str, Value]:
        """Return the options that are stored as free text, by flag, so that they can be searched for secrets."""
        return {"--data": " ".join(self.data), "--commit": " ".join(self.commits), **label_texts(self.labels)}

    def words(self) -> list[str]:
        """Return the options as words of a command line."""
        found = [word for path in self.include for word in ("--include", path)]
        found += ["--capture", ",".join(self.captured)] if self.captured else []
        found += [word for path in self.data for word in ("--data", path)]
        found += [word for commit in self.commits for word in ("--commit", commit)]
        found += [] if self.state_check else ["--no-state-check"]
        found += ["--allow-unused"] if self.allow_unused else []
        found += ["--form", self.form] if self.form else []
        found += ["--project-limit", size_word(self.limit)] if self.limit != LIMIT else []
        return found


def wanted(options: Namespace) -> SubmitOptions:
    """Return the submit options that parsed arguments set; raise InvalidRequest for an invalid size or label."""
    named = getattr(options, "capture", None) or ()
    try:
        limit = parse_size(options.project_limit) if options.project_limit else LIMIT
    except InvalidRequest as error:
        raise InvalidRequest(f"--project-limit {options.project_limit[:50]}: {error.message}") from None
    return SubmitOptions(
        include=tuple(options.include or ()),
        captured=tuple(dict.fromkeys(name for each in named for name in each.split(",") if name)),
        state_check=not getattr(options, "no_state_check", False),
        limit=limit,
        data=tuple(options.data or ()),
        commits=tuple(options.commit or ()),
        labels=labels_of(options),
        allow_unused=getattr(options, "allow_unused", False),
        form=getattr(options, "form", None),
    )


class ParsedLine(NamedTuple):
    """Parsed options and `name=value` arguments of a line; `wrong` holds all problems found in the line."""

    config: Config
    given: dict[str, Value]
    space: Space
    wanted: SubmitOptions
    wrong: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # other options as arguments: name, display and waiting


def read(options: Namespace, wrong: Sequence[str] = ()) -> ParsedLine:
    """Parse the options and `name=value` arguments of a line; invalid ones get defaults and are listed in `wrong`."""
    complaints = list(wrong)

    def tried(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except InvalidRequest as error:
            complaints.append(error.message)
            return otherwise

    config = tried(lambda: to_config(options), Config())
    given, space = tried(lambda: parse_line(options.words), ParsedAssignments({}, Space()))
    asked = tried(lambda: wanted(options), SubmitOptions())
    if not complaints:
        tried(lambda: check_line(config, space), None)
    return ParsedLine(config, given, space, asked, tuple(complaints), tuple(specified_options(options)))


class Session(NamedTuple):
    """Live notebook: its variables, the imported project modules, and the notes already shown to the user."""

    namespace: Mapping[str, object]
    imported: Imported
    told: Collection[str] = ()


@dataclass(frozen=True)
class PreparedSubmission:
    """Checked submission: the captured training definition, its hyperparameters, and the files to send with it."""

    capture: Capture
    definition: Definition
    params: dict[str, Value]  # without searched hyperparameters
    space: Space
    travelling: ProjectFiles
    declared: Declared
    commits: tuple[str, ...]
    state: dict[str, State] = field(default_factory=dict)  # expected states of the job's values
    around: ImplicitContext = field(default_factory=ImplicitContext)
    passing: tuple[str, ...] = ()  # warnings for this submission only
    process: Process | None = None  # expected settings of the job's process
    config: Config = field(default_factory=Config)  # with the settings that the code makes
    given: dict[str, Value] = field(default_factory=dict)  # values given on the line
    labels: Labels = UNLABELLED

    @property
    def files(self) -> dict[str, bytes]:
        """Return the files to send with the definition, by their paths in the archive."""
        return {**self.around.files, **self.travelling.files, **self.capture.files, **self.declared.files}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return all warnings to show before the submission, including those that are stored with the snapshot."""
        return (*self.passing, *self.lasting)

    @property
    def lasting(self) -> tuple[str, ...]:
        """Return the warnings to store with the snapshot, as they also apply to a rerun."""
        hints = map(self.capture.relocate, (*self.definition.hints, *self.definition.unused))
        missing = [each for each in self.capture.requirements if "==" not in each]
        lacks = [
            f"{each}, of a pip install in a cell, is not installed in this Python: a job lacks it" for each in missing
        ]
        return (
            *(each for each in self.capture.warnings if each not in self.capture.kept_out),
            *self.travelling.warnings,
            *self.declared.warnings,
            *self.around.warnings,
            *lacks,
            *hints,
            *_shared_folder(
                self.definition.command, self.space, (self.capture.source.encode(), *self.travelling.files.values())
            ),
        )


def check(
    capture: Capture,
    given: Mapping[str, Value],
    asked: SubmitOptions = SubmitOptions(),
    file: Path | None = None,
    session: Session | None = None,
    wrong: Sequence[str] = (),
    space: Space = UNSEARCHED,
    config: Config = _USUAL,
) -> PreparedSubmission:
    """Check a capture: bind a value or a domain to each hyperparameter, and collect the files that it needs.

    `given` has values of hyperparameters by name, and `asked` the submit options. `file` is the captured file if the
    source is not a notebook: modules next to it are found first. `session` is the notebook of the capture. `wrong`
    holds problems of the command line. Raises CaptureError with all problems (InvalidRequest if `wrong` holds any, or a
    search needs longer trials), or InvalidDefinition if only the definition is invalid or does not go with the options;
    all messages name cells and lines.
    """
    declared, unreadable = _declared(asked)
    travelling = _travelling(capture, asked, file, declared.mapped)
    files = {**capture.files, **travelling.files}
    problems = [
        *(Problem("option", "", None, each) for each in wrong),
        *capture.problems,
        *travelling.problems,
        *_too_large({**files, **declared.files}),
        *find_leaks(capture, files, {**given, **_choices(space), **asked.texts}, known_secrets()),
        *unreadable,
    ]
    try:
        definition = _definition(capture, travelling, session.namespace if session is not None else {})
        problems += [] if asked.allow_unused else _unused(capture, definition)
        problems += _of_another_form(definition, asked)
        given, untaken = bind_inputs(definition, declared.inputs, given, [capture.source.encode(), *files.values()])
        problems += [Problem("data", "", None, each) for each in untaken]
        config, given = with_epochs(definition, config, given)
        params, searched = ({}, Space()) if wrong else bind_space(definition, given, space)
    except InvalidDefinition as error:
        message = capture.relocate(error.message) + error.details.get("shown", "")
        if all(each.code == "syntax" for each in problems):  # the definition's parser reports it, too
            raise InvalidDefinition(message, **error.details) from None
        problems = [each for each in problems if each.code != "syntax"]
        problems.append(Problem("definition", "", None, message))
    if problems:
        kind = InvalidRequest if wrong else CaptureError
        raise kind("\n".join(each.message for each in problems), problems=[vars(each) for each in problems])
    config = configured(definition, config)
    check_options(definition, config)
    check_length(config)
    compares = session is not None and asked.state_check
    # Values that the notebook made of a local sample are others where remote data is in its place.
    state = _state(capture, session) if session is not None and compares and not declared.mapped else {}
    process = notebook_process(capture, files) if compares else None
    sent = {**files, **declared.files}
    budget = ArchiveBudget(MAX_MEMBERS - _OURS - len(sent), MAX_BYTES - sum(map(len, sent.values())))
    around = collect_context(Path.cwd(), known_secrets(), budget, declared.mapped)
    passing = _passing(capture, travelling, session)
    return PreparedSubmission(
        capture=capture,
        definition=definition,
        params=params,
        space=searched,
        travelling=travelling,
        declared=declared,
        commits=asked.commits,
        state=state,
        around=around,
        passing=passing,
        process=process,
        config=config,
        given=dict(given),
        labels=asked.labels,
    )


def _definition(capture: Capture, travelling: ProjectFiles, namespace: Mapping[str, object]) -> Definition:
    """Return the parsed training definition of a capture.

    `travelling` are the project files that are sent with it, and `namespace` holds the notebook's values. Raises
    InvalidDefinition for a cell that is no definition, such as one that trains a model of scikit-learn; forms of other
    packages that cannot be used are named first. If the cell can
    be completed with values of other cells, the error suggests such a cell: `details["cell"]` is the cell, and
    `details["shown"]` is the end of the message, with the cell.
    """
    try:
        modules = project_modules(travelling.files, travelling.project)
        return parse(capture.source, capture.roles_from, modules=modules)
    except InvalidDefinition as error:
        roles = error.details.get("roles")
        found = recognise(capture.source, capture.roles_from) if roles else None
        if found is None and roles and set(roles) <= set(REQUIRED):
            own = "\n".join(capture.source.splitlines()[capture.roles_from - 1 :])
            found = in_other_cells(roles, own, namespace)
        unusable = problems_of_forms()
        if found is None and not unusable:
            raise
        if found is None:
            raise InvalidDefinition("\n".join([*unusable, error.message]), **error.details) from None
        details = {"cell": found.cell, "shown": f":\n\n{found.cell}"} if found.cell else {}
        raise InvalidDefinition("\n".join([*unusable, found.text]), **details) from None


def _shared_folder(command: Command | None, space: Space, code: Iterable[bytes]) -> Iterator[str]:
    """Yield a warning if the trials of a command may overwrite each other's files, which only the program knows.

    What a process of the job writes is seen, and told when it happens.
    """
    if command is None or command.taken or not space.parameters:
        return
    if command.names_a_place_per_trial or any(OWN_CHECKPOINTS.encode() in each for each in code):
        return
    parameter = space.parameters[0].label
    yield (
        "its trials run in one folder: a file that the program writes under the same name in each, such as best.pt, is "
        f"overwritten by another trial, which may read it back as its own. Name files by the trial, as in "
        f"out-{{{parameter}}}, or write them into {{checkpoints}} (${OWN_CHECKPOINTS}), a folder for each trial"
    )


def _unused(capture: Capture, definition: Definition) -> list[Problem]:
    way_out = "Rename it, use it, or add --allow-unused."
    return [Problem("unused", "", None, f"{capture.relocate(each)} {way_out}") for each in definition.unused]


def _of_another_form(definition: Definition, asked: SubmitOptions) -> Iterator[Problem]:
    if asked.form is not None and definition.form != asked.form:
        text = f"--form {asked.form} is for a program behind --: write -- python train.py, or leave --form out"
        yield Problem("option", "", None, text)


def _choices(space: Space) -> dict[str, Value]:
    """Return the choices of each categorical parameter of a search as text, by parameter name, to scan for secrets."""
    return {each.label: str(each.domain) for each in space.parameters if isinstance(each.domain, Choices)}


def _travelling(capture: Capture, asked: SubmitOptions, file: Path | None, mapped: Sequence[str]) -> ProjectFiles:
    cwd = Path.cwd()
    search = [file.absolute().parent, cwd] if file else []
    place = place_of(search[0], cwd) if file else place_of(cwd)
    include = (*asked.include, *map(glob.escape, capture.carried))
    return collect(
        capture.source,
        place,
        where=capture.where,
        search=search,
        include=include,
        limit=asked.limit,
        modules=capture.modules,
        elsewhere=bool(capture.interpreter),
        mapped=mapped,
    )


def _passing(capture: Capture, travelling: ProjectFiles, session: Session | None) -> tuple[str, ...]:
    if session is None:
        return capture.kept_out
    untold = (each for each in capture.kept_out if each not in session.told)
    return (*untold, *session.imported.changed(travelling.modules))


def _declared(asked: SubmitOptions) -> tuple[Declared, list[Problem]]:
    try:
        return declare(
            without_secrets(asked.data, known_secrets()), Path.cwd(), partial(print, file=sys.stderr, flush=True)
        ), []
    except InvalidRequest as error:
        return Declared(), [Problem("data", "", None, error.message)]


def _state(capture: Capture, session: Session) -> dict[str, State]:
    """Return digests of the notebook values that the job must reproduce, by name; secrets are left out.

    The job computes these values itself, and compares their digests.
    """
    known = known_secrets()
    values = {name: session.namespace[name] for name in capture.compared if name in session.namespace}
    states = {name: state_of(value) for name, value in values.items() if not is_secret(name, value)}
    return {
        name: state
        for name, state in states.items()
        if state is not None and not find_secrets(f"{name} = {text_of(values[name])}\n{state.shown}", known)
    }


def _too_large(files: Mapping[str, bytes]) -> Iterator[Problem]:
    count = sum(map(len, files.values()))
    if len(files) > MAX_MEMBERS - _OURS:
        what = f"all that travels are {len(files)} files, more than a snapshot holds ({MAX_MEMBERS})"
        yield Problem("size", "snapshot", None, f"{what}. Name what the job does not need in .daylightignore.")
    if count > MAX_BYTES:
        largest = sorted(files, key=lambda name: len(files[name]), reverse=True)[:5]
        listed = ", ".join(f"{name} ({size(len(files[name]))})" for name in largest)
        what = f"all that travels has {size(count)}, more than a snapshot holds ({size(MAX_BYTES)})"
        yield Problem("size", "snapshot", None, f"{what}. The largest: {listed}.")


def submit(
    capture: Capture,
    config: Config,
    given: Mapping[str, Value],
    *,
    space: Space = UNSEARCHED,
    file: Path | None = None,
    notebook: str | None = None,
    client: Client | None = None,
    asked: SubmitOptions = SubmitOptions(),
    again: bool = False,
) -> Overview:
    """Submit a capture and return the new experiment; start the service if none is running.

    `given` has values of hyperparameters by name, and `asked` the submit options. If an identical experiment is active
    already, that one is returned, unless `again` is set. Raises CaptureError or InvalidDefinition before anything is
    sent, and errors of the service.
    """
    check_line(config, space)
    checked = check(capture, given, asked, file, space=space, config=config)
    return send(checked, notebook=notebook, client=client, again=again).overview


class SubmitResult(NamedTuple):
    """Submitted experiment; `new` is False if an identical one was active already, which was returned instead."""

    overview: Overview
    new: bool


def send(
    checked: PreparedSubmission,
    *,
    notebook: str | None = None,
    client: Client | None = None,
    again: bool = False,
) -> SubmitResult:
    """Upload a checked capture and create an experiment; raise errors of the service.

    `notebook` is the path of the notebook's file. If an identical experiment is active already, return that one, unless
    `again` is set. The variable DAYLIGHT_POOL names the pool of submissions that name none.
    """
    config, own = checked.config, os.environ.get("DAYLIGHT_POOL")
    if config.pool is None and own:
        config = record_of(Config, **(config.model_dump() | {"pool": own}))
    client = client or Client.connect()
    files = checked.files
    if config.uses_model:
        files = files | _code_of_model(client, str(config.weights_from))
    id, data = pack_snapshot(checked.capture.source, describe(checked), files)
    client.upload_snapshot(id, data)
    submission = record_of(
        Submission,
        snapshot=id,
        config=config,
        params=checked.given,
        space=checked.space,
        **checked.labels._asdict(),
        python=sys.executable,
        cwd=os.getcwd(),
        notebook=notebook,
        again=again,
    )
    return SubmitResult(*client.submit_once(submission))


def _code_of_model(client: Client, model: str) -> dict[str, bytes]:
    """Return the snapshot with which a model was trained, as files of the snapshot of its predictions."""
    subject = parse_source(model).subject
    found = client.model_version(subject) if isinstance(subject, ModelReference) else subject
    number = found.experiment
    return travelling_archive(client.experiment(number).experiment.snapshot, client.archive(number))


def config_from(options: Mapping[str, Any]) -> Config:
    """Return the configuration for options by name (`slots=2, checkpoint_every="60s", search="asha", trials=64`).

    Raises InvalidRequest, which names the invalid option and, for an unknown name, the nearest valid one.
    """
    known = {*Config.model_fields, *(option.dest for option in OPTIONS if option.config)}
    for name in options:
        if name not in known:
            raise InvalidRequest(f"there is no option {name}{nearest(name, known)}")
    return to_config(Namespace(**options))


def describe(checked: PreparedSubmission) -> Snapshot:
    """Return the snapshot's description: Daylight's version, the origin of each line and the environment."""
    return Snapshot(
        version=__version__,
        numerics=NUMERICS,
        pieces=checked.capture.pieces,
        roles_from=checked.capture.roles_from,
        contract=CONTRACT,
        form=checked.definition.form if form_named(checked.definition.form).package else "",
        environment=record(),
        warnings=checked.lasting,
        requirements=checked.capture.requirements,
        project=checked.travelling.project,
        captured=checked.capture.captured,
        data=checked.declared.data,
        commits=checked.commits,
        state=checked.state,
        process=checked.process,
        packages=() if checked.capture.interpreter else installed_packages(checked.capture.packages),
    )
