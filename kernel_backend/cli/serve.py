"""Run the service in the foreground (`daylight serve`)."""

from __future__ import annotations

from kernel_backend.commands.answer import Answer
from kernel_backend.commands.verb import Call, Verb, argument
from kernel_backend.errors import InvalidRequest

SETTINGS = ("port", "idle_timeout", "slots", "user_storage", "db_url", "config")


def _serve(call: Call) -> Answer:
    try:
        from kernel_backend.app import main
    except ImportError as error:
        raise InvalidRequest(
            f"this Python cannot serve ({error}): install daylight[server] into it, or use the Python that has it"
        ) from None
    given = {name: getattr(call.arguments, name) for name in SETTINGS}
    main([f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value])


SERVE = Verb(
    "serve",
    "run the service in the foreground",
    _serve,
    (
        argument("--port", metavar="N", help="port to listen on, of this machine only [a free one]"),
        argument("--idle-timeout", metavar="SECONDS", help="end after so many seconds without work [3600]"),
        argument("--slots", metavar="N", help="how many slots to offer [all], or none: run no code of users"),
        argument("--user-storage", metavar="SIZE", help="the most that each user may have on disk: 500GB [any]"),
        argument("--db-url", metavar="URL", help="PostgreSQL: postgresql://user@host/name [SQLite, in the home]"),
        argument("--config", metavar="FILE", help="file of settings: c.Daylight.idle_timeout = 600", complete="file"),
    ),
    ("serve", "serve --idle-timeout 600", "serve --db-url postgresql:///daylight"),
    host="terminal",
)
