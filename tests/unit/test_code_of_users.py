"""Test that each place which starts a process or runs code says whose code it is, as whom, and in which environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROCESSES = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "multiprocessing": {"Process", "Pool"},
    "os": {"fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp"},
}
CODE = {
    "pickle": {"load", "loads", "Unpickler"},
    "runpy": {"run_module", "run_path"},
    "importlib": {"import_module"},
    "torch": {"load"},
}
BARE = {"exec", "eval", "__import__", "import_module"}

# Where `slots = none`, tests/api/test_closed_service.py and tests/environments/test_closed_environments.py try each.
SERVICE = "as the service (not at all if it is closed), or as its owner's agent; without the credentials of the service"
OURS = "no code of users"
RANK = "in a rank, as the launcher's user, with its environment"
LAUNCHER = "as the launcher's user, with its environment"
OWN = "in the user's own process: a kernel or a terminal"
ADMIN = "an admin's program on a machine, as the admin"

WHOSE = {
    "kernel_backend/cli/doctor.py": OWN,
    "kernel_backend/cli/submit.py": OURS,
    "kernel_backend/cluster_setup/invite.py": ADMIN,
    "kernel_backend/commands/predictions/verbs.py": OURS,
    "kernel_backend/commands/predictions/write.py": f"{OURS}: pyarrow",
    "kernel_backend/cluster_setup/machine.py": ADMIN,
    "kernel_backend/cluster_setup/system.py": ADMIN,
    "kernel_backend/confined/__init__.py": f"{OURS}: it is parsed, within limits",
    "kernel_backend/confined/__main__.py": f"{OURS}: it is parsed, within limits",
    "kernel_backend/definition/lambdas.py": f"{OWN}: a lambda of a program whose model is loaded",
    "kernel_backend/discovery.py": f"{OURS}: the service, as its user",
    "kernel_backend/engines/kubernetes/holder.py": "a launcher in the pod, with the pod's environment",
    "kernel_backend/engines/local.py": SERVICE,
    "kernel_backend/engines/slurm/check.py": "a probe by an admin's order, or as its owner's agent",
    "kernel_backend/engines/slurm/commands.py": "Slurm's commands; jobs have the service's environment",
    "kernel_backend/engines/slurm/holder.py": "a step of a Slurm job, with the job's environment",
    "kernel_backend/environments/bounded_process.py": SERVICE,
    "kernel_backend/export/portable/mlflow_model.py": f"{OWN}: an exported model, of whoever loads it",
    "kernel_backend/export/portable/model.py": f"{OWN}: an exported model, of whoever loads it",
    "kernel_backend/export/proof.py": f"{OWN}, to load what it has just exported",
    "kernel_backend/export/structure.py": f"{OURS}: modules that the model uses are imported already",
    "kernel_backend/launch/cold.py": LAUNCHER,
    "kernel_backend/launch/forkserver/__main__.py": f"{OURS}: installed frameworks",
    "kernel_backend/launch/forkserver/child.py": LAUNCHER,
    "kernel_backend/launch/forkserver/client.py": LAUNCHER,
    "kernel_backend/launch/forkserver/server.py": LAUNCHER,
    "kernel_backend/launch/search_process.py": SERVICE,
    "kernel_backend/model/search/registry.py": f"{OURS}: search methods that an admin has installed",
    "kernel_backend/runner/batch_size/find.py": RANK,
    "kernel_backend/runner/context.py": f"{RANK}: the module of its training form",
    "kernel_backend/runner/data/inputs.py": f"{OURS}: it fetches data with the rank's credentials",
    "kernel_backend/runner/data/remote_error.py": RANK,
    "kernel_backend/runner/definition/load.py": RANK,
    "kernel_backend/runner/definition/state_check.py": RANK,
    "kernel_backend/runner/forms/command/process.py": RANK,
    "kernel_backend/runner/forms/lightning/api.py": RANK,
    "kernel_backend/runner/forms/plain.py": RANK,
    "kernel_backend/runner/forms/prediction/model.py": RANK,
    "kernel_backend/runner/forms/prediction/rows.py": f"{OURS}: pandas and pyarrow",
    "kernel_backend/runner/forms/script/program.py": RANK,
    "kernel_backend/runner/forms/script/project.py": RANK,
    "kernel_backend/runner/forms/script/rehearsal/rehearsal.py": RANK,
    "kernel_backend/runner/forms/script/start.py": RANK,
    "kernel_backend/runner/forms/script/state/attributes.py": RANK,
    "kernel_backend/runner/forms/script/state/reading.py": RANK,
    "kernel_backend/trained/skeleton.py": RANK,
    "kernel_backend/runner/ranks/backends.py": RANK,
    "kernel_backend/runner/ranks/gather.py": RANK,
    "kernel_backend/runner/past/isolation.py": RANK,
    "kernel_backend/runner/past/namespace.py": f"{OURS}: a check of the kernel",
    "kernel_backend/snapshots/object_graph.py": f"{RANK}; {OWN}",
    "kernel_backend/snapshots/git.py": OWN,
    "kernel_backend/snapshots/loaded/__init__.py": OWN,
    "kernel_backend/spawn_helper.py": "an agent, as a user, with the few variables of KEPT",
    "jupyter_ext/magics/line.py": OWN,
    "jupyter_ext/submit/local.py": OWN,
    "jupyter_ext/values/awaited.py": OWN,
    "daylight/search.py": OURS,
}


def runs(tree: ast.AST) -> Iterator[str]:
    """Yield the expressions in a module that start a process, or run or unpickle code."""
    for node in ast.walk(tree):
        for called in (
            [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else ()
        ):
            module, _, name = ast.unparse(called).rpartition(".")
            known = name in (PROCESSES | CODE).get(module, ())
            family = module == "os" and name.startswith(("exec", "spawn"))
            child = name == "ProcessPoolExecutor" or (name in ("Process", "Pool") and "context" in module)
            if known or family or child or (not module and name in BARE) or name == "exec_module":
                yield ast.unparse(called)


def test_each_place_that_runs_code_has_its_line() -> None:
    sources = [each for room in ("kernel_backend", "jupyter_ext", "daylight") for each in (ROOT / room).rglob("*.py")]
    found = {str(each.relative_to(ROOT)) for each in sources if any(runs(ast.parse(each.read_text())))}
    assert found == WHOSE.keys(), "say whose code runs there, as whom, and in which environment"
