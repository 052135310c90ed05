"""Test that module names resolve wherever they are written: code of child processes, patches, docs, settings."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMPORT = re.compile(r"\bfrom ((?:kernel_backend|jupyter_ext|tests)[\w.]*) import \(?([\w, ]+)")
DOTTED = re.compile(r"[\"'`:]((?:kernel_backend|jupyter_ext)(?:\.\w+)+)(?=[\"'`:])")
MADE = "kernel_backend.snapshots.loaded.s_"  # modules that are made while a process runs


@cache
def names(module: str) -> frozenset[str] | None:
    """Return the names at the top level of one of our modules; None if the module does not exist."""
    path = ROOT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    inside = {each.stem for each in path.glob("*")} if path.is_dir() else set()
    if not source.exists():
        return frozenset(inside) if path.is_dir() else None
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            inside |= {(each.asname or each.name).split(".")[0] for each in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            inside.add(node.id)
    return frozenset(inside | {"__version__"} if module == "kernel_backend" else inside)


def resolves(dotted: str) -> bool:
    module, rest = dotted, list[str]()
    while names(module) is None:
        if "." not in module:
            return False
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
    return not rest or rest[0] in (names(module) or ())


def test_each_import_and_each_dotted_name_leads_somewhere() -> None:
    wrong = set()
    kinds = ("*.py", "*.md")
    folders = (
        "kernel_backend",
        "jupyter_ext",
        "daylight",
        "tests",
        "benchmarks",
        "scripts",
        "docs",
        "labextension/src",
    )
    paths = [ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    paths += [path for folder in folders for kind in kinds for path in (ROOT / folder).glob(f"**/{kind}")]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        dotted = {found[1] for found in DOTTED.finditer(text)}
        for found in IMPORT.finditer(text):
            imported = [each.split(" as ")[0].strip() for each in found[2].split(",")]
            dotted |= {f"{found[1]}.{each}" for each in imported if each}
        lost = {each for each in dotted if not each.startswith(MADE) and not resolves(each)}
        wrong |= {f"{path.relative_to(ROOT)}: {each}" for each in lost}
    assert not wrong
