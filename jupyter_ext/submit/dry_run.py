"""Format the output of `--dry-run` (everything that would be sent) and of `--as-script`."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator

from jupyter_ext.plain_script.script import plain_script
from jupyter_ext.submit.submit import ParsedLine, PreparedSubmission
from kernel_backend.definition.command_line import unmarked
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.definition.script.definition import presumption, with_values
from kernel_backend.definition.script.modules import project_modules
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.sizes import size
from kernel_backend.model.syntax import module_tree
from kernel_backend.spec.config_text import to_options
from kernel_backend.text import counted


def dry_run(checked: PreparedSubmission, asked: ParsedLine, command: str, tail: str = "") -> str:
    """Return, as text, everything that a submission would send.

    It ends with the submitted code, below a line with all options. `asked` has the options and arguments of the user's
    line, and `command` is `%%dlsubmit` or `daylight submit train.py`. `tail` is the end of the line, for a shell
    command the part from `--` on.
    """
    head = [f"# {line}" for line in _about(checked)]
    values = [f"{name}={value!r}" for name, value in checked.params.items() if name not in checked.space.names]
    values += map(str, checked.space.parameters)
    words = [*to_options(checked.config), *asked.wanted.words(), *asked.others, *values]
    quote = _quoted if command.startswith("%") else shlex.quote
    same = f"# {command} {' '.join(map(quote, words))}{tail}"
    return "\n".join([*head, "# nothing was sent; the same, spelled out:", same, "", checked.capture.source.rstrip()])


def as_script(checked: PreparedSubmission, command: str) -> str:
    """Return a plain script equivalent to the submission; raise InvalidRequest for features that a script lacks.

    `command` is the command line of the submission, which the script's description names.
    """
    if checked.capture.captured or checked.space.parameters:
        what = "captured values travel" if checked.capture.captured else "a search trains several trials"
        raise InvalidRequest(f"--as-script writes code alone, and {what}: leave out what asks for it")
    if form_named(checked.definition.form).whole:
        return _program(checked)
    modules = sorted(name.partition("/")[2] for name in checked.travelling.files)
    source, roles_from, config = checked.capture.source, checked.capture.roles_from, checked.config
    return plain_script(source, checked.definition, config, checked.params, command, modules, roles_from).rstrip()


def _program(checked: PreparedSubmission) -> str:
    """Return a program's source as a plain script, with the submission's hyperparameters and epochs written into it.

    Without such values the source does not change. The program's arguments in a command become its `sys.argv`.
    """
    travelling = checked.travelling
    modules = project_modules(travelling.files, travelling.project)
    source = unmarked(checked.capture.source)
    written = with_values(module_tree(checked.capture.source), modules, checked.params, checked.config.epochs)
    if ast.dump(written.tree) != ast.dump(module_tree(source)):
        source = ast.unparse(written.tree)
    if checked.definition.command is None:
        return source
    lines, at = source.splitlines(), _first_line(module_tree(source))
    return "\n".join([*lines[:at], f"import sys; sys.argv[1:] = {written.arguments!r}", *lines[at:]])


def _first_line(tree: ast.Module) -> int:
    """Return the number of lines before the first statement that is neither docstring nor `from __future__` import."""
    body = tree.body[ast.get_docstring(tree) is not None :]
    first = next(each for each in body if not (isinstance(each, ast.ImportFrom) and each.module == "__future__"))
    above: list[ast.expr] = getattr(first, "decorator_list", [])
    return min([first.lineno, *(each.lineno for each in above)]) - 1


def _about(checked: PreparedSubmission) -> Iterator[str]:
    yield checked.capture.described
    yield checked.capture.relocate(checked.definition.summary)
    if form_named(checked.definition.form).whole:
        modules = project_modules(checked.travelling.files, checked.travelling.project)
        tree = module_tree(checked.capture.source)
        yield checked.capture.relocate(presumption(tree, modules))
    yield from (f"{name} = {value!r}" for name, value in checked.params.items())
    if checked.config.search is not None:
        # Imported here as it loads numpy, which a kernel does not need to submit.
        from jupyter_ext.submit.search_summary import bounds_text, forecast_text, parameter_text, trials_text

        yield "searched:"
        yield from (f"  {parameter_text(each)}" for each in checked.space.parameters)
        if checked.definition.epochs_fixed:
            yield f"{trials_text(checked.config, checked.space)}, each as long as the program trains"
        else:
            yield bounds_text(checked.config, checked.space)
            if foretold := forecast_text(checked.config, checked.space):
                yield foretold
    yield from (f"requires {requirement}" for requirement in checked.capture.requirements)
    files = checked.travelling.files
    if files:
        yield f"{counted(len(files), 'file')} of the project, {size(sum(map(len, files.values())))}:"
        yield from (f"  {name.partition('/')[2]} ({size(len(data))})" for name, data in sorted(files.items()))
    captured = checked.capture.captured_files
    yield from (f"captured: {names} ({size(each.bytes)}, {each.format})" for names, each in captured)
    yield from (
        f"data: {each.name} ({counted(each.files, 'file')}, {size(each.bytes)})" for each in checked.declared.data
    )
    if checked.state:
        yield f"compared before the first step: {', '.join(checked.state)}"
    yield from (f"note: {warning}" for warning in checked.warnings)


def _quoted(word: str) -> str:
    """Return an argument quoted for the line of a magic if it has spaces or quotes; `name='a b'` stays unchanged."""
    return word if "=" in word or not set(word) & set(" \t'\"") else f'"{word}"'
