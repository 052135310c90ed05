"""Lock a recorded Python environment: each package by version and hash, or the reason why that is impossible."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from kernel_backend.environments import uv
from kernel_backend.errors import NoEnvironment
from kernel_backend.model.record import Record
from kernel_backend.model.snapshot import Environment

_UNKNOWN = re.compile(
    r"Because (?:there is no version of )?([\w.-]+?)(?:==\S+)? "
    r"(?:was not found|(?:has no usable wheels )?and you require)"
)


class Lock(Record):
    """Lock of an environment, from which the same environment can be built."""

    text: str  # requirements with hashes, for `pip install --require-hashes -r`
    files: dict[str, str] = {}  # name -> sha256 of a stored wheel, for distributions installed from a file
    pinned: dict[str, str] = {}  # name -> requirement by a commit, which has no hash
    unlocked: dict[str, str] = {}  # name -> why it cannot be locked

    def __len__(self) -> int:
        """Return the number of packages that are locked by hash."""
        return len(re.findall(r"^[\w.-]+==", self.text, re.MULTILINE)) + len(self.files)


def make(environment: Environment, python: Path, folder: Path, build: bool = True) -> Lock:
    """Return the lock of an environment, with hashes from the package indexes of `python`'s pip.

    `folder` is a working folder for uv. Without `build` no script of a package is run: those without a wheel are not
    locked. Takes seconds. Raises NoEnvironment if no index can be reached.
    """
    plan = requirements(environment)
    wanted, unlocked = dict(plan.wanted), dict(plan.unlocked)
    if not build:  # of a URL that is no wheel, uv would run the build script to learn what it is
        found = sources("\n".join(wanted.values()))
        unlocked |= {
            name: f"installed from {url}, which is no wheel" for name, url in found.items() if wanted.pop(name)
        }
    text = ""
    while wanted:
        try:
            text = _compile(wanted, environment.python, python, folder, build)
            break
        except NoEnvironment as error:
            unknown = [name for each in _UNKNOWN.findall(error.message) if (name := canonicalize_name(each)) in wanted]
            if not unknown or uv.offline(error.message):  # if offline, only a cache was searched
                raise NoEnvironment(f"the environment cannot be locked: {error.message}") from None
            for name in unknown:
                what = "" if build else "a wheel of "
                unlocked[name] = f"no index that pip is set up for has {what}{wanted.pop(name)}"
    text, bare = with_hashes(text, local_hashes(uv.find_links(python), wanted))
    unlocked |= dict.fromkeys(bare, "its index tells no digest of it")
    return Lock(text=text, files=plan.files, pinned=plan.pinned, unlocked=dict(sorted(unlocked.items())))


def sources(text: str) -> dict[str, str]:
    """Return the URLs that requirements name and that are no wheels, by package.

    Examples
    --------
    >>> sources("a==1.0\\nb @ https://host/b.tar.gz#sha256=ab\\nc @ https://host/c-1.0-py3-none-any.whl")
    {'b': 'https://host/b.tar.gz#sha256=ab'}
    """
    named = re.findall(r"^([\w.-]+) @ (\S+)", text, re.MULTILINE)
    return {canonicalize_name(name): url for name, url in named if not urlsplit(url).path.endswith(".whl")}


class Plan(Record):
    """Plan for locking an environment: each of its packages is a key of one of these mappings.

    `wanted` has the requirement to find in package indexes, `files` the digest of the wheel file from which the package
    was installed, `pinned` the URL and commit in version control, and `unlocked` the reason why locking is impossible.
    """

    wanted: dict[str, str] = {}  # name -> name==version, to be found in an index
    files: dict[str, str] = {}
    pinned: dict[str, str] = {}
    unlocked: dict[str, str] = {}


def requirements(environment: Environment) -> Plan:
    """Return the plan for locking each package; Daylight is left out, as its wheel is built from its own files."""
    wanted, files, pinned, unlocked = {}, {}, {}, {}
    for name, version in environment.distributions.items():
        url = environment.urls.get(name)
        if name == "daylight":
            continue
        if name in environment.editable:
            unlocked[name] = "editable: its sources travel in the snapshot"
        elif url is None:
            wanted[name] = f"{name}=={version}"
        elif "+" in url.partition(":")[0]:
            pinned[name] = f"{name} @ {url}"
        elif (digest := environment.origins[name]) == url:
            unlocked[name] = f"installed from {url}, of which no digest is known"
        elif url.startswith("file:"):
            files[name] = digest
        else:
            wanted[name] = f"{name} @ {url}"
    for name in environment.conda:
        if canonicalize_name(name) not in environment.distributions:
            unlocked[name] = "a conda package: recorded with its digest, and not built here"
    return Plan(wanted=wanted, files=files, pinned=pinned, unlocked=unlocked)


def _compile(wanted: Mapping[str, str], version: str, python: Path, folder: Path, build: bool) -> str:
    options = ["--no-deps", "--generate-hashes", "--no-header", "--no-annotate", *([] if build else ["--no-build"])]
    if not build or shutil.which(python) is None:  # it is on a machine that shares no path with this one
        options += ["--python-version", version, "--python", sys.executable]
    else:
        options += ["--python", str(python)]
    return uv.run("pip", "compile", *options, "-", folder=folder, python=python, stdin="\n".join(wanted.values()))


def local_hashes(folders: list[Path], wanted: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the sha256 digests of wheels in local folders, by `name==version`, since uv does not report them.

    Only wheels of the packages `wanted` (requirements by name of package) are included.
    """
    found: dict[str, list[str]] = {}
    for wheel in sorted(each for folder in folders for each in folder.glob("*.whl")):
        try:
            name, version, _, _ = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename:
            continue
        if wanted.get(name) == f"{name}=={version}":
            with wheel.open("rb") as file:
                found.setdefault(f"{name}=={version}", []).append(hashlib.file_digest(file, "sha256").hexdigest())
    return found


def with_hashes(text: str, known: Mapping[str, list[str]]) -> tuple[str, list[str]]:
    """Return a lock's text with the hashes in `known` added, and the names of packages that have no hash.

    Packages without a hash are left out of the text.
    """
    kept, bare = [], []
    for block in re.split(r"\n(?=\S)", text.strip()):
        requirement = block.partition(" \\")[0].strip()
        hashes = [digest for digest in known.get(requirement, []) if digest not in block]
        block = " \\\n".join([block, *(f"    --hash=sha256:{digest}" for digest in hashes)])
        if "--hash=" in block:
            kept.append(block)
        elif requirement:
            bare.append(re.split(r"[=\s]", requirement)[0])
    return "\n".join(kept) + "\n", bare
