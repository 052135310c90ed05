"""Test the registry of search methods, with methods of other packages and broken packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ext.submit.search_summary import bounds_text, forecast_text
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config
from kernel_backend.model.search import registry
from kernel_backend.model.search.methods import BUILT_IN, COMMON, MethodOption
from kernel_backend.model.search.records import Search, Settings
from kernel_backend.search.log import fold
from kernel_backend.search.make import make, plan
from kernel_backend.spec.assignments import parse_line
from kernel_backend.spec.config_text import to_config, to_options
from kernel_backend.spec.option_parser import OptionParser, add_options
from kernel_backend.spec.search_rules import check_search
from tests.plugins import ANNEALING, importable, install, written
from tests.support.builders import parse_options
from tests.support.search_builders import SPACE, Logged, create

METHOD = """
from daylight.search import SearchMethod
METHOD = SearchMethod(name="mine", summary="mine", factory="there.is.none:make")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    install(ANNEALING, site)
    return site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """Provide a folder with packages that this process can import, and empty caches."""
    with importable(tmp_path / "site"):
        yield tmp_path / "site"


@pytest.fixture
def annealing(installed: Path) -> Iterator[None]:
    with importable(installed):
        yield


def config(line: str) -> Config:
    return to_config(parse_options(line.split(), "terminal"))


def checked(line: str) -> Config:
    options = parse_options(line.split(), "terminal")
    found = to_config(options)
    check_search(found, parse_line(options.words).space)
    return found


@pytest.mark.parametrize("method", BUILT_IN, ids=lambda method: method.name)
def test_what_a_record_names_is_there(method) -> None:
    assert all(callable(registry.function_of(method, path)) for path in (method.factory, method.plan) if path)
    assert {*method.uses, *COMMON} <= set(Search.model_fields)


@pytest.mark.usefixtures("annealing")
def test_a_method_of_a_package_is_asked_for_as_a_built_in_one() -> None:
    line = "--search annealing --search-option temperature=0.25 --epochs 4"
    found = checked(f"{line} lr=1e-4..1e-1:log").search
    assert found == Search(method="annealing", options={"temperature": 0.25})
    assert (found.limit, found.learns) == (12, True)
    assert registry.method_of("annealing").package == "daylight-annealing 1.0"
    assert to_config(parse_options(to_options(config(line)), "terminal")) == config(line)
    space = parse_line(["lr=1e-4..1e-1:log"]).space
    assert bounds_text(config(line), space) == (
        "annealing: 12 trials of 4 epochs on 1 slot, that is 48 epochs of a slot"
    )
    assert forecast_text(config(line), space).startswith("about 48 epochs in all (100 % of 12 whole trainings)")


@pytest.mark.usefixtures("annealing")
def test_its_searcher_is_made_with_its_options_and_is_the_fold_of_its_log() -> None:
    settings = Settings(method="annealing", units=4, trials=3, options={})
    search = Logged(make(settings, SPACE))
    assert create(search, 3) == [1, 2, 3]
    search.on_report(1, 4, 0.5)
    assert fold(settings, SPACE, search.log).wants() == search.wants() == 0
    near, far = (
        [make(settings.model_copy(update={"options": {"temperature": each}}), SPACE) for _ in range(2)]
        for each in (0.01, 1.0)
    )
    asked = []
    for one in (*near, *far):
        create(one, 1)
        one.on_report(1, 4, 0.5)
        asked.append(one.on_slot())
    assert asked[0] == asked[1] != asked[2] == asked[3]


@pytest.mark.usefixtures("annealing")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("temprature=0.3", r"temprature: --search annealing has no such option \(did you mean temperature\?\)"),
        ("temperature=3", "--search-option temperature=3: must be at most 1$"),
        ("temperature=high", "--search-option temperature=high: must be a number$"),
        ("temperature", "'temperature' is no option of a search method: write NAME=VALUE"),
    ],
)
def test_what_its_options_cannot_be_is_refused(line: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        checked(f"--search annealing --search-option {line} lr=1,2")


@pytest.mark.usefixtures("annealing")
def test_what_means_nothing_to_it_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"--eta means nothing to --search annealing: .* asha or hyperband"):
        checked("--search annealing --eta 3 lr=1,2")
    with pytest.raises(InvalidRequest, match="--search-option x: --search random has no such option: it has none"):
        checked("--search random --search-option x=3 lr=1,2")


