"""Bind the hyperparameters of a training definition to given values and search domains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

from kernel_backend.definition.contract import Definition
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.model.values import nearest


class Bound(NamedTuple):
    """Hyperparameters of an experiment: the values that all trials share, and the domains that are searched."""

    params: dict[str, Value]  # for a conditional searched one, the default for trials without it
    space: Space  # with values of the types that the functions take


def bind_space(definition: Definition, given: Mapping[str, Value], space: Space) -> Bound:
    """Bind every hyperparameter of a training definition to its given value, its search domain or its default.

    Raises InvalidDefinition with all problems at once: those of `Definition.bind`, and searched names that are not
    hyperparameters (the error suggests the nearest name), that are also given, that have a domain of the wrong type,
    that are conditional without a default for the other trials, or that are used by `prepare`, which runs once for all
    trials.
    """
    problems: list[str] = []
    fitted: list[Parameter] = []
    for parameter in space.parameters:
        try:
            fitted.append(_fitted(definition, given, parameter, space))
        except ValueError as error:
            problems.append(str(error))
    problems += _searched_by_prepare(definition, space)
    hyperparameters = definition.hyperparameters
    may_lack = {each.name for each in space.of(None) if each.when and each.name in hyperparameters}
    without = {each for each in may_lack if not hyperparameters[each].required}
    params: dict[str, Value] = {}
    try:
        params = definition.bind(given, but=set(space.names) - without)
    except InvalidDefinition as error:
        problems.insert(0, error.message)
    if problems:
        raise InvalidDefinition("\n".join(problems))
    return Bound(params, Space(parameters=tuple(fitted)))


def with_epochs(definition: Definition, config: Config, given: Mapping[str, Value]) -> tuple[Config, dict[str, Value]]:
    """Replace a program's own name for its number of epochs, as in `EPOCHS=20`, by the option `--epochs`.

    Returns the configuration, and the values without that name. Raises InvalidDefinition if `--epochs` has another
    value, if the value is not a number of epochs, if neither the program nor the command line has one, or if a search
    over a command is given no length.
    """
    if definition.form == "command" and config.search and not config.model_fields_set & {"epochs", "steps"}:
        raise InvalidDefinition(
            "a search trains each trial for --epochs N, and how many a command trains is not seen: write that number, "
            f"which is how often it reports {config.metric.name}, or --steps N"
        )
    name = definition.epochs_name
    if not name or name not in given:
        if name and "epochs" not in definition.settings and "epochs" not in config.model_fields_set:
            raise InvalidDefinition(f"{name} has no value: write {name}=N, the number of epochs, or --epochs N")
        return config, dict(given)
    value, rest = given[name], {key: each for key, each in given.items() if key != name}
    if type(value) is not int or value < 1:
        raise InvalidDefinition(f"{name}={value!r}: {name} is the number of epochs, a whole number from 1 on")
    if "epochs" in config.model_fields_set and config.epochs != value:
        raise InvalidDefinition(
            f"{name}={value} and --epochs {config.epochs} are both the number of epochs: leave one of them out"
        )
    return Config.model_validate(config.model_dump(exclude_unset=True) | {"epochs": value}), rest


def bind_inputs(
    definition: Definition, inputs: Mapping[str, str], given: Mapping[str, Value], code: Iterable[bytes]
) -> tuple[dict[str, Value], list[str]]:
    """Give each input, as in `--data train=s3://bucket/train`, to the argument or constant of its name.

    An input at a path, as `./images`, is read by that path. Returns the values with those of the inputs, which are
    URLs, and a problem for each input that nothing in `code` takes.
    """
    values, problems = dict(given), list[str]()
    texts = [*code, *(str(value).encode() for value in given.values())]
    reads = any(b"DAYLIGHT_DATA" in text for text in texts)
    for name, url in inputs.items():
        if name.startswith("./"):
            path = PurePath(name)
            if not reads and not any(part.encode() in text for part in path.parts for text in texts):
                problems.append(f"--data {name}={url}: nothing in the code reads {path}: write the path that it names")
        elif name in given:
            problems.append(f"{name} is both given, {given[name]!r}, and an input, {url}: leave one of them out")
        elif name in definition.hyperparameters:
            values[name] = url
        elif not reads:
            near = nearest(name, definition.hyperparameters)
            problems.append(
                f"--data {name}={url}: nothing takes {name}{near}. Write it as an argument, as in "
                f'def train_data({name}), or read os.environ["DAYLIGHT_DATA"] + "/{name}", a local folder'
            )
    return values, problems


def configured(definition: Definition, config: Config) -> Config:
    """Return the configuration, completed by settings that the definition's code implies.

    An option that the user gave is not replaced.
    """
    given = config.model_fields_set
    length = {"epochs", "steps"} if given & {"epochs", "steps"} else set()
    settings = definition.settings
    if config.search is not None and definition.rounds is not None:
        settings = {"epochs": definition.rounds}  # a search compares trials by their trainings
    made = {name: value for name, value in settings.items() if name not in given | length}
    values = Config.model_validate(made)
    return config.model_copy(update={name: getattr(values, name) for name in made})


def _searched_by_prepare(definition: Definition, space: Space) -> Iterator[str]:
    if "prepare" not in definition.roles:
        return
    searched = {each.name: each for each in space.of(None) if not _is_given(each, space)}
    for function in definition.needs("prepare"):
        for own in function.parameters:
            if own.kind == "hyperparameter" and own.name in searched:
                yield (
                    f"{function.name} (line {own.line}) takes {own.name}, which is searched "
                    f"({searched[own.name]}), and prepare runs once for all trials: give {own.name} one value, or have "
                    "another function take it"
                )


def _is_given(parameter: Parameter, space: Space) -> bool:
    """Return True if a parameter of a search space has a single value, and is there only since others depend on it."""
    one = isinstance(parameter.domain, Choices) and len(parameter.domain.values) == 1
    return one and parameter.when is None and not space.of(parameter.name)


def _fitted(definition: Definition, given: Mapping[str, Value], parameter: Parameter, space: Space) -> Parameter:
    """Return a searched parameter with the values in its domain converted to the types that the user's functions take.

    `given` has the hyperparameters with a fixed value. Raises ValueError if a value cannot be converted, for an unknown
    name, for a parameter that is also in `given`, and for a conditional one without a default for the other trials.
    """
    if parameter.each is not None:
        return parameter  # values in a block's dictionary are not checked here
    name = parameter.name
    if name not in definition.hyperparameters:
        raise ValueError(definition.unknown(name))
    if name in given:
        raise ValueError(f"{name} is both given, {given[name]!r}, and searched, {parameter.domain}: leave one out")
    own = definition.hyperparameters[name]
    if parameter.when is not None and own.required:
        elsewhere = f"{name} ({own.place}) counts only where {parameter.when}"
        raise ValueError(f"{elsewhere}: write a default for the other trials into the signature")
    if space.of(name):
        definition.fitted(name, [])  # functions receive a list of blocks under this name
        return parameter
    try:
        return parameter.model_copy(update={"domain": _domain(definition, name, parameter.domain)})
    except ValueError as error:
        raise ValueError(f"{parameter}: {error}") from None


def _domain(definition: Definition, name: str, domain: Range | Choices) -> Range | Choices:
    if isinstance(domain, Choices):
        return Choices(values=tuple(definition.fitted(name, value) for value in domain.values))
    if not domain.whole:
        definition.fitted(name, 0.5)  # raises if the function accepts integers only
        return domain
    low, high = (definition.fitted(name, int(end)) for end in (domain.low, domain.high))
    # For `dropout=0..1`, a function that accepts any number gets real numbers, not only integers.
    return domain if isinstance(low, int) and isinstance(high, int) else domain.model_copy(update={"whole": False})
