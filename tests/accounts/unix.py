"""Provide real Unix accounts for a test: the spawn helper as root, a service without privileges, and two users."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernel_backend.client import Client
from kernel_backend.data.declared import declare
from kernel_backend.errors import DaylightError
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.snapshot import Piece, Snapshot
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.views.overview import Overview
from kernel_backend.snapshots.archive import pack
from tests.support.ports import free_ports
from tests.support.world import DEFINITION, NO_ENVIRONMENT, until

ROOT = Path(__file__).parents[2]


def needed() -> str:
    """Return an interpreter that all accounts can run; skip the test if accounts cannot be created, except in CI."""
    lacking = ""
    if os.geteuid() != 0:
        lacking = "Unix accounts are made by root"
    elif shutil.which("useradd") is None:
        lacking = "there is no useradd"
    else:
        ours = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        for python in (sys.executable, os.path.realpath(sys.executable), ours):
            if Path(python).exists() and _open_to_all(Path(python)) and _open_to_all(Path(os.path.realpath(python))):
                return python
        lacking = f"other users can run neither {sys.executable} nor {ours}"
    if os.environ.get("CI"):
        pytest.fail(f"no test of Unix accounts is possible here: {lacking}")
    pytest.skip(lacking)


def _opened(folder: Path, beside: Path) -> Path:
    """Return a folder that all accounts can read: this one, or a copy if it is in a private folder."""
    if _open_to_all(folder):
        return folder
    copy = beside / folder.name
    linked = subprocess.run(["cp", "-al", folder, copy], capture_output=True)  # at once, on one disk
    if linked.returncode != 0:
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-a", folder, copy], check=True)
    return copy


def _open_to_all(path: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (path, *path.parents))


class Accounts:
    """Users `leslie` and `dave` (their real names are unique), and the processes that run for them.

    `admin` is the name of an admin without an account, `pools` are the service's pools besides its own machine.
    """

    def __init__(self, python: str, admin: str = "", pools: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.python = python
        self.base = Path(tempfile.mkdtemp(prefix="daylight-accounts-"))
        self.base.chmod(0o755)
        (self.base / "home").mkdir(mode=0o755)
        # As for other tests: no environment of what is submitted is locked in the background.
        settings = self.base / "new-home" / ".config" / "uv" / "uv.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("offline = true\n")
        tag = secrets.token_hex(3)
        self.leslie, self.dave, self.service_user = (f"dl{tag}{letter}" for letter in "lds")
        for name in (self.leslie, self.dave, self.service_user):
            home = self.base / "home" / name
            made: list[str | Path] = ["useradd", "-m", "-k", self.base / "new-home", "-d", home, "-s", "/bin/sh", name]
            subprocess.run(made, check=True, capture_output=True)
            home.chmod(0o700)
        code = _opened(ROOT / "kernel_backend", self.base).parent
        libraries = _opened(Path(sysconfig.get_path("purelib")), self.base)
        self._program = _opened(Path(__file__).parent, self.base) / "serving.py"
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONPATH": f"{code}:{libraries}",
            "DAYLIGHT_SLOTS": "4",
        }
        self.helper_socket = self.base / "run" / "spawn.sock"
        self.home = Path(pwd.getpwnam(self.service_user).pw_dir) / "service"
        self._people = {
            secrets.token_hex(): {"name": name, "groups": ["lab"], "submits": True} for name in (self.leslie, self.dave)
        }
        if admin:
            self._people[secrets.token_hex()] = {"name": admin, "groups": [], "admin": True}
        (self._port,) = free_ports(1)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._make_home(pools or {})

    def user(self, name: str) -> pwd.struct_passwd:
        """Return the Unix account of a user."""
        return pwd.getpwnam(name)

    def area(self, name: str) -> Path:
        """Return Daylight's folder in a user's home."""
        return Path(self.user(name).pw_dir) / ".local/share/jupyter/daylight/hub"

    def start(self) -> None:
        """Start the helper and the service."""
        self.start_helper()
        self.start_service()

    def start_helper(self, *arguments: str) -> None:
        """Start the helper."""
        command = [self.python, "-P", "-m", "kernel_backend.spawn_helper", "--socket", str(self.helper_socket)]
        self._run("helper", [*command, "--service-user", self.service_user, *arguments])
        until(self.helper_socket.exists, "the helper listens")

    def start_service(self) -> None:
        """Start the service as a user without privileges."""
        command = [self.python, "-P", str(self._program), str(self.home)]
        self._run("service", [*command, str(self.helper_socket), str(self._port)], user=self.service_user)
        until(self._answers, f"the service answers; {self.log('service')}")

    def helper(self) -> psutil.Process:
        """Return the process of the helper."""
        return psutil.Process(self._running["helper"].pid)

    def kill(self, what: str) -> None:
        """Kill the helper or the service."""
        process = self._running.pop(what)
        process.kill()
        process.wait()

    def log(self, what: str) -> str:
        """Return the log of the helper or of the service."""
        path = self.base / f"{what}.log"
        return path.read_text() if path.exists() else ""

    def client(self, name: str) -> Client:
        """Return a client with a user's token."""
        (token,) = (token for token, person in self._people.items() if person["name"] == name)
        return Client.at(f"http://127.0.0.1:{self._port}", token, user=self.user(self.service_user).pw_uid)

    def submit(self, name: str, source: str = DEFINITION, data: Sequence[str] = (), **options: Any) -> int:
        """Submit a definition as a user, with declared data, and return the experiment's number.

        Its ranks use torch.distributed unless told otherwise, as those of Horovod poll all the time.
        """
        source = textwrap.dedent(source).strip() + "\n"
        usual = {"batch_size": 8, "slots": 2, "epochs": 2, "threads": 1, "backend": "torch"}
        config = {key: options.pop(key) for key in list(options) if key in Config.model_fields}
        declared = declare(data, self.base)
        snapshot = Snapshot(
            version="test",
            numerics=1,
            pieces=(Piece(cell=4, line=1, count=len(source.splitlines()), cell_line=2),),
            roles_from=1,
            environment=NO_ENVIRONMENT,
            data=declared.data,
        )
        described = snapshot.model_dump_json().encode()
        id, packed = pack({"definition.py": source.encode(), "snapshot.json": described, **declared.files})
        client = self.client(name)
        client.upload_snapshot(id, packed)
        asked = Submission(
            snapshot=id,
            config=Config.model_validate(usual | config),
            params=options | declared.inputs,
            python=self.python,
            cwd=self.user(name).pw_dir,
            again=True,
        )
        return client.submit(asked).experiment.number

    def ended(self, name: str, number: int) -> Overview:
        """Wait until an experiment has ended."""

        def look() -> Overview | None:
            found = self.client(name).experiment(number)
            return found if found.experiment.state in EXPERIMENT_ENDED else None

        return until(look, f"experiment {number} ends; {self.log('service')[-3000:]}")

    def reached(self, name: str, number: int, step: int) -> None:
        """Wait until an experiment's trial has reported a step."""
        until(
            lambda: self.client(name).experiment(number).trials[0].step >= step,
            f"#{number} reaches {step}; {self.log('service')[-3000:]}",
        )

    def processes(self, name: str, module: str = "") -> list[psutil.Process]:
        """Return the processes of a user whose command line has `module`."""
        uid, found = self.user(name).pw_uid, []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mine = process.uids().real == uid and process.status() != psutil.STATUS_ZOMBIE
                if mine and module in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def own_store(self, name: str, endpoint: str) -> None:
        """Let a user reach an object store, with the user's name as the access key."""
        folder = Path(self.user(name).pw_dir) / ".aws"
        folder.mkdir(mode=0o700)
        (folder / "credentials").write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = x\n")
        (folder / "config").write_text(f"[default]\nendpoint_url = {endpoint}\nregion = us-east-1\n")
        for path in (folder, *folder.iterdir()):
            os.chown(path, self.user(name).pw_uid, self.user(name).pw_gid)

    def as_user(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a user."""
        user = self.user(name)
        return subprocess.run(
            command, user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/", capture_output=True, text=True
        )

    def close(self) -> None:
        """End all processes, and delete the accounts."""
        for what in list(self._running):
            self.kill(what)
        for name in (self.leslie, self.dave, self.service_user):
            while left := self.processes(name):
                for process in left:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                psutil.wait_procs(left, timeout=5)
            subprocess.run(["userdel", "-f", name], check=False, capture_output=True)
        shutil.rmtree(self.base)

    def _make_home(self, pools: Mapping[str, Mapping[str, str]]) -> None:
        self.home.mkdir(mode=0o700)
        (self.home / "people.json").write_text(json.dumps(self._people))
        (self.home / "pools.json").write_text(json.dumps(pools))
        user = self.user(self.service_user)
        for path in (self.home, *self.home.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)

    def _run(self, what: str, command: list[str], user: str | None = None) -> None:
        who = self.user(user) if user else None
        as_whom: dict[str, Any] = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []} if who else {}
        home = {"HOME": who.pw_dir} if who else {"HOME": "/nonexistent"}
        with (self.base / f"{what}.log").open("ab") as log:
            self._running[what] = subprocess.Popen(
                command,
                env={**self.environment, **home},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                umask=0o077,
                start_new_session=True,
                **as_whom,
            )

    def _answers(self) -> bool:
        with contextlib.suppress(DaylightError):
            return bool(self.client(self.dave).experiments() or True)
        return False
