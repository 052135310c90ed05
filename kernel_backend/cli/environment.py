"""`daylight env`: what an experiment ran with, and what that can be built from again."""

from __future__ import annotations

from argparse import Namespace

from kernel_backend.cli.output import print_json
from kernel_backend.cli.verb import OK, Verb, takes_json, takes_one
from kernel_backend.client import Client
from kernel_backend.errors import NoEnvironment
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.model.options import OptionParser
from kernel_backend.text import counted

_NOT_LOCKED = "not locked yet: that needs uv and a package index, and is tried at each submission (service.log)"
_FIRST = ("torch", "numpy", "horovod", "daylight")


def _env(options: Namespace) -> int:
    found = Client.connect().environment(options.reference.experiment)
    if options.json:
        print_json(found)
    elif not options.lock:
        print("\n".join(_lines(found)))
    elif found.lock is None:
        raise NoEnvironment(f"the environment of #{options.reference.experiment} is {_NOT_LOCKED}")
    else:
        print(found.lock, end="")
    return OK


def _lines(found: EnvironmentInfo) -> list[str]:
    known = found.recorded
    packages = known.distributions
    first = [f"{name} {packages[name]}" for name in _FIRST if name in packages]
    more = counted(len(packages) - len(first), "other package")
    lines = [
        f"environment {found.id[:12]}",
        f"  {known.implementation} {known.python} on {known.platform}",
        f"  {', '.join([*first, more])}",
        f"  {counted(known.cores, 'core')} of {known.cpu}"
        + (f", NVIDIA driver {known.driver}" if known.driver else ""),
    ]
    if known.conda:
        lines.append(f"  {counted(len(known.conda), 'conda package')}")
    if known.git_commit:
        lines.append(f"  git {known.git_commit[:12]}" + (", with changes" if known.git_dirty else ""))
    locked = f"{counted(found.locked, 'package')} locked by hash, and Daylight's own wheel"
    lines.append(f"  {locked if found.lock is not None else _NOT_LOCKED}")
    lines += [f"  not locked: {name}, {why}" for name, why in found.unlocked.items()]
    return [*lines, f"  built: {found.built}"] if found.built else lines


def _arguments(parser: OptionParser) -> None:
    takes_one(parser)
    parser.add_argument(
        "--lock", action="store_true", help="print the lock: requirements with hashes, as pip takes them"
    )
    takes_json(parser)


ENV = Verb("env", "show what it ran with, and the lock of that", _env, _arguments, ("env 12", "env 12 --lock"))