@pytest.mark.usefixtures("annealing")
def test_help_and_refusals_name_it_beside_the_others() -> None:
    parser = OptionParser(prog="daylight submit")
    add_options(parser, "terminal")
    told = " ".join(parser.format_help().split())
    assert "by random, grid, sobol, asha, hyperband, pbt, tpe, gp, cmaes, annealing, or custom:NAME" in told
    with pytest.raises(InvalidRequest, match=r"must be single, .* or annealing \(did you mean annealing\?\)"):
        config("--search anealing")
    assert Search.model_json_schema()["properties"]["method"]["examples"][-1] == "annealing"


def test_a_package_that_cannot_be_imported_fails_its_own_method_alone(site: Path) -> None:
    written(site, "torn-search", "import nothing_of_this_name", "torn")
    written(site, "good-search", METHOD, "mine")
    with pytest.raises(InvalidRequest, match=r"(?s)package torn-search 1.0 .* ModuleNotFoundError: .*upgrade or unins"):
        checked("--search torn lr=1,2")
    assert checked("--search random lr=1,2").search == Search(method="random")
    assert "mine" in {method.name for method in registry.methods()}
    assert [each.split(":")[0] for each in registry.problems()] == ["--search torn"]
    assert Search(method="torn").limit is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("METHOD = 'mine'", "is str, not a SearchMethod"),
        (METHOD.replace('"mine", s', '"other", s'), "is a method named other"),
        (METHOD.replace("there.is.none:make", "there.is.none"), "ValidationError"),
        (METHOD.replace("factory", "uses=('size',), factory"), "it uses size, which is no field of Search"),
        (METHOD.replace("factory", "own_class=True, factory"), "own_class is for the method custom alone"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_what_is_no_method_is_refused_with_the_name_of_its_package(site: Path, text: str, said: str) -> None:
    written(site, "odd-search", text, "mine")
    with pytest.raises(InvalidRequest, match=f"(?s)package odd-search 1.0 cannot be used: .*{said}"):
        registry.method_of("mine")


def test_a_factory_that_is_not_there_is_told_with_the_name_of_its_package(site: Path) -> None:
    written(site, "good-search", METHOD, "mine")
    settings = Settings(method="mine", units=4)
    assert plan(settings, SPACE).shortest == 4
    with pytest.raises(InvalidRequest, match=r"package good-search 1.0 cannot be used: there.is.none:make cannot be"):
        make(settings, SPACE)


def test_a_built_in_method_is_not_replaced_and_that_is_told(site: Path) -> None:
    written(site, "shadow-search", METHOD.replace('"mine", s', '"asha", s'), "asha")
    assert registry.method_of("asha").package == ""
    assert registry.problems() == registry.shadowing()
    assert registry.shadowing() == [
        "the search method asha of package shadow-search 1.0 is not used: a built-in method has this name"
    ]


def test_of_two_packages_with_one_name_neither_is_used(site: Path) -> None:
    written(site, "one-search", METHOD, "mine")
    written(site, "two-search", METHOD, "mine")
    with pytest.raises(InvalidRequest, match=r"one-search 1.0 and two-search 1.0 both|two-search 1.0 and one-search"):
        registry.method_of("mine")


def test_a_package_that_is_installed_later_is_found_and_a_stored_search_of_one_that_is_gone_is_read(site: Path) -> None:
    stored = Search.model_validate_json(Search(method="mine").model_dump_json())
    assert (stored.limit, stored.samples_by, stored.learns) == (None, "random", False)
    with pytest.raises(InvalidRequest, match=r"--search mine: must be single, .* needs that package where the service"):
        registry.method_of("mine")
    written(site, "good-search", METHOD, "mine")
    assert registry.method_of("mine").package == "good-search 1.0"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ({"type": "int", "default": 3}, 2.5, "must be a whole number"),
        ({"type": "int", "default": 3}, True, "must be a whole number"),
        ({"type": "int", "default": 3}, 2**64, "must fit into 64 bits"),
        ({"type": "float", "default": 3}, float("nan"), ""),
        ({"type": "float", "default": 3, "least": 1}, float("nan"), "must be at least 1"),
        ({"type": "bool", "default": False}, 1, "must be true or false"),
        ({"type": "str", "default": "a", "choices": ("a", "b")}, "c", "must be one of a, b"),
        ({"type": "str", "default": "a"}, None, "must be text"),
    ],
)
def test_an_option_says_what_it_cannot_be(option: dict[str, object], value: object, said: str) -> None:
    assert MethodOption.model_validate({"name": "x", **option}).refuse(value) == said  # type: ignore[arg-type]


def test_a_default_is_held_to_its_own_bounds() -> None:
    with pytest.raises(ValueError, match="the default 3 of x must be at most 2"):
        MethodOption(name="x", type="int", default=3, most=2)
