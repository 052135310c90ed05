"""Run a real slurmdbd with MariaDB for the Slurm of a test: accounts, QOS, limits, and sacct."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

PROGRAMS = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-install-db")
DAEMONS = ("mariadbd", "slurmdbd")  # in the order of their start
_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdPort={port}
SlurmUser={user}
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
MessageTimeout=5
"""
# For slurm.conf. Limits of associations and QOS hold, and a job without an account is refused.
_OF_SLURM = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge/socket
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
"""
_SMALL = ("--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M", "--skip-name-resolve")
_QUICK = ("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--performance-schema=0")


def configure(folder: Path, user: str, port: int) -> str:
    """Write slurmdbd's configuration, and create the database's folder; return the lines for slurm.conf."""
    conf = folder / "slurmdbd.conf"
    conf.touch(0o600)  # slurmdbd refuses one that others may read
    conf.write_text(_CONF.format(folder=folder, port=port, user=user))
    database = folder / "database"
    database.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(database, "mysql")
    words = [*_program("mariadb-install-db"), f"--datadir={database}/data", *_SMALL]
    words += ["--skip-test-db", "--auth-root-authentication-method=normal"]
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return _OF_SLURM.format(folder=folder, port=port)


def command(name: str, folder: Path) -> list[str]:
    """Return the command line of one of the daemons."""
    if name == "slurmdbd":
        return ["slurmdbd", "-D"]
    database = folder / "database"
    where = [f"--datadir={database}/data", f"--socket={socket(folder)}", f"--pid-file={database}/pid"]
    return [*_program("mariadbd"), *where, "--skip-networking", f"--log-error={folder}/mariadbd.log", *_SMALL, *_QUICK]


def socket(folder: Path) -> Path:
    """Return the path of the database's socket, which only its user and root can open."""
    return folder / "database" / "socket"


def wait_for(daemon: str, folder: Path, run: Callable[..., str]) -> Callable[[], bool]:
    """Return the condition that shows that a daemon has started; `run` runs a command of Slurm."""
    if daemon == "mariadbd":
        return socket(folder).exists
    return lambda: "Cluster" in run("sacctmgr", "-p", "list", "cluster", check=False)


def _program(name: str) -> list[str]:
    """Return the command line of a MariaDB program with the options that must come first; it does not run as root."""
    return [name, "--no-defaults", *(["--user=mysql"] if os.geteuid() == 0 else [])]
