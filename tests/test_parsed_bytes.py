"""Test that each parser that the service's code calls has a bound, so that no bytes of a user stop it for others."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from tests.test_layers import FILES, imports, part, tree

# Bounds of what is parsed, and where what has no bound of its own comes from.
CONFINED = "called in a confined process, with limits of time and memory (see the second test)"
COUNTED = "the values in it are counted first, versions.MOST_VALUES"
SMALL_FILE = "a file of a user, of limited size (tail.small_file)"
ARCHIVE = "sizes, numbers and names of members are checked when an archive is stored"
MEMBER = "a member of an archive, of limited size (archive.LARGEST), whose values are counted"
FRAME = "an answer of a user's process, of limited size"
VALUES = "values of the database, of a type that a record defines"
OWN = "written by the service: its database, its files, its own processes"
SITE = "said by the site: its hub, Slurm, Kubernetes, or a program that an admin has configured"
APART = "runs in the user's own process: a rank, a launcher, an agent, a probe or a client"

BOUNDS = {
    "agent.protocol": {"_parsed": FRAME},
    "api.base": {"ApiHandler.parse": COUNTED, "ApiHandler._truth_for_number": COUNTED},
    "api.cluster": {"_object": COUNTED},
    "checkpoints.base": {"parse": SMALL_FILE},
    "checkpoints.verify": {"_values": SMALL_FILE},
    "checkpoints.writer": {"decode": APART},
    "client.conversation": {"read_answer": APART, "_error": APART},
    "confined": {"Confined._answer": OWN},
    "definition.code": {"meaning": CONFINED},
    "definition.command_line": {"command_of": CONFINED},
    "definition.contract": {"Definition.unknown": CONFINED},
    "definition.keras.cell": {"unsaved_draws": CONFINED},
    "definition.keras.source": {"importable": APART},
    "definition.lightning.source": dict.fromkeys(("_Recorded.visit_Call", "_until_training", "importable"), APART),
    "definition.parse": {"_tree": CONFINED},
    "definition.plain": {"listed": CONFINED},
    "definition.rewritten": {"as_function": CONFINED},
    "definition.script.arguments": {"_value": CONFINED},
    "definition.script.modules": {"project_modules": CONFINED},
    "definition.script.written": {"expression": CONFINED},
    "definition.search_class": {"check_class": CONFINED},
    "definition.trainer.source": {"_parts": APART},
    "differences.data": {"_between": VALUES, "_delivered": VALUES},
    "differences.environment": {"_imported": CONFINED},
    "differences.settings": {"_batch_size": VALUES},
    "differences.tensors": {"_header": "a header of limited size (MOST_HEADER), whose values are counted"},
    "discovery": {"_noted": OWN},
    "engines.allocations.allocation": {"Allocation.opened": OWN},
    "engines.allocations.lines": {"read_lines": "lines of limited size, a limited number of bytes at once"},
    "engines.kubernetes.api": {"Api.watch": SITE, "Api._once": SITE, "_refused": SITE},
    "engines.marks": {"FolderMarks.pool": SMALL_FILE},
    "engines.slurm.check": {"_versions": SITE},
    "engines.slurm.probes": {"Probes._take": "a line of asyncio's streams, of at most 64 KiB"},
    "engines.submission": {"SubmissionFile.read": OWN},
    "environments.present": {"present": SITE, "own_root_of": SITE},
    "environments.storage": {"Environments.lock": OWN},
    "environments.uv": {"parse_settings": SITE},
    "hub_mode": {"UnderHub.first": OWN},
    "identity.hub_api": {"HubApi.all": SITE},
    "launch.folder": {"AttemptFolder._read": SMALL_FILE},
    "launch.forkserver.frameworks": {"frameworks": APART},
    "launch.forkserver.protocol": {"receive_request": APART, "receive_messages": APART},
    "launch.pod_probe": {"": APART},
    "launch.probe": {"": APART, "StandardStreams.order": APART},
    "launch.search_process": {"ChildSearchProcess._answer": FRAME, "ChildSearchProcess._where": FRAME},
    "launch.service_address": {"announced": APART},
    "launch.spool": {"_Page.add": COUNTED},
    "launcher_server": {"LauncherServer._last": OWN},
    "model.launch.launch_spec": {"read_job": SMALL_FILE},
    "model.record": {"Record.to_json": OWN},
    "model.syntax": {"module_tree": CONFINED, "expression_tree": CONFINED},
    "model.values": {"_alternatives": CONFINED, "_kinds": CONFINED},
    "model.versions": {"read": COUNTED},
    "model.views.overview": {"Overview.after": VALUES},
    "service.loop.launch_spec": {"found_batch": VALUES, "tuned_loader": VALUES},
    "service.search.stored": {"unpack": OWN},
    "service.views.overviews": {"Overviews._batch_size": VALUES},
    "service.views.redaction": {"NoteRedactor.note_message": OWN},
    "snapshots.archive": {
        "pack": OWN,
        "Archive.snapshot": MEMBER,
        "Archive._opened": ARCHIVE,
        "Files.__getitem__": ARCHIVE,
        "unpack": ARCHIVE,
        "contents": ARCHIVE,
        "check": ARCHIVE,
    },
    "snapshots.installed": {"_origin": APART, "_import_root": APART, "_horovod": APART, "_conda": APART},
    "snapshots.shipped": {"working_folder": APART},
    "spec.assignments": {"_number": APART, "parse_value": APART},
    "store.intake": {"_complete": OWN},
    "store.metric_columns": {"_decoded": OWN},
    "store.quotas": {"slots_of": OWN, "SqlQuotaStore.pools": VALUES},
    "store.repeated": {"_value": OWN},
    "store.scheduled": {"_decoded": OWN},
    "store.search_log": {"_decoded": OWN, "_brief": OWN},
    "store.tables": {"JsonText.process_result_value": OWN, "read_record": OWN},
    "text": {"_report_line": VALUES, "message_line": VALUES},
    "unix_users.agents": {"Link.value": "a frame of limited size, whose values are counted"},
}  # fmt: skip
PARSERS = {
    "ast.parse", "ast.literal_eval", "compile", "eval", "exec", "from_json", "json.load", "json.loads", "marshal.loads",
    "module_tree", "expression_tree", "pickle.load", "pickle.loads", "safetensors.load", "tarfile.open",
    "tokenize.tokenize", "tokenize.generate_tokens", "tomllib.load", "tomllib.loads", "yaml.safe_load",
    "zipfile.ZipFile", "zlib.decompress", "gzip.decompress", "lzma.decompress", "bz2.decompress", "versions.read",
}  # fmt: skip
METHODS = {"validate_json", "model_validate_json"}


def service() -> set[str]:
    """Return the modules that the service's process may import, also those imported within functions."""
    found: set[str] = set()
    new = {"kernel_backend.app"}
    while new:
        found |= new
        names = {each for module in new for each in imports(module, everywhere=True)} | new
        prefixes = {name.rsplit(".", count)[0] for name in names for count in range(name.count(".") + 1)}
        new = {name for name in prefixes if name in FILES} - found
    return found


