"""Test the layers of imports, and that kernels and the service do not import packages which they do not need."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = ("kernel_backend", "jupyter_ext", "daylight")

# What each part may import besides itself. A part that touches the world imports records and decisions, and no other
# part that does.
MODEL = {"model", "definition", "spec", "routes", "secret_scan"}
DECISIONS = {"search", "scheduler", "lifecycle", "differences"}
SEAMS = {"store", "artifacts", "checkpoints", "snapshots", "data", "environments", "engines", "launch", "identity"}
TOOLS = {"durable", "fairness", "installed_code", "retry", "tail", "time_limit"}  # of the standard library alone
PARTS: dict[str, set[str]] = {
    "model": set(),
    "definition": {"model"},
    "spec": {"model", "definition"},
    "routes": {"model", "spec"},
    "secret_scan": {"model"},
    "home": MODEL,
    "devices": MODEL,
    "text": MODEL,
    "overlay": set(),
    "parent_death": set(),
    "durable": set(),
    "installed_code": set(),
    "tail": set(),
    "time_limit": set(),
    "fairness": set(),
    "retry": set(),
    "process_identity": set(),
    "network": MODEL,
    "reconnect": MODEL | TOOLS,
    "peers": MODEL,
    "confined": MODEL,
    "service_log": set(),
    "discovery": MODEL | TOOLS | {"home", "process_identity"},
    "backup": MODEL | TOOLS | {"home", "discovery", "store"},
    **dict.fromkeys(DECISIONS, MODEL),
    **dict.fromkeys(SEAMS, MODEL | DECISIONS | TOOLS | {"home", "devices", "overlay"}),
    "environments": MODEL | TOOLS | {"home", "snapshots"},  # another interpreter is recorded as our own is
    "inputs": MODEL | TOOLS | {"data", "differences", "parent_death"},
    "engines": MODEL | TOOLS | {"home", "devices", "launch", "parent_death"},
    # A launcher posts what its ranks report, and says itself how long they made no progress.
    "launch": MODEL
    | TOOLS
    | {"home", "devices", "network", "client", "parent_death", "process_identity", "text", "discovery"},
    "staging": MODEL | TOOLS | {"home", "client", "launch", "snapshots", "workspaces", "artifacts", "environments"},
    # What is done for a user with several seams at once: by the service itself, or by the user's agent.
    "workspaces": MODEL | {"home", "artifacts", "environments", "launch", "snapshots"},
    "agent": MODEL | SEAMS | {"home", "workspaces"},
    "unix_users": MODEL | SEAMS | TOOLS | {"devices", "workspaces", "agent"},
    "spawn_helper": set(),  # root runs it: nothing but the standard library
    # The verbs of the command line and of `%dl`: both are made from one table.
    "commands": MODEL | TOOLS | {"text", "client", "differences", "snapshots", "data", "home", "trained"} | {"inputs"},
    "cluster_setup": MODEL | TOOLS | {"network"},
    "client": MODEL | {"home", "discovery", "reconnect", "peers"},
    "export": MODEL | {"client", "checkpoints", "snapshots", "trained", "text"},
    # What an experiment has trained, in the user's process.
    "trained": MODEL | {"client", "snapshots", "text", "secret_scan"},
    "service": MODEL | DECISIONS | SEAMS | TOOLS | {"home", "devices", "workspaces", "confined"},
    "api": MODEL | SEAMS | {"text", "service", "home", "peers", "fairness"},
    "launcher_server": MODEL | TOOLS | {"api", "service", "home", "network"},
    "runner": MODEL
    | TOOLS
    | {"artifacts", "checkpoints", "snapshots", "data", "home", "parent_death", "trained"}
    | {"inputs"},
    "service_database": MODEL | TOOLS | {"home", "discovery", "service", "store"},
    "parts": MODEL | SEAMS | {"workspaces", "unix_users"},
    "hub_mode": MODEL | {"identity", "discovery"},
    "jupyter_ext": MODEL
    | TOOLS
    | {"text", "differences", "search", "snapshots", "data", "client", "home", "discovery", "reconnect", "peers"}
    | {"commands", "trained"},
    "daylight": MODEL | {"jupyter_ext", "client", "snapshots", "artifacts", "checkpoints", "scheduler"},
    "cli": MODEL
    | {"text", "client", "commands", "home", "discovery", "environments", "app", "reconnect", "backup"}
    | {"cluster_setup", "data", "inputs"},
}
# Reached for only when a certain function is called, so that importing the part stays light.
LATER = {
    "jupyter_ext": {"artifacts", "checkpoints", "runner", "search"},  # job.load(), --local, job.to_optuna()
    # `search` imports numpy, and a package's record of a method shall not; `runner` trains `train(run)` in a kernel.
    "daylight": {"search", "runner"},
    "commands": {"checkpoints", "export"},  # a download reads a manifest; torch is imported for an export alone
    "trained": {"artifacts", "checkpoints"},  # a model is made as in a rank
    "cli": {"store"},  # db copy
    "launch": {"inputs"},  # a probe that reads remote data
}
KNOW_EVERYONE = {"app", "__main__"}
TORCH = {
    "kernel_backend.checkpoints.writer",
    "kernel_backend.trained.skeleton",
}  # and the runner: the only ones that import it when they are imported
SQL = {"kernel_backend.store", "kernel_backend.app", "kernel_backend.service_database"}
# What a Jupyter server loads, and a kernel never does.
SERVER_EXTENSION = {f"jupyter_ext.server.{name}" for name in ("extension", "finder", "handlers", "proxy", "relay")}


def part(module: str) -> str:
    """Return the part in PARTS to which one of our modules belongs."""
    top, *rest = module.split(".")
    if top != "kernel_backend":
        return top
    return "model" if not rest or rest[0] in ("model", "errors", "printable") else rest[0]


def name(path: Path) -> str:
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return dotted.removesuffix(".__init__")


FILES = {
    name(path): path
    for path in [
        *ROOT.glob("daylight/**/*.py"),
        *ROOT.glob("kernel_backend/**/*.py"),
        *ROOT.glob("jupyter_ext/**/*.py"),
    ]
}


@functools.cache
def tree(module: str) -> ast.Module:
    """Return the syntax tree of one of FILES: parsed when first used, since each test process collects this module."""
    path = FILES[module]
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def imports(module: str, *, everywhere: bool) -> frozenset[str]:
    """Return the dotted names that a module imports at its level or, with `everywhere`, also within functions."""
    return frozenset(imported(tree(module), everywhere=everywhere))


def imported(node: ast.AST, *, everywhere: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: write the import in full"
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield inner if inner in FILES else str(child.module)
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            yield from imported(child, everywhere=everywhere) if everywhere else ()
        elif everywhere or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imported(child, everywhere=everywhere)


def ours(module: str, *, everywhere: bool) -> set[str]:
    found = imports(module, everywhere=everywhere)
    return {each for each in found if each.split(".")[0] in OURS}


def reached(module: str) -> set[str]:
    """Return our modules that are loaded when a module is imported, itself included."""
    found: set[str] = set()
    left = [module]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += ours(each, everywhere=False)
    return found


def test_every_module_belongs_to_a_part() -> None:
    without = {module for module in FILES if part(module) not in PARTS.keys() | KNOW_EVERYONE}
    assert not without, "add them to PARTS and to docs/explanation/architecture.md"


def test_imports_point_up() -> None:
    wrong = {module: found for module in FILES if (found := imported_from_above(module))}
    assert not wrong, "PARTS says what each part may import"


def imported_from_above(module: str) -> set[str]:
    """Return our modules that a module imports and its part may not."""
    mine = part(module)
    if mine in KNOW_EVERYONE:
        return set()
    allowed = PARTS.get(mine, set()) | {mine}
    wrong = {each for each in ours(module, everywhere=False) if part(each) not in allowed}
    allowed |= LATER.get(mine, set())
    return wrong | {each for each in ours(module, everywhere=True) if part(each) not in allowed}


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: ours(module, everywhere=False) - {module} for module in FILES}
    order = list(TopologicalSorter(graph).static_order())
    assert set(FILES) <= set(order)


def test_no_siblings_in_a_package_import_each_other_in_a_circle() -> None:
    """A package's files and subpackages form a graph without cycles; imports for types alone count as well."""
    graphs: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for module in FILES:
        for other in ours(module, everywhere=True) - {module}:
            a, b = module.split("."), other.split(".")
            shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
            if shared is not None:  # else one is the package of the other
                graphs.setdefault(tuple(a[:shared]), {}).setdefault(a[shared], set()).add(b[shared])
    for graph in graphs.values():
        list(TopologicalSorter(graph).static_order())
    assert len(graphs) > 20


