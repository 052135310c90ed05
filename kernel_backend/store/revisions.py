"""Judge the revision of a database's schema; standard library only."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.errors import OtherVersion

MIGRATIONS = Path(__file__).parent / "migrations"
LAST_THAT_UPGRADES_OLDER = "07212f7f80b9"  # the commit before the migrations up to the first release became one


def check_revision(found: str, database: object) -> None:
    """Raise OtherVersion unless this version of Daylight has a schema, or can upgrade it."""
    known = sorted(file.name.partition("_")[0] for file in (MIGRATIONS / "versions").glob("*.py"))
    if found in known:
        return
    if found < known[0]:
        raise OtherVersion(
            f"{database} has schema {found} of a development version, and this version of Daylight upgrades only from "
            f"{known[0]} on: start the service of commit {LAST_THAT_UPGRADES_OLDER} with it once, which upgrades it, "
            "or use another home directory (DAYLIGHT_HOME) or database"
        )
    raise OtherVersion(
        f"{database} has schema {found}, and this version of Daylight knows up to {known[-1]}: upgrade Daylight, "
        "or use another database"
    )
