"""Configure a JupyterHub: the service, its role, scopes for submitters and admins, and its URL for notebooks.

Imports only the standard library, as the hub imports it.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

NAME = "daylight"
SUBMIT, ADMIN, MONITOR = "custom:daylight:submit", "custom:daylight:admin", "custom:daylight:monitor"
USES = f"access:services!service={NAME}"
SCOPES = {
    SUBMIT: {"description": "Have trainings run by Daylight"},
    ADMIN: {
        "description": "Manage Daylight: quotas, queue, nodes, and what others have had run",
        "subscopes": [SUBMIT, MONITOR],
    },
    MONITOR: {"description": "Read the numbers of Daylight, as a monitoring system does"},
}
DB_URL = "DAYLIGHT_DB_URL"  # variable with the URL of the service's database
STOPS = "delete:servers"  # needed only if idle notebook servers may be stopped
SPAWN_HELPER = "/run/daylight/spawn.sock"  # default path of the spawn helper's socket
LOCAL = "http://127.0.0.1:10180"  # default URL of a service that the hub starts
IN_CLUSTER = "http://daylight.daylight.svc:10180"  # that of deploy/kubernetes
TOKEN = "DAYLIGHT_HUB_TOKEN"  # variable of the hub with the service's token, where the hub does not start it
START_S = 300  # for which the hub waits for the service: JupyterHub's 30 s are too few on a busy machine
LEAST_IDLE_S = 900.0  # shortest idle time, since the hub updates activity every five minutes
# Scopes of the service's token, and additional scopes of notebook servers' tokens.
READS = ["list:groups", "read:groups", "list:users", "read:users", "read:servers"]
OF_SERVERS = ["users:activity!user", "access:servers!server", USES, SUBMIT, ADMIN]


def service(
    home: str,
    url: str = LOCAL,
    *,
    slots: int | str | None = None,
    accounts: str | None = None,
    db_url: str | None = None,
    options: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return Daylight's entry for `c.JupyterHub.services`; the parameters are those of `daylight` below.

    `options` are further options of `daylight serve`, and `environment` has further environment variables of the
    service.
    """
    # The hub logs the command, and every user of the machine can read it: a URL may have a password.
    database = {DB_URL: db_url} if db_url else {}
    counted = [f"--slots={slots}"] if slots else []
    if accounts:
        options = [*options, f"--spawn-helper={SPAWN_HELPER}"]
    return {
        **({"user": accounts} if accounts else {}),
        "name": NAME,
        "url": url,
        "command": [sys.executable, "-P", "-m", "kernel_backend", "--hub", f"--home={home}", *counted, *options],
        "environment": {**database, **(environment or {})},
        "timeout": START_S,
        "oauth_client_allowed_scopes": [USES, SUBMIT, ADMIN],
        "oauth_no_confirm": True,
        "display": True,
    }