def test_no_folder_holds_more_than_25_modules() -> None:
    count = Counter(path.parent for path in ROOT.glob("kernel_backend/**/*.py") if path.name != "__init__.py")
    count += Counter(path.parent for path in ROOT.glob("jupyter_ext/**/*.py") if path.name != "__init__.py")
    del count[ROOT / "kernel_backend/store/migrations/versions"]  # a module for each change of the tables
    assert max(count.values()) <= 25, count.most_common(3)


def test_no_parts_import_each_other_in_a_circle() -> None:
    """Imports within functions count as well; a folder and one inside it are of the same part."""
    graph: dict[str, set[str]] = {}
    for module in FILES:
        graph.setdefault(part(module), set()).update(part(each) for each in ours(module, everywhere=True))
    order = list(TopologicalSorter({mine: others - {mine} for mine, others in graph.items()}).static_order())
    assert set(graph) <= set(order)


def test_torch_and_databases_are_imported_only_where_they_are_at_home() -> None:
    torch = {module for module in FILES if tops(module, everywhere=False) & {"torch", "horovod"}}
    assert {module for module in torch if part(module) not in ("runner", "export")} == TORCH
    databases = {module for module in FILES if tops(module, everywhere=False) & {"sqlalchemy", "alembic"}}
    assert not {module for module in databases if not module.startswith(tuple(SQL))}


