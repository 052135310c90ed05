"""Test that files, classes and TypeScript types are named by the field's terms, not by words that these replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Words that no file and no class is named by, with the term that stands for them. What a table, a column or a stored
# literal is called stays: old databases must open.
REPLACED = {
    "ask": "request",
    "asks": "requests",
    "asked": "requested, parsed",
    "asker": "search process",
    "askers": "search processes",
    "asking": "request builder",
    "deed": "audit entry",
    "deeds": "audit, actions",
    "spell": "usage interval",
    "spells": "usage",
    "mirror": "store cache",
    "pictures": "cluster state",
    "lent": "borrowed",
    "ripe": "preemptible now",
    "claim": "fencing token, reservation record",
    "claims": "reservations",
    "roster": "effective quotas",
    "rosters": "effective quotas",
    "sharing": "quotas, cluster",
    "turns": "fair order",
    "room": "capacity",
    "trouble": "error",
    "rests": "backoff",
    "standing": "status, state",
    "align": "reconcile",
    "nudge": "action",
    "ending": "outcome",
    "endings": "outcomes",
    "blame": "error class",
    "beginnings": "checkpoint copies",
    "earlier": "prior, warm start",
    "twins": "duplicates",
    "drafts": "submission",
    "again": "rerun",
    "alone": "lock, single",
    "apart": "isolation",
    "beside": "compare, auxiliary",
    "foreign": "redaction",
    "readers": "redaction",
    "told": "reported",
    "happenings": "events",
    "story": "history",
    "courier": "spool uploader",
    "nursery": "forkserver loop",
    "door": "endpoint, limits",
    "warmth": "cache key",
    "seat": "rank assignment",
    "meeting": "rendezvous",
    "judge": "outcome",
    "judged": "decision",
    "hands": "operations",
    "wire": "protocol",
    "words": "records",
    "area": "workspace",
    "areas": "workspaces",
    "places": "storage, targets",
    "kept": "retained, stored",
    "keeper": "writer",
    "keeping": "artifacts",
    "likeness": "overlay",
    "shelf": "trial checkpoints",
    "taken": "copy",
    "world": "state",
    "thing": "object",
    "things": "objects",
    "glance": "summary",
    "outside": "external calls",
    "surroundings": "implicit context",
    "seen": "digest",
    "carried": "remote error",
    "passes": "stream batches",
    "pace": "cadence",
    "whence": "origin",
    "walk": "reachability",
    "moment": "position",
    "everyones": "per rank",
    "patience": "retry, reconnect",
    "lifetimes": "process identity",
    "orphans": "parent death",
    "leaks": "secret check",
    "searched": "search summary",
    "edited": "stale cells",
    "bell": "notify",
    "known": "cached, state",
    "given": "provenance",
    "said": "messages",
    "mine": "account",
}
# Names that stay, each with the reason. The list may only shrink.
STAY = {
    "kernel_backend/errors.py: ImpossibleAsk": "an error's class name is sent to clients",
    "kernel_backend/model/events.py: Ending": "the event of the state that is stored as `ending`",
}


# Words that no function, method, parameter, attribute or variable of the Python packages is named by either. Others of
# the table are plain English for a variable (`known`, `given`, `taken`), or terms elsewhere (`patience`, `world`).
NO_IDENTIFIER = frozenset(
    re.findall(
        r"\w+",
        """
        area areas asker askers beginnings bell claims courier deed deeds drafts everyones glance hands
        happenings keeper lifetimes likeness meeting nudge nursery orphans roster rosters seat shelf spell
        spells story surroundings thing things twins warmth whence
        """,
    )
)
# Identifiers that stay, each with the reason. The list may only shrink.
STAY_IDENTIFIERS = {
    "asker": "an operation of agents, sent by its name",
    "ASKER_CALLS": "the calls of that operation",
}


def words(name: str) -> set[str]:
    return {each.lower() for each in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def named() -> list[str]:
    found = []
    for folder in ("kernel_backend", "jupyter_ext", "daylight", "benchmarks", "scripts"):
        for path in sorted((ROOT / folder).glob("**/*.py")):
            where = path.relative_to(ROOT).as_posix()
            if "migrations/versions" not in where:
                found.append(where)
                tree = ast.parse(path.read_text(encoding="utf-8"))
                found += [f"{where}: {each.name}" for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
    for path in sorted((ROOT / "labextension" / "src").glob("**/*.ts*")):
        where = path.relative_to(ROOT).as_posix()
        found.append(where)
        if path.name != "generated.ts":
            types = re.findall(r"^(?:export )?(?:class|interface|type) (\w+)", path.read_text(encoding="utf-8"), re.M)
            found += [f"{where}: {each}" for each in types]
    return found


def test_files_and_classes_are_named_by_the_fields_terms() -> None:
    wrong = {}
    for name in named():
        last = name.split(": ")[-1] if ": " in name else Path(name).stem
        for word in words(last) & set(REPLACED) if name not in STAY else ():
            wrong[name] = f"say {REPLACED[word]}, not {word}"
    assert not wrong
    assert set(STAY) <= set(named()), "take out of STAY what is gone"


def test_no_two_test_files_outside_packages_have_the_same_name() -> None:
    """Pytest imports such a file under its base name, and refuses the second of two."""
    files: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").glob("**/test_*.py")):
        if not (path.parent / "__init__.py").exists():
            files.setdefault(path.name, []).append(path.relative_to(ROOT).as_posix())
    assert [paths for paths in files.values() if len(paths) > 1] == []


def identifiers(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id


def test_identifiers_are_none_of_the_words_that_hid_what_they_stood_for() -> None:
    wrong, stay = {}, set()
    for folder in ("kernel_backend", "jupyter_ext", "daylight", "benchmarks", "scripts"):
        for path in sorted((ROOT / folder).glob("**/*.py")):
            where = path.relative_to(ROOT).as_posix()
            if "migrations/versions" in where:
                continue
            for name in identifiers(ast.parse(path.read_text(encoding="utf-8"))):
                if word := words(name) & NO_IDENTIFIER:
                    if name in STAY_IDENTIFIERS:
                        stay.add(name)
                    else:
                        wrong[f"{where}: {name}"] = f"not {', '.join(word)}"
    assert not wrong
    assert set(STAY_IDENTIFIERS) == stay, "take out of STAY_IDENTIFIERS what is gone"
