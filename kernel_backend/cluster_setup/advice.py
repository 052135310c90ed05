"""Find known errors in the logs of Slurm and munge (its authentication service), and advise what to change."""

from __future__ import annotations

import re

_CLOCK = "set the clocks of both machines by NTP (timedatectl set-ntp true)"
_REJOIN = "write daylight cluster join again"
_PORTS = "open TCP ports 6817 and 6818 between the machines in the firewall"
_HEAD = "the head does not answer: start it, or open TCP ports 6817 and 6818 in its firewall"
# Patterns of log lines and the advice for each; the first that matches a line is used.
_ADVICE = (
    (r"credential.*(expired|rewound)|(expired|rewound) credential", _CLOCK),
    (r"(invalid|unauthorized) credential|security violation", f"its munge key is not the head's: {_REJOIN}"),
    (r"incompatible versions|protocol version", "install the same release of Slurm on all machines"),
    (r"address already in use", "another program has the port: end it, or the second slurmd"),
    (r"unable to determine this slurmd's nodename", f"its host name has changed: {_REJOIN}"),
    (r"contact slurm controller|fetch_config|connection refused|failed to load configs", _HEAD),
    (r"no route to host|connection timed out|network is unreachable", _PORTS),
    (r"low realmemory|low socket|low cpu", f"its hardware has changed: {_REJOIN}"),
    (r"cgroup", "this machine cannot make cgroups: set the cluster up without --cgroups"),
)


def advise(log: str) -> tuple[str, str] | None:
    """Return the newest line of a log that shows a known error, and advice on what to change; None without one."""
    for line in reversed(log.splitlines()):
        if "error" not in line and "fatal" not in line:
            continue
        said = line.partition("] ")[2] or line
        for pattern, todo in _ADVICE:
            if re.search(pattern, said, re.IGNORECASE):
                return said.strip(), todo
    return None