def taken_from(module: str, *sources: str) -> set[str]:
    """Return the names that a module imports from modules whose names begin with one of `sources`."""
    nodes = [node for node in ast.walk(tree(module)) if isinstance(node, ast.ImportFrom)]
    return {each.name for node in nodes if str(node.module).startswith(sources) for each in node.names}


def callers(module: str) -> Iterator[str]:
    """Yield the functions and methods of a module that parse; "" stands for the module itself."""
    read = taken_from(module, "kernel_backend.model.versions") & {"read"}
    yield from parsing(tree(module), "", PARSERS | read)


def parsing(node: ast.AST, where: str, parsers: set[str]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inner = where
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{where}.{child.name}".removeprefix(".")
        if isinstance(child, ast.Call):
            called = ast.unparse(child.func)
            if called in parsers or called.rpartition(".")[2] in METHODS:
                yield where
        yield from parsing(child, inner, parsers)


@functools.cache
def found() -> dict[str, set[str]]:
    """Return the functions that parse, by module of the service without `kernel_backend`."""
    by_module = {module.removeprefix("kernel_backend."): set(callers(module)) for module in service()}
    return {module: functions for module, functions in by_module.items() if functions}


def test_each_parser_that_the_service_calls_has_a_bound() -> None:
    assert len(service()) > 400
    new = {module: functions - BOUNDS.get(module, {}).keys() for module, functions in found().items()}
    assert not {module: names for module, names in new.items() if names}, "say in BOUNDS what limits these"
    gone = {module: bounds.keys() - found().get(module, set()) for module, bounds in BOUNDS.items()}
    assert not {module: names for module, names in gone.items() if names}, "these parse no more"


def test_the_service_parses_source_in_confined_processes_alone() -> None:
    """Functions of `service.parsing`, and `diff`, are arguments of `Confined.call`, and never called by the service."""
    confined = {"accepted", "meaning", "causes_of", "diff"}
    named = set()
    for module in (each for each in FILES if part(each) in ("service", "api")):
        if module == "kernel_backend.service.parsing":
            continue
        taken = taken_from(module, *SOURCE)
        assert taken <= confined | HARMLESS, f"{module}: parse source in a function of service/parsing.py"
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Call):
                assert not (isinstance(node.func, ast.Name) and node.func.id in taken & confined), module
                if ast.unparse(node.func).endswith("confined.call"):
                    named |= {ast.unparse(node.args[1])}
    assert named == confined


SOURCE = (
    "kernel_backend.definition", "kernel_backend.differences", "kernel_backend.service.parsing",
    "kernel_backend.model.syntax", "kernel_backend.snapshots.loaded",
)  # fmt: skip
HARMLESS = {"is_code", "is_module", "compared", "Side", "first_difference", "unread"}  # they parse no source