def daylight(
    c: Any,
    home: str | None = None,
    url: str | None = None,
    *,
    address: str | None = None,
    users: Iterable[str] | None = None,
    groups: Iterable[str] | None = None,
    admins: Iterable[str] = (),
    slots: int | str | None = None,
    accounts: str | None = None,
    idle_servers: float | None = None,
    db_url: str | None = None,
    options: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> None:
    """Add Daylight as a service to the hub's configuration `c`; call it once, after the settings that it extends.

    `home` is the folder of the service, which the hub starts. With KubeSpawner and no `url`, the service is that of
    deploy/kubernetes instead: a deployment of its own, with its own settings and the token in DAYLIGHT_HUB_TOKEN.

    All users may submit, unless `users` or `groups` restrict that; `admins` are users who may also manage the cluster.
    The service listens at `url`; `address` is its URL for notebook servers, if that differs. `accounts` is the name of
    the service's Unix user, for sites where trainings run as the Unix users who submit them. `db_url` is a database on
    PostgreSQL, such as postgresql:///daylight, in place of a SQLite file in `home`. Notebook servers that were
    idle for `idle_servers` seconds may be stopped if a request within a guarantee lacks slots; by default none is
    stopped. Raises ValueError if that time is shorter than the hub can measure, for an unknown Unix user, without a
    `home` for a service that the hub starts, and for settings of the service if the hub does not start it.
    """
    hub = c.JupyterHub
    deployed = url is None and _spawns_pods(hub)
    rights, own_options = list(READS), list(options)
    options = own_options
    if idle_servers is not None:
        if not idle_servers >= LEAST_IDLE_S:
            raise ValueError(
                f"idle_servers={idle_servers:g}: the hub hears of what is done in a server every five minutes, "
                f"so {LEAST_IDLE_S:g} seconds are the least"
            )
        rights.append(STOPS)
        options = [*options, f"--Daylight.idle_servers={idle_servers:g}"]
    if deployed:
        theirs = {"home": home, "slots": slots, "accounts": accounts, "db_url": db_url, "environment": environment}
        if given := [name for name, value in (theirs | {"options": own_options}).items() if value]:
            raise ValueError(f"{', '.join(given)}: with KubeSpawner the deployment of the service has these settings")
        url = IN_CLUSTER
        _deployed_service(hub)
    elif home is None:
        raise ValueError("home: name the folder of the service, which the hub starts")
    else:
        url = url or LOCAL
        started = service(
            home, url, slots=slots, accounts=accounts, db_url=db_url, options=options, environment=environment
        )
        _add(hub, "services", [started])
    everybody = users is None and groups is None
    roles = [
        {"name": f"{NAME}-service", "services": [NAME], "scopes": rights},
        {"name": f"{NAME}-admin", "users": sorted(admins), "scopes": [USES, ADMIN]},
        {"name": "server", "scopes": OF_SERVERS},
    ]
    if everybody:
        roles.append({"name": "user", "scopes": ["self", USES, SUBMIT]})
    else:
        who = {"users": sorted(users or ()), "groups": sorted(groups or ())}
        roles.append({"name": f"{NAME}-submit", **who, "scopes": [USES, SUBMIT]})
    _merge(hub, roles)
    _put(hub, "custom_scopes", SCOPES)
    where = {"DAYLIGHT_URL": _below(address or url, hub.get("base_url", "/"))}
    # Of a service in another pod no process can be looked at.
    _put(c.Spawner, "environment", where if deployed else where | {"DAYLIGHT_SERVICE_UID": str(_uid(accounts))})


def _spawns_pods(hub: Any) -> bool:
    """Return whether the hub's spawner is KubeSpawner, configured by name or as a class."""
    spawner = hub.get("spawner_class", "")
    names = [spawner] if isinstance(spawner, str) else [f"{each.__module__}.{each.__name__}" for each in spawner.mro()]
    return any("kubespawner" in name.lower() for name in names)


def _deployed_service(hub: Any) -> None:
    """Register the service that deploy/kubernetes runs in the hub's configuration, with its token from the environment.

    If the hub already has an entry for the service, with a token, settings that are missing there are added. Raises
    ValueError if there is neither such an entry nor DAYLIGHT_HUB_TOKEN.
    """
    present = hub.get("services", [])
    if hasattr(present, "get_value"):
        present = present.get_value([])
    entry: dict[str, Any] = {"name": NAME, "url": IN_CLUSTER, "oauth_client_allowed_scopes": [USES, SUBMIT, ADMIN]}
    entry |= {"oauth_no_confirm": True, "display": True}
    if theirs := next((each for each in present if each.get("name") == NAME), None):
        theirs.update({name: value for name, value in entry.items() if name not in theirs})
    elif token := os.environ.get(TOKEN):
        _add(hub, "services", [entry | {"api_token": token}])
    else:
        raise ValueError(f"{TOKEN}: set it to the token of the Secret daylight-hub, which the service has too")


def _uid(accounts: str | None) -> int:
    """Return the uid as which the service runs, so that notebook servers send their tokens to no other user's process.

    `accounts` names the Unix user; None means the hub's own user. Raises ValueError for an unknown user.
    """
    if accounts is None:
        return os.getuid()  # the hub's own user
    try:
        return pwd.getpwnam(accounts).pw_uid
    except KeyError:
        raise ValueError(
            f"accounts={accounts!r}: there is no such account on this machine: "
            f"useradd --system --create-home {accounts}"
        ) from None


def _merge(hub: Any, roles: list[dict[str, Any]]) -> None:
    """Add Daylight's roles to the hub's configuration; if a role exists, its scopes are extended."""
    present = hub.get("load_roles", [])
    if hasattr(present, "get_value"):  # a configuration value to which items were only added
        present = present.get_value([])
    theirs = {role["name"]: role for role in present}
    for role in roles:
        if role["name"] in theirs:
            known = theirs[role["name"]].setdefault("scopes", [])
            known.extend(scope for scope in role["scopes"] if scope not in known)
    _add(hub, "load_roles", [role for role in roles if role["name"] not in theirs])


def _add(section: Any, name: str, more: list[dict[str, Any]]) -> None:
    if name in section:
        section[name].extend(more)
    else:
        section[name] = more


def _put(section: Any, name: str, more: Mapping[str, Any]) -> None:
    if name in section:
        section[name].update(more)
    else:
        section[name] = dict(more)


def _below(url: str, base: str) -> str:
    """Return the base URL of the service's routes: scheme and host of `url`, then `<base>/services/<name>`.

    `base` is the hub's base path.
    """
    where = urlsplit(url)
    path = "/".join(part for part in (base.strip("/"), "services", NAME) if part)
    return f"{where.scheme}://{where.netloc}/{path}"
