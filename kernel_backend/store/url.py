"""Parse the URL of a database, and format it without its secrets."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from kernel_backend.errors import InvalidRequest

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")  # the second is what libpq and many clouds write
_SECRETS = ("password", "sslpassword")  # parameters of libpq that no message may show


def database_url(at: str | Path) -> URL:
    """Return a database's URL; `at` is the path of a SQLite file, or a string with a URL of SQLite or PostgreSQL.

    Raises InvalidRequest, whose message does not show the URL's secrets.
    """
    if isinstance(at, Path):
        return URL.create("sqlite", database=str(at))
    try:
        url = make_url(at)
    except (ArgumentError, ValueError):  # ValueError: the port is no number, perhaps because of a "/" in the password
        raise _no_database(at) from None
    if "@" in (url.host or ""):
        raise InvalidRequest(f"{redacted(at)}: write %40 for each @ in the password of a database's URL")
    if url.drivername in _POSTGRESQL:
        return _postgresql(url)
    if url.drivername != "sqlite" or not url.database:
        raise _no_database(at)
    return url


def _postgresql(url: URL) -> URL:
    """Return a URL for psycopg, with a password in the URL's own field, which SQLAlchemy never shows."""
    if password := url.query.get("password"):
        url = url.set(password=str(password)).difference_update_query(["password"])
    return url.set(drivername="postgresql+psycopg")


def shown(url: URL) -> str:
    """Return a database's URL, without secrets, to show to users; for SQLite the path of its file."""
    if url.get_backend_name() == "sqlite":
        return url.database or ""
    hidden = {name: "***" for name in _SECRETS if name in url.query}
    return _text(url.set(drivername=url.get_backend_name()).update_query_dict(hidden))


def without_secrets(url: URL) -> str:
    """Return a database's URL without its password, to be written to a file.

    PostgreSQL's client library reads the password from `~/.pgpass` instead.
    """
    plain = url.set(drivername=url.get_backend_name()).difference_update_query(_SECRETS)
    return _text(
        URL.create(plain.drivername, plain.username, None, plain.host, plain.port, plain.database, plain.query)
    )


def _text(url: URL) -> str:
    return url.render_as_string().replace("%2F", "/")  # a socket's folder is easier to read this way


def redacted(text: str) -> str:
    """Return the text of a possibly invalid URL with everything that could be a password replaced by `***`."""
    return re.sub(r"(password=)[^&\s]*", r"\1***", re.sub(r"://.*@", "://***@", text))


def _no_database(at: str) -> InvalidRequest:
    return InvalidRequest(
        f"{redacted(at)!r} is no database for a store: use sqlite:////path/to/file or postgresql://user@host/name"
    )