def tops(module: str, *, everywhere: bool) -> set[str]:
    """Return the packages of which a module imports something."""
    return {each.split(".")[0] for each in imports(module, everywhere=everywhere)}


def test_of_the_notebooks_side_only_the_server_extension_knows_jupyters_server() -> None:
    others = {module for module in FILES if part(module) in ("jupyter_ext", "daylight")} - SERVER_EXTENSION
    assert not {module for module in others if tops(module, everywhere=True) & {"tornado", "jupyter_server"}}
    assert not {module for module in others if imports(module, everywhere=True) & SERVER_EXTENSION}


def test_only_the_client_and_the_server_extensions_proxy_speak_http_to_the_service() -> None:
    def speaks(module: str, *libraries: str) -> bool:
        return any(each.startswith(libraries) for each in imports(module, everywhere=True))

    clients = {"kernel_backend.client.conversation", "kernel_backend.client.http_library"}
    assert {m for m in FILES if speaks(m, "httpx", "websockets")} == clients
    tornados = {m for m in FILES if speaks(m, "tornado.httpclient", "tornado.simple_httpclient", "urllib.request")}
    callers = {m for m in FILES if "websocket_connect" in ast.dump(tree(m))}
    others = {"kernel_backend.identity.hub_api", "kernel_backend.service.outbox.http"}  # they ask a hub, and webhooks
    assert tornados | callers == {"jupyter_ext.server.proxy"} | others


def loaded(*modules: str) -> set[str]:
    """Return the top-level packages that a new interpreter has loaded after importing these modules."""
    code = f"import {', '.join(modules)}, sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_service_holds_no_torch() -> None:
    assert not loaded("kernel_backend.app") & {"torch", "horovod", "scipy", "optuna", "IPython", "jupyterhub"}


def test_a_kernel_holds_neither_torch_nor_a_database() -> None:
    heavy = {"torch", "horovod", "sqlalchemy", "alembic", "tornado", "numpy", "pandas", "matplotlib", "jupyter_server"}
    heavy |= {"jupyterhub"}
    assert not loaded("daylight", "jupyter_ext.magics.magics") & heavy


def test_the_record_of_a_search_method_needs_no_numpy() -> None:
    """A kernel imports the packages of requested methods, but needs only their records."""
    assert "numpy" not in loaded("daylight.search")


def test_a_jupyter_server_holds_neither_torch_nor_a_database() -> None:
    heavy = {"torch", "horovod", "sqlalchemy", "alembic", "numpy", "pandas", "matplotlib", "IPython"}
    assert not loaded("jupyter_ext.server.extension") & heavy


def test_records_need_only_the_standard_library_and_pydantic() -> None:
    allowed = {"pydantic", "pydantic_core", "kernel_backend", *sys.stdlib_module_names}
    for module in FILES:
        if part(module) in MODEL:
            assert {each.split(".")[0] for each in imports(module, everywhere=True)} <= allowed, module


def test_what_root_runs_needs_only_the_standard_library() -> None:
    found = {each.split(".")[0] for each in imports("kernel_backend.spawn_helper", everywhere=True)}
    assert found <= set(sys.stdlib_module_names)


def test_neither_the_service_nor_an_agent_unpickles_or_evaluates_what_the_other_says() -> None:
    for module in FILES:
        if part(module) in ("agent", "unix_users", "workspaces"):
            found = {each.split(".")[0] for each in imports(module, everywhere=True)}
            assert not found & {"pickle", "marshal", "shelve", "cloudpickle", "torch"}, module
            called = {node.id for node in ast.walk(tree(module)) if isinstance(node, ast.Name)}
            assert not called & {"eval", "exec", "compile", "__import__"}, module
