"""Start agents for the service: processes that run trainings and access files as a certain Unix user.

    python -P -m kernel_backend.spawn_helper --service-user daylight --group users

No other part of Daylight runs as root, and this part does nothing else.

It listens on a Unix socket that only the service's user can open. A request is one message: a user's name, and a
descriptor that becomes the agent's stdin. Nothing else of a request reaches the agent: its command and its environment
are fixed when this program starts. Standard library only, and short: read it before you run it.
"""

from __future__ import annotations

import argparse
import grp
import logging
import os
import pwd
import signal
import socket
import stat
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

NAME_LIMIT = 256  # bytes of a request
REQUEST_S = 5.0  # for a client to send its request; until then no other is served
NOBODY = 65534
# Variables that agents inherit; those of Slurm lead its commands to their cluster, and trainings keep remote data as
# the last two say.
KEPT = (
    *("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH", "SLURM_CONF", "SLURM_CONF_SERVER"),
    *("DAYLIGHT_CACHE", "DAYLIGHT_CACHE_GB"),
)
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid

_log = logging.getLogger("daylight.spawn_helper")


class Rules(NamedTuple):
    """Rules for starting agents: which users are permitted, and the agents' command and environment."""

    service_uid: int
    least_uid: int
    groups: Mapping[str, int]  # name -> gid: users must be in one of these groups; empty: no restriction
    command: tuple[str, ...]
    environment: Mapping[str, str]


class Refused(Exception):
    """Error: no agent may be started, with the reason."""


def account(name: str, rules: Rules) -> pwd.struct_passwd:
    """Return the Unix account of the user `name`; raise Refused if no agent may be started for it."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a null character
        raise Refused(f"there is no account {name!r} on this machine") from None
    if found.pw_name != name or found.pw_uid in (0, NOBODY, rules.service_uid) or found.pw_uid < rules.least_uid:
        raise Refused(f"{name!r} is an account of the system: nothing is run as it")
    memberships = os.getgrouplist(name, found.pw_gid)
    if 0 in memberships:
        raise Refused(f"{name!r} is in the group of root: nothing is run as it")
    if rules.groups and not set(rules.groups.values()) & set(memberships):
        raise Refused(f"{name!r} is in none of the groups {', '.join(rules.groups)}")
    return found


def serve(listening: socket.socket, rules: Rules) -> NoReturn:
    """Answer requests to start agents, one at a time, without end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps agents
    while True:
        connection, _ = listening.accept()
        with connection:
            try:
                connection.settimeout(REQUEST_S)
                answer = _answer(connection, rules)
            except Refused as error:
                _log.warning("refused: %s", error)
                answer = f"refused: {error}"
            except OSError as error:
                _log.warning("a request could not be answered: %s", error)
                answer = f"failed: {error.strerror or error}"
            try:
                connection.send(answer.encode(errors="replace"))
            except OSError:
                _log.info("the caller has disconnected")


def _answer(connection: socket.socket, rules: Rules) -> str:
    pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if uid != rules.service_uid:
        raise Refused(f"process {pid} of user {uid} is not the service")
    data, descriptors, flags, _ = socket.recv_fds(connection, NAME_LIMIT, 1)
    try:
        if len(descriptors) != 1 or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise Refused("a request is a name and one descriptor")
        if not stat.S_ISSOCK(os.fstat(descriptors[0]).st_mode):
            raise Refused("the descriptor of a request is a socket")
        try:
            found = account(data.decode("ascii"), rules)
        except UnicodeDecodeError:
            raise Refused(f"{data!r} is no name") from None
        child = os.fork()
        if child == 0:
            _become(found, descriptors[0], rules)
        _log.info("agent of %s (uid %d) started: process %d", found.pw_name, found.pw_uid, child)
        return "started"
    finally:
        for each in descriptors:
            os.close(each)


def _become(user: pwd.struct_passwd, descriptor: int, rules: Rules) -> NoReturn:
    """Drop all of root's privileges for good, and execute the user's agent; any failure ends the process."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(descriptor, 0)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)  # the output of a user's process must not be written to root's log
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.initgroups(user.pw_name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        if set(os.getresuid()) != {user.pw_uid} or set(os.getresgid()) != {user.pw_gid}:
            os._exit(1)
        os.umask(0o077)
        os.chdir(user.pw_dir)  # done as the user, so that root follows none of their links
        own = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell or "/bin/sh"}
        os.execve(rules.command[0], rules.command, {**rules.environment, **own})
    except BaseException:
        os._exit(1)


def listen(path: Path, service_uid: int) -> socket.socket:
    """Return a listening socket that only the service's user can open; raise Refused if others could replace it."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o755)  # the service must have access, whatever the umask
    folder = path.parent.lstat()
    if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid() or folder.st_mode & 0o022:
        raise Refused(f"{path.parent} must be a folder that nobody but its owner, root, can write to")
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.umask(0o177)
    listening.bind(str(path))
    os.umask(0o077)
    os.chown(path, service_uid, -1)
    listening.listen(64)
    return listening


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Serve until terminated; exit with a message if it cannot start."""
    parser = argparse.ArgumentParser(prog="daylight-spawn-helper", description=__doc__.partition("\n")[0])
    parser.add_argument("--socket", type=Path, default=Path("/run/daylight/spawn.sock"), help="where it listens")
    parser.add_argument("--service-user", required=True, help="who alone may ask: the user that the service runs as")
    parser.add_argument("--group", action="append", default=[], help="run for members of this group only; repeatable")
    parser.add_argument("--least-uid", type=int, default=1000, help="accounts below are the system's (default 1000)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of agents, which all users can run")
    asked = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        service = pwd.getpwnam(asked.service_user).pw_uid
        if os.geteuid() != 0 or service == 0:
            raise Refused("it is run by root, for a service that is not root's")
        groups = {name: grp.getgrnam(name).gr_gid for name in asked.group}
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        command = (asked.python, "-P", "-m", "kernel_backend.agent")
        rules = Rules(service, asked.least_uid, groups, command, environment)
        listening = listen(asked.socket, service)
    except (KeyError, Refused, OSError) as error:
        sys.exit(f"daylight-spawn-helper: {error}")
    _log.info("starts agents for user %s, at %s", asked.service_user, asked.socket)
    serve(listening, rules)


if __name__ == "__main__":
    main()
