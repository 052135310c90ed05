"""Define the verb (subcommand) `cluster`, which sets up bare machines as a small Slurm cluster and maintains it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from getpass import getpass

from kernel_backend.cluster_setup import head, invite, member, upkeep
from kernel_backend.cluster_setup.invitation import LASTS_S
from kernel_backend.cluster_setup.local_state import Choices, read_cluster
from kernel_backend.commands.answer import FAILED, OK, Answer, Table, Text
from kernel_backend.commands.verb import JSON, Call, Verb, argument
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.values import nearest


def _cluster(call: Call) -> Answer:
    action, *names = call.arguments.words or ["status"]
    if action not in _ACTIONS:
        raise InvalidRequest(f"{call.command} has no {action}{nearest(action, _ACTIONS)}: {', '.join(_ACTIONS)}")
    wanted = _ARGUMENTS.get(action, "")
    if len(names) != bool(wanted):
        raise InvalidRequest(f"write {call.command} {action} {wanted}".rstrip())
    return _ACTIONS[action](call, *names)


def _init(call: Call) -> Answer:
    choices = _choices(call)
    cluster = head.set_up(choices, call.console.say)
    if choices.dry_run:
        return Answer(None)
    nodes = ", ".join(node.name for node in cluster.nodes)
    done = f"{cluster.head} ({cluster.address}) is the head of {cluster.name}; nodes: {nodes}"
    return Answer(None, [Text([done, *_invitation(cluster.address, cluster.head, cluster.name)])])


def _invite(call: Call) -> Answer:
    cluster = read_cluster()
    if cluster is None:
        raise InvalidRequest("this machine is no head of a cluster: daylight cluster init makes it one")
    return Answer(None, [Text(_invitation(cluster.address, cluster.head, cluster.name))])


def _invitation(address: str, host: str, name: str) -> list[str]:
    token = invite.invite(host)
    return [
        f"on each other machine, as root, within {LASTS_S / 60:.0f} minutes:",
        f"    daylight cluster join {address} --token {token}",
        "then here, as yourself:",
        f"    daylight pool add {name} --engine slurm",
    ]


def _join(call: Call, where: str) -> Answer:
    choices = _choices(call)
    if choices.dry_run:
        member.plan_join(where, choices, call.console.say)
        return Answer(None)
    joined = member.join(where, call.arguments.token or _read_token(), choices, call.console.say)
    return Answer(None, [Text([f"this machine is a node of {joined.name}, and {joined.head} can run jobs on it"])])


def _read_token() -> str:
    """Return the secret token for joining a cluster, read from a prompt on a terminal, else from standard input.

    It is no argument of the command, since other users of this machine can read command lines.
    """
    return (getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()


def _status(call: Call) -> Answer:
    found = upkeep.status()
    rows = [
        [node.name, node.state, node.cpus, node.memory_mib, node.gpus or "-", node.version, node.reason]
        for node in found.nodes
    ]
    body = {
        "cluster": found.name,
        "head": found.head,
        "nodes": [node._asdict() for node in found.nodes],
        "problems": [each._asdict() for each in found.problems],
    }
    nodes = Table(["node", "state", "cpus", "MiB", "GPUs", "Slurm", "reason"], rows, "Slurm lists no nodes")
    wrong = [Text([f"!! {each}" for each in found.problems])] if found.problems else []
    return Answer(body, [Text([f"{found.name}, head {found.head}"]), nodes, *wrong], code=FAILED if wrong else OK)


def _start(call: Call) -> Answer:
    return Answer(None, [Text([f"the daemons of {upkeep.start(call.console.say).name} run here"])])


def _remove(call: Call, name: str) -> Answer:
    cluster = head.remove(name, call.console.say)
    return Answer(None, [Text([f"{name} is no node of {cluster.name} any more"])])


def _leave(call: Call) -> Answer:
    dry_run = call.arguments.dry_run
    more = upkeep.leave(call.console.say, dry_run)
    return Answer(
        None, [] if dry_run else [Text(["this machine is in no cluster any more", *([more] if more else [])])]
    )


def _choices(call: Call) -> Choices:
    return Choices(**{name: getattr(call.arguments, name) for name in Choices._fields})


_ACTIONS: dict[str, Callable[..., Answer]] = {
    "init": _init,
    "join": _join,
    "status": _status,
    "start": _start,
    "invite": _invite,
    "remove": _remove,
    "leave": _leave,
}
_ARGUMENTS = {"join": "HEAD --token TOKEN", "remove": "NAME"}

CLUSTER = Verb(
    "cluster",
    "make a Slurm cluster of bare Linux machines, and show its nodes",
    _cluster,
    (
        argument(
            "words",
            nargs="*",
            metavar="ACTION",
            help="init: make this machine the head; join HEAD: make it a node; status: nodes, and what is wrong; "
            "start: start the daemons, after a reboot without systemd; invite: let more machines join; remove NAME: "
            "take a node out; leave: undo init or join (all but status: root)",
        ),
        argument("--address", metavar="ADDRESS", help="init: the head's address for the others [of the default route]"),
        argument("--name", metavar="NAME", help=f"init: name of the cluster [{head.NAME}]"),
        argument("--token", metavar="TOKEN", help="join: what init or invite has printed [read from standard input]"),
        argument("--install", action="store_true", help="init, join: install missing packages by apt or dnf"),
        argument("--force", action="store_true", help="init, join: replace a slurm.conf of others; a backup stays"),
        argument("--cgroups", action="store_true", help="init: confine jobs to their CPUs, memory and GPUs (systemd)"),
        argument("--dry-run", action="store_true", help="init, join, leave: print files and commands, change nothing"),
        JSON,
    ),
    ("cluster init", "cluster join 192.0.2.10 --token TOKEN", "cluster status", "cluster leave"),
    host="terminal",
)
