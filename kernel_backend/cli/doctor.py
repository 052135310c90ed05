"""Check the installation (`daylight doctor`), and advise how to fix each problem."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_backend import __version__, discovery
from kernel_backend.client import Client
from kernel_backend.commands.answer import FAILED, OK, Answer, Table
from kernel_backend.commands.verb import JSON, Call, Verb, argument
from kernel_backend.data.declared import is_url, named
from kernel_backend.environments import uv
from kernel_backend.errors import DaylightError, HomeUnusable, InvalidRequest
from kernel_backend.home import DATABASE, database_server, home
from kernel_backend.inputs.node_cache import CacheUse, NodeCache, cache_limit, cache_root
from kernel_backend.inputs.reach import tested
from kernel_backend.model.search.methods import SearchMethods
from kernel_backend.model.sizes import size
from kernel_backend.reconnect import remedy
from kernel_backend.text import counted

# The last two numbers: imported modules besides torch, and those of them that each process must compile again.
_TORCH = """
import json, os, sys, torch
site = os.path.dirname(os.path.dirname(torch.__file__))
beside = [each for each in list(sys.modules.values()) if (getattr(each, "__file__", None) or "").startswith(site)]
caches = [each.__cached__ for each in beside if getattr(each, "__cached__", None)]
lacking = sum(not os.path.exists(each) for each in caches)
print(json.dumps([torch.__version__, torch.cuda.is_available(), torch.cuda.device_count(), len(caches), lacking]))
"""
_HOROVOD = """
import json, horovod, horovod.torch as hvd
print(json.dumps([horovod.__version__, bool(hvd.gloo_built()), bool(hvd.nccl_built())]))
"""
_NAMESPACES = """
import json
from kernel_backend.runner.past.namespace import why_not
print(json.dumps([why_not()]))
"""


@dataclass(frozen=True)
class Finding:
    """Result of one check of the installation; `todo` says how to fix a problem, and is empty if there is none."""

    name: str
    ok: bool
    says: str
    todo: str = ""


def _doctor(call: Call) -> Answer:
    pool, data = call.arguments.pool, _url(call.arguments.data)
    if pool is not None:
        found = _pool(call.client, pool, data)
    else:
        found = [_data(data), _cache()] if data else list(findings())
    rows = [["ok" if each.ok else "!!", each.name, each.says, each.todo] for each in found]
    code = OK if all(finding.ok for finding in found) else FAILED
    body = {"findings": [asdict(finding) for finding in found]}
    return Answer(body, [Table(["", "what", "found", "what to do"], rows, "")], code=code)


def _pool(client: Client, name: str, data: str) -> list[Finding]:
    """Let the service check whether this interpreter can train in the pool `name`, and return the findings."""
    found = client.check_pool(name, sys.executable, data).findings
    return [Finding(each.name, each.ok, each.says, each.todo) for each in found]


def _url(data: str | None) -> str:
    """Return the URL in a value of `--data`, which is written as for a submission; "" for none."""
    url = "" if data is None else named(data)[1]
    if data is not None and not is_url(url):
        raise InvalidRequest(f"--data {data} is no URL: write it as for a submission, such as s3://bucket/train")
    return url


def _data(url: str) -> Finding:
    """List and read data of a store."""
    found = tested(url)
    return Finding("data", not found.todo, found.says, found.todo)


def _cache() -> Finding:
    """Look at the cache of remote data on this machine."""
    root = cache_root(os.environ)
    try:
        limit = cache_limit(os.environ)
        use = NodeCache(root).use() if root.exists() else CacheUse(0, 0, 0)
        disk = shutil.disk_usage(next(each for each in (root, *root.parents) if each.exists()))
    except InvalidRequest as error:
        says, _, todo = error.message.rpartition(": ")
        return Finding("cache", False, says, todo)
    most = f"of {size(limit)}" if limit is not None else "without a limit of its own"
    says = f"{root}: {counted(use.objects, 'object')}, {size(use.bytes)} {most}; its disk has {size(disk.free)} free"
    idle = f"daylight gc --cache removes {size(use.idle)} that no training uses" if use.idle else ""
    return Finding("cache", True, says, idle)


def findings() -> Iterator[Finding]:
    """Yield the result of each check of the installation, in order; the checks start nothing and change nothing."""
    yield Finding("daylight", True, __version__)
    yield _python()
    yield from _torch()
    yield _horovod()
    yield _namespaces()
    yield _server()
    yield _uv()
    yield _home()
    yield _cache()
    yield from _service()


def _python() -> Finding:
    new = sys.version_info >= (3, 11)
    says = f"{platform.python_version()} at {sys.executable}"
    return Finding("python", new, says, "" if new else "use Python 3.11 or newer")


def _torch() -> Iterator[Finding]:
    found = _probe(_TORCH)
    if isinstance(found, str):
        yield Finding("torch", False, found, "install torch into this Python: its ranks train with it")
        return
    name, cuda, count, modules, lacking = found
    yield Finding("torch", True, f"{name}, {f'{count} GPUs' if cuda else 'CPU'}")
    if lacking:
        says = f"{lacking} of the {modules} modules that torch imports are compiled again in each process"
        todo = f"{sys.executable} -m compileall -q {sysconfig.get_path('purelib')}: ranks then start in half the time"
        yield Finding("bytecode", True, says, todo)


def _horovod() -> Finding:
    found = _probe(_HOROVOD)
    if isinstance(found, str):
        return Finding("horovod", True, f"none ({found})", "nothing: ranks talk by torch; scripts/horovod builds it")
    name, gloo, nccl = found
    built = [word for word, there in (("gloo", gloo), ("nccl", nccl)) if there]
    todo = "" if built else "build it with gloo or nccl: scripts/horovod"
    return Finding("horovod", bool(built), f"{name} with {' and '.join(built) or 'nothing to talk by'}", todo)


def _namespaces() -> Finding:
    found = _probe(_NAMESPACES)
    why = found if isinstance(found, str) else found[0]
    if not why:
        return Finding("restarts", True, "a program that is run again sees its files as they were at its start")
    todo = "allow unprivileged user namespaces (Linux 5.12 or newer); in a container, its seccomp profile, too"
    return Finding("restarts", True, f"a program that is run again sees the files of that time: {why}", todo)


def _server() -> Finding:
    missing = [name for name in ("alembic", "sqlalchemy", "tornado", "traitlets") if not _installed(name)]
    if not missing:
        return Finding("server", True, "this Python can run the service")
    says = f"this Python lacks {', '.join(missing)}"
    other = home() / "server-python"
    if other.exists():
        return Finding("server", True, f"{says}; {other.read_text().strip()} runs the service")
    return Finding(
        "server", False, says, "install daylight[server] into this Python, or into another and daylight serve"
    )


def _uv() -> Finding:
    if uv.find() is None:
        return Finding(
            "uv", False, "none", "pip install uv: without it no environment is locked, and --env locked fails"
        )
    if uv.offline():
        return Finding("uv", True, "is to stay offline: new environments are not locked", "unset UV_OFFLINE")
    return Finding("uv", True, "locks environments, and builds them for --env locked")


def _home() -> Finding:
    try:
        folder = home()
    except HomeUnusable as error:
        return Finding("home", False, error.message, "set DAYLIGHT_HOME to a folder that you can write")
    if not os.access(folder, os.W_OK):
        return Finding("home", False, f"{folder} cannot be written", "make it writable, or set DAYLIGHT_HOME")
    private = folder.stat().st_mode & 0o077 == 0
    return Finding("home", private, str(folder), "" if private else f"chmod 700 {folder}: others can read it")


def _service() -> Iterator[Finding]:
    try:
        address = discovery.find()
    except HomeUnusable:  # reported by an earlier check
        return
    if address is None:
        yield Finding("service", True, "none runs", "nothing: the first use starts one, as does daylight serve")
        if server := database_server(home()):
            yield Finding("database", True, server, f"only the service opens it; to try it: psql '{server}'")
        return
    try:
        client = Client(lambda: address, patience=2)
        health, nodes, pools = client.health(), client.nodes(), client.pools()
    except DaylightError as error:
        log = Path(home() / "service.log")
        todo = f"see {log}; kill {address.pid} and use it again" if address.pid else remedy()
        yield Finding("service", False, error.message, todo)
        return
    same = health["version"] == __version__
    end = f"kill {address.pid}; running experiments go on" if address.pid else "ask the hub's admins for the same"
    where = f"at {address.url} (pid {address.pid})" if address.pid else f"of the hub, at {address.url}"
    yield Finding("service", same, f"{health['version']} {where}", "" if same else f"it is another version: {end}")
    if product := health.get("database"):  # an older service does not report it
        place = f", {database_server(home()) or home() / DATABASE}" if address.pid else ""
        yield Finding("database", True, f"{product}{place}")
    for note in health.get("notes", []):
        yield Finding("database", False, note, "daylight restore FILE brings a newer backup back, where there is one")
    slots = ", ".join(f"{node.name}: {node.slots} {node.kind}, {node.used} in use" for node in nodes)
    yield Finding("slots", any(node.slots for node in nodes), slots)
    if len(pools) > 1:
        usual = [pool.name for pool in pools if pool.default]
        wrong = [pool for pool in pools if pool.default and pool.problem]
        says = "; ".join(f"{pool.name}: {pool.problem}" for pool in wrong)
        named = f"{', '.join(pool.name for pool in pools)}; without --pool: {', '.join(usual)}"
        yield Finding("pools", not wrong, says or named, "name another by --pool" if wrong else "")
    if same:  # an older service lacks this route
        yield from _search_methods(client.search_methods())


def _search_methods(found: SearchMethods) -> Iterator[Finding]:
    added = [f"{method.name} ({method.package})" for method in found.methods if method.package]
    if added:
        yield Finding("search methods", True, f"of packages: {', '.join(added)}")
    for problem in found.problems:
        says, _, todo = problem.partition("; ")
        yield Finding("search methods", False, says, todo or "rename the method, or uninstall its package")


def _probe(code: str) -> list[str] | str:
    """Run `code` in a new interpreter; return the list that it prints as JSON, or a text on why it failed."""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


DOCTOR = Verb(
    "doctor",
    "check what works here, and say what to change",
    _doctor,
    (
        argument(
            "--pool",
            metavar="NAME",
            help="check this pool instead, by a probe on two of its nodes; takes up to two minutes (admins)",
        ),
        argument(
            "--data",
            metavar="URL",
            help="check instead whether this machine reaches data of a store, such as s3://bucket/train, and how fast; "
            "with --pool, whether those nodes do",
        ),
        JSON,
    ),
    ("doctor", "doctor --pool gpu", "doctor --pool gpu --data s3://bucket/train", "doctor --json"),
    host="terminal",
    client=("check_pool",),
)
