"""Run the service as a program: read its settings, create its parts, and connect them."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from tornado.netutil import bind_sockets
from tornado.web import Application
from traitlets import Bool, Dict, Enum, Float, Int, TraitError, Unicode, default, validate
from traitlets.config import Application as Program

from kernel_backend import __version__, discovery
from kernel_backend.api.base import Activity
from kernel_backend.api.cluster_page import PAGES
from kernel_backend.api.connection_limits import LimitedServer, raise_file_limit
from kernel_backend.api.routes import application
from kernel_backend.engines.base import Engine
from kernel_backend.errors import Conflict, DaylightError, HomeUnusable, InvalidRequest
from kernel_backend.home import home as default_home
from kernel_backend.home import make_private, writing
from kernel_backend.identity.local import LocalIdentity
from kernel_backend.launcher_server import LauncherServer
from kernel_backend.model.cluster.idle import IDLE_ACTIONS, IdleRule
from kernel_backend.model.cluster.pools import NAME, Pool
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.disk import parse_age
from kernel_backend.model.sizes import parse_size
from kernel_backend.network import is_loopback
from kernel_backend.parts import of_one, of_unix_users
from kernel_backend.scheduler.rules import Rules
from kernel_backend.service.build import build
from kernel_backend.service.context import Context
from kernel_backend.service.notifier import wait_for
from kernel_backend.service.outbox.settings import OutboxSettings
from kernel_backend.service.service import Service
from kernel_backend.service_database import VARIABLE, open_store
from kernel_backend.service_log import ServiceLog
from kernel_backend.snapshots.archive import Archive
from kernel_backend.spec.limits import GANG
from kernel_backend.store.base import Store

if TYPE_CHECKING:
    from kernel_backend.hub_mode import UnderHub

FOUND_S = 1.0  # between checks that clients can find this process
IDLE_LOOK_S = 1.0  # between checks whether the service is idle
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")  # of a host
GOING_AWAY = 1001  # websocket close code, after which clients reconnect


_log = logging.getLogger(__name__)


class _Slots(Int[int | None, int | str | None]):
    """Number of slots, or the word `none`."""

    def validate(self, obj: Any, value: Any) -> Any:
        return None if value == "none" else super().validate(obj, value)

    def from_string(self, s: str) -> Any:
        return None if s == "none" else super().from_string(s)


class Daylight(OutboxSettings, Program):
    """Daylight's service program: one process per home, for a single user or for the users of a JupyterHub."""

    name = "daylight"
    description = __doc__
    version = __version__

    host = Unicode("127.0.0.1", help="address to listen on: this machine's own").tag(config=True)
    port = Int(0, min=0, max=65535, help="port to listen on; 0 takes a free one").tag(config=True)
    home = Unicode(help="folder of database, snapshots, checkpoints and logs (DAYLIGHT_HOME)").tag(config=True)
    db_url = Unicode(
        help=f"database: postgresql://user@host/name ({VARIABLE}); by default the SQLite file daylight.db in home"
    ).tag(config=True)
    db_wait = Float(60.0, min=0.0, help="seconds to wait at start for the database's server").tag(config=True)
    checkpoints = Unicode(help="folder or URL of all checkpoints; by default `checkpoints` in home").tag(config=True)
    idle_timeout = Float(3600.0, min=0.0, help="seconds without work after which the service ends").tag(config=True)
    slots = _Slots(
        0,
        min=0,
        max=GANG,
        allow_none=True,
        help="how many slots this machine offers; 0: as many as it has; none: it runs no code of users",
    ).tag(config=True)
    hub = Bool(help="be a service of the JupyterHub that runs this process; it says where to listen").tag(config=True)
    identity_age = Int(
        30, min=1, max=30, help="seconds for which the hub's answer about a user's identity is cached"
    ).tag(config=True)
    spawn_helper = Unicode(
        help="socket of the spawn helper (python -m kernel_backend.spawn_helper): trainings run as their Unix users"
    ).tag(config=True)
    directory_age = Float(30.0, min=0.1, help="seconds between looks at the hub's groups").tag(config=True)
    servers_age = Float(10.0, min=0.1, help="seconds between looks at the hub's notebook servers").tag(config=True)
    idle_servers = Float(
        0.0, min=0.0, help="seconds after which a hub's idle notebook server may be stopped for its slots; 0: never"
    ).tag(config=True)
    user_storage = Unicode(
        help="the most that each user's experiments may have on disk, such as 500GB, where no quota says otherwise"
    ).tag(config=True)

    idle_rule = Enum(
        IDLE_ACTIONS,
        default_value="",
        help="what happens to a gang that leaves its slots unused: notify its owner, or release the slots; by default "
        "nothing",
    ).tag(config=True)
    idle_after = Float(1800.0, min=60.0, help="seconds without use after which idle_rule applies").tag(config=True)
    idle_below = Float(0.05, min=0.0, max=1.0, help="fraction of a slot below which it is unused").tag(config=True)
    local_price = Float(
        None, allow_none=True, min=0.0, help="price of a slot-hour on this machine, in your currency; by default none"
    ).tag(config=True)
    pools = Dict(help='other pools than this machine, by name: {"gpu": {"engine": "slurm", "partition": "a100"}}').tag(
        config=True
    )
    default_pool = Unicode(
        help="pool of trainings that name none, or several as gpu,cloud: the first that can start them runs them; by "
        "default this machine"
    ).tag(config=True)
    launchers = Unicode(
        "0.0.0.0",
        help="address, perhaps with a port (10.0.0.1:7070), or name with a port, at which launchers on nodes of other "
        "pools reach it",
    ).tag(config=True)
    keep_logs = Unicode(
        help="how long logs stay after the end of an experiment, such as 90d; for ever by default. Curves are kept"
    ).tag(config=True)
    keep_reports = Unicode(
        help="how long all training reports stay after the end of an experiment, such as 365d; for ever by default. "
        "Then a thousand of each metric stay, and all validations"
    ).tag(config=True)

    aliases = {
        "host": "Daylight.host",
        "port": "Daylight.port",
        "home": "Daylight.home",
        "db-url": "Daylight.db_url",
        "checkpoints": "Daylight.checkpoints",
        "idle-timeout": "Daylight.idle_timeout",
        "slots": "Daylight.slots",
        "user-storage": "Daylight.user_storage",
        "default-pool": "Daylight.default_pool",
        "keep-logs": "Daylight.keep_logs",
        "keep-reports": "Daylight.keep_reports",
        "spawn-helper": "Daylight.spawn_helper",
        "log-level": "Application.log_level",
        "config": "Daylight.config_file",
    }
    flags = {"hub": ({"Daylight": {"hub": True}}, "be a service of the JupyterHub that runs this process")}
    config_file = Unicode(help="file of settings: c.Daylight.idle_timeout = 600").tag(config=True)

    @default("home")
    def _default_home(self) -> str:
        return str(default_home())

    @default("checkpoints")
    def _default_checkpoints(self) -> str:
        return str(Path(self.home).expanduser().absolute() / "checkpoints")

    @validate("checkpoints")
    def _valid_checkpoints(self, proposal: Any) -> str:
        where = str(proposal["value"])
        return where if "://" in where else str(Path(where).expanduser().absolute())  # ranks run in other folders

    @default("log_level")
    def _default_log_level(self) -> int:
        return logging.INFO

    @validate("host")
    def _valid_host(self, proposal: Any) -> str:
        host = str(proposal["value"])
        if not is_loopback(host):
            raise TraitError(
                f"host={host}: the service listens on this machine only (127.0.0.1); "
                "reach it from elsewhere through an SSH tunnel"
            )
        return host

    @validate("user_storage")
    def _valid_user_storage(self, proposal: Any) -> str:
        try:
            parse_size(proposal["value"])
        except InvalidRequest as error:
            raise TraitError(f"user_storage: {error}") from None
        return str(proposal["value"])

    @validate("keep_logs", "keep_reports")
    def _valid_age(self, proposal: Any) -> str:
        try:
            parse_age(proposal["value"])
        except InvalidRequest as error:
            raise TraitError(f"{proposal['trait'].name}: {error}") from None
        return str(proposal["value"])

    @validate("default_pool")
    def _valid_default_pool(self, proposal: Any) -> str:
        names = [name.strip() for name in str(proposal["value"]).split(",")]
        wrong = [name for name in names if not NAME.fullmatch(name)] if names != [""] else []
        if wrong:
            raise TraitError(f"default_pool={proposal['value']}: {wrong[0]!r} is no pool: write gpu or gpu,cloud")
        return ",".join(dict.fromkeys(names))

    @validate("launchers")
    def _valid_launchers(self, proposal: Any) -> str:
        address, _, port = str(proposal["value"]).partition(":")
        named = _NAME.fullmatch(address) is not None and not address.replace(".", "").isdigit()
        try:
            if not named:
                ipaddress.IPv4Address(address)
            usable = 0 < int(port) < 65536 if port or named else True
        except ValueError:
            usable = False
        if not usable:
            raise TraitError(
                f"launchers={proposal['value']}: an IPv4 address of this machine, such as 10.0.0.1:7070, "
                "or a name that leads to it, with a port, such as daylight.daylight.svc:7070"
            )
        return str(proposal["value"])

    def initialize(self, argv: Sequence[str] | None = None) -> None:
        """Read options from the command line and from `config_file`; the command line takes precedence."""
        self.parse_command_line(argv)  # type: ignore[arg-type]
        if self.config_file:
            if not Path(self.config_file).is_file():
                raise TraitError(f"there is no file {self.config_file}")
            typed = self.cli_config
            self.load_config_file(self.config_file)
            self.update_config(typed)
        if self.spawn_helper and not self.hub:
            raise TraitError(f"spawn_helper={self.spawn_helper}: only a hub's users are accounts; add --hub")
        if self.spawn_helper and self.trait_has_value("checkpoints") and "://" not in self.checkpoints:
            raise TraitError(
                f"checkpoints={self.checkpoints}: with a spawn helper checkpoints lie in the areas of their owners; "
                "leave it out, or name a store such as s3://bucket/runs"
            )

    def start(self) -> None:
        """Serve until stopped or idle; return at once if another process serves this home directory."""
        home = Path(self.home).expanduser().absolute()
        with writing(home):
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ["DAYLIGHT_HOME"] = str(home)  # inherited by launchers
        if self.slots:
            os.environ["DAYLIGHT_SLOTS"] = str(self.slots)
        logging.basicConfig(
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            level=cast("int | str", self.log_level),
            handlers=[ServiceLog(sys.stderr, home / "service.log")],
        )
        raise_file_limit()
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if opened := make_private(home, group=self.hub):
            _log.warning("%s was readable by other users; it is private now", ", ".join(map(str, opened)))
        if self.hub:
            discovery.end(home)  # left running when the hub was killed
        with discovery.lock(home) as ours:
            if not ours:
                self._say_who_serves(home)
                return
            asyncio.run(self._serve(home))

    async def _serve(self, home: Path) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        store = await open_store(home, self.db_url, self.db_wait, stop)
        if store is None:
            return
        if not self.hub:
            await self._serve_owner(home, store, stop)
            return
        from kernel_backend.hub_mode import UnderHub  # imported here: embedded services do not need it

        await self._serve_hub(home, store, stop, UnderHub(self.identity_age, home))

    async def _serve_owner(self, home: Path, store: Store, stop: asyncio.Event) -> None:
        use, launchers = Activity(), self._launcher_server(home)
        service = self._service(home, store, launchers)
        app = application(service, LocalIdentity(discovery.ensure_token(home)), use, pages=PAGES)
        async with _listening(home, app, service, use, (self.host, self.port)), launchers.serving(service, use):
            await self._until_done(service, use, stop)

    async def _serve_hub(self, home: Path, store: Store, stop: asyncio.Event, hub: UnderHub) -> None:
        use, launchers = Activity(), self._launcher_server(home)
        service = self._service(home, store, launchers, hub)
        service.quotas.learn(await hub.first())  # before the first decision
        service.notebooks.give(await hub.counted())
        app = application(
            service,
            hub.identity,
            use,
            prefix=hub.prefix,
            browsers=hub.browsers,
            secret=discovery.ensure_token(home),
            pages=[*hub.pages, *PAGES],
        )
        telling = hub.keep_telling(service.quotas.learn, self.directory_age)
        counting = hub.keep_counting(service.notebooks.give, self.servers_age)
        async with (
            _listening(home, app, service, use, (hub.host, hub.port), hub.prefix),
            launchers.serving(service, use),
            _beside(telling),
            _beside(counting),
        ):
            await stop.wait()

    def _launcher_server(self, home: Path) -> LauncherServer:
        address, _, port = self.launchers.partition(":")
        return LauncherServer(home, address, int(port or 0))

    def _service(self, home: Path, store: Store, launchers: LauncherServer, hub: UnderHub | None = None) -> Service:
        if self.spawn_helper:
            parts = of_unix_users(Path(self.spawn_helper), home, store, self.checkpoints)
        else:
            parts = of_one(home, store, self.checkpoints, self.slots is None)

        def make(pool: Pool) -> Engine:
            launchers.open()
            return parts.make(pool)

        return build(
            Context(
                store=store,
                archive=Archive(home / "snapshots"),
                engine=parts.engine,
                checkpoint_storage=parts.storage,
                workspaces=parts.workspaces,
                home=home,
                url=None if hub is None else hub.url,
                rules=Rules(idle_servers=self.idle_servers or None),
                each_user=Quota(storage=parse_size(self.user_storage)) if self.user_storage else None,
                local_price=self.local_price,
                idle_rule=IdleRule(self.idle_rule, self.idle_after, self.idle_below),
                keep_logs=parse_age(self.keep_logs) if self.keep_logs else None,
                keep_reports=parse_age(self.keep_reports) if self.keep_reports else None,
                servers=None if hub is None else hub.servers,
                pools=self.pools,
                default_pool=self.default_pool,
                configured_in=self._configured_in,
                closed=self.slots is None,
                make=make,
                marks=parts.marks,
                launcher_urls=lambda: launchers.urls,
                outbox=self.outbox(inside=not self.hub),
                pages=self.public_url or ("" if hub is None else hub.prefix),
            )
        )

    @property
    def _configured_in(self) -> str:
        file = self.config_file
        return str(Path(file).expanduser().absolute()) if file else "the service's configuration"

    async def _until_done(self, service: Service, use: Activity, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if use.idle() > self.idle_timeout and not await service.busy() and use.idle() > self.idle_timeout:
                _log.info("nothing to do for %g s", self.idle_timeout)
                return
            await wait_for(stop, min(IDLE_LOOK_S, self.idle_timeout or IDLE_LOOK_S))

    def _say_who_serves(self, home: Path) -> None:
        address = discovery.find(home)
        where = f"at {address.url} (pid {address.pid})" if address else "or is about to"
        print(f"Daylight serves {home} already, {where}", flush=True)


@asynccontextmanager
async def _listening(
    home: Path, app: Application, service: Service, use: Activity, where: tuple[str, int], prefix: str = ""
) -> AsyncIterator[None]:
    """Run the service during the block: start it, listen, and announce its address in the home directory.

    `where` is (host, port) to listen on; port 0 means any free port. `prefix` is the path before all routes in the
    announced URL. After the block, the announcement is withdrawn and the service closed; running gangs go on.
    """
    host, port = where
    token = discovery.ensure_token(home)
    server = LimitedServer(app, use.strangers)
    sockets = bind_sockets(port, host)
    await service.start()
    server.add_sockets(sockets)
    address = discovery.announce(home, host, sockets[0].getsockname()[1], prefix)
    _log.info("Daylight %s serves %s at %s (pid %d)", __version__, home, address.url, address.pid)
    again = partial(discovery.announce, home, host, sockets[0].getsockname()[1], prefix, token)
    try:
        async with _beside(_stay_announced(home, token, again)):
            yield
    finally:
        discovery.withdraw(home)
        await _close(server, use)
        await service.close()
        _log.info("Daylight has ended; gangs that run go on")


async def _stay_announced(home: Path, token: str, announce: Callable[[], object]) -> None:
    """Check periodically, without end, that clients can find this service; restore its deleted files and lock.

    If another service has announced itself in the home directory meanwhile, end this process by SIGTERM.
    """
    with ExitStack() as locks:
        while True:
            await asyncio.sleep(FOUND_S)
            try:
                lock = ExitStack()
                if lock.enter_context(discovery.lock(home)):  # the file that this process has locked is gone
                    locks.push(lock.pop_all())
                    _log.warning("service.lock was deleted, and has been restored")
                lock.close()
                if not discovery.announced(home, token):
                    announce()
                    _log.warning("the file with this service's address was deleted, and has been restored")
            except Conflict as error:
                _log.error("%s; this one ends", error)
                os.kill(os.getpid(), signal.SIGTERM)
                return
            except (OSError, HomeUnusable) as error:
                _log.debug("the service cannot be found by its home: %s", error)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run an endless coroutine as a task during the block, and cancel it when the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _close(server: LimitedServer, use: Activity) -> None:
    server.stop()
    for stream in list(use.streams):
        stream.close(GOING_AWAY, "the service ends")
    await server.close_all_connections()


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the service; exit 0 when it has ended normally, 1 with a message if it could not start."""
    try:
        Daylight.launch_instance(None if argv is None else list(argv))
    except (DaylightError, TraitError, OSError) as error:
        sys.exit(f"daylight: {error}")
    sys.exit(0)
