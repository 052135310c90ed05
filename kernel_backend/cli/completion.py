"""Print the script for a shell that completes `daylight` (`daylight completion bash`), and the candidates.

The script calls this command to get the candidates.
"""

from __future__ import annotations

import os

from kernel_backend.commands.answer import Answer, File
from kernel_backend.commands.complete import complete, live_values
from kernel_backend.commands.verb import Call, Verb, argument

WORDS = "DAYLIGHT_WORDS"  # environment variable with the words up to the cursor, without the command's name
SEPARATOR = "\x1f"  # between words, which cannot contain it

# Without candidates the shells complete file names.
_BASH = """\
_daylight() {
    local IFS=$'\\x1f'
    mapfile -t COMPREPLY < <(DAYLIGHT_WORDS="${COMP_WORDS[*]:1:COMP_CWORD}" "$1" completion bash 2>/dev/null)
}
complete -o default -F _daylight daylight
"""
_ZSH = """\
#compdef daylight
_daylight() {
    local -a found
    found=("${(@f)$(DAYLIGHT_WORDS="${(pj:\\x1f:)words[2,CURRENT]}" "${words[1]}" completion zsh 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        compadd -a found
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _daylight ]]; then
    _daylight "$@"
else
    compdef _daylight daylight
fi
"""
_FISH = """\
function __daylight_words
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -q current[1]; or set current ''
    set -lx DAYLIGHT_WORDS (string join \\x1f -- $before[2..-1] $current)
    set -l found ($before[1] completion fish 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path $current
    end
end
complete -c daylight -f -a '(__daylight_words)'
"""
SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def _completion(call: Call) -> Answer:
    from kernel_backend.cli import verbs  # imported here, because the list includes this verb

    if WORDS not in os.environ:
        script = SHELLS[call.arguments.shell]
        return Answer({"script": script}, [File(script)])
    *before, word = os.environ[WORDS].split(SEPARATOR)
    found = complete(verbs(), before, word, "terminal", live_values)
    return Answer({"words": found}, [File("".join(f"{each}\n" for each in found))])


COMPLETION = Verb(
    "completion",
    "print a script with which a shell completes `daylight`: verbs, options, numbers, states",
    _completion,
    (argument("shell", metavar="SHELL", choices=tuple(SHELLS), help="bash, zsh or fish"),),
    (
        "completion bash > ~/.local/share/bash-completion/completions/daylight",
        "completion zsh > ~/.zfunc/_daylight",
        "completion fish > ~/.config/fish/completions/daylight.fish",
    ),
    takes="bash, zsh or fish",
    host="terminal",
)
