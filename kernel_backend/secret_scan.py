"""Detect likely secrets in a text; all patterns are in this module. Findings never repeat the secret."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import pairwise

from kernel_backend.model.record import Value

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of `HF_TOKEN`, `hfToken`, `hf-token`
# Words in names whose values are secrets, whatever they look like, and words that may also name a column.
_STRONG = re.compile(
    r".*passw(?:or)?ds?|passphrase|.*secrets?|.*credentials?|pwd|(?:api|access|private|secret|auth)keys?"
)
_WEAK = re.compile(r"key|.*token")
_OF_KEYS = {"api", "access", "private", "secret", "auth", "account", "service", "encryption"}
OVERRIDE = "daylight: not a secret"  # in a comment on the line
_SHORTEST = 8  # characters of a variable's value to be searched for

# Kinds recognised by a prefix, which is searched for first, as that is fast.
_TOKENS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (kind, begins, re.compile(pattern))
    for kind, begins, pattern in (
        ("an AWS access key", "AKIA", r"\bAKIA[0-9A-Z]{16}\b"),
        ("an AWS access key", "ASIA", r"\bASIA[0-9A-Z]{16}\b"),
        *(("a GitHub token", f"gh{one}_", rf"\bgh{one}_[A-Za-z0-9]{{30,}}") for one in "pousr"),
        ("a GitHub token", "github_pat_", r"\bgithub_pat_\w{20,}"),
        ("a GitLab token", "glpat-", r"\bglpat-[\w-]{20,}"),
        ("an API key", "sk-", r"\bsk-[A-Za-z0-9_-]{20,}"),  # OpenAI, Anthropic
        ("a Stripe key", "k_live_", r"\b[rs]k_live_[A-Za-z0-9]{16,}"),
        ("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{20,}"),
        ("a Slack token", "xox", r"\bxox[a-z]-[A-Za-z0-9-]{10,}"),
        ("a Google API key", "AIza", r"\bAIza[0-9A-Za-z_-]{35}"),
        ("a PyPI token", "pypi-", r"\bpypi-[A-Za-z0-9_-]{50,}"),
        ("a private key", "PRIVATE KEY", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----"),
        ("a JSON web token", "eyJ", r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    )
)
_PATTERN = re.IGNORECASE
# scheme://user:password@host, and https://<token>@github.com
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,100}:(?P<value>[^\s/@'\"]{1,200})@", _PATTERN)
_URL_TOKEN = re.compile(r"://(?P<value>[\w-]{16,200})@", _PATTERN)
_QUERY = re.compile(  # signed URLs, and keys that are part of a URL
    r"[?&;](?:X-(?:Amz|Goog)-(?:Signature|Security-Token)|sig(?:nature)?|(?:\w{0,20}[_-])?token|api_?key|key|passw(?:or)?d|secret)"
    r"=(?P<value>[^\s&;'\"#<>]{6,2000})",
    _PATTERN,
)
_BEARER = re.compile(
    r"(?:\b(?:bearer|basic)\s+|\bauthorization\W{1,8}(?:token|apikey|key)[\s=]+)(?P<value>[A-Za-z0-9._~+/-]{16,}=*)",
    _PATTERN,
)
_AZURE = re.compile(r"\b(?:Account|SharedAccess|Access)Key=(?P<value>[A-Za-z0-9+/]{20,}={0,2})", _PATTERN)
_WORDS = r"passw(?:or)?d|passphrase|(?<![a-z])pw|pwd|secret|(?:api|access|account|private)_?key|credentials?|auth|token"
_NAME = rf"\b[\w-]{{0,40}}?(?:{_WORDS})(?:_?\d+|_(?:id|key|value))?"
_LITERAL = r"(?P<prefix>[rRuUbBfF]{0,2})(?P<quote>\\?['\"])(?P<value>(?:(?!(?P=quote))[^\n]){1,500})(?P=quote)"
# password = "...", pw := "...", "api_key": "...", token: str = "...", os.environ["SECRET"] = "...", and
# setdefault("TOKEN", "...")
_SET = re.compile(
    rf"(?P<name>{_NAME})\\?['\"]?\]?"
    rf"(?:\s*:\s*[\w\[\]|. ]{{1,30}}=|\s*:?=(?!=)|\s*:|(?<=['\"])\s*,)[\s(]*{_LITERAL}",
    _PATTERN,
)
_PAIR = re.compile(  # auth=("ada", "...")
    rf"(?:\bauth\s*[=:]\s*|(?:Basic|Digest)Auth)\(\s*[^,()]{{1,100}},\s*{_LITERAL}", _PATTERN
)
_KEY = re.compile(  # login(key="...")
    r"(?:\blogin\(\s*(?:\w{1,20}\s*=\s*)?|\bkey['\"]?\s*[=:]\s*)['\"](?P<value>[A-Za-z0-9_-]{32,200})['\"]", _PATTERN
)
_OPEN = re.compile(  # continues on the next line; `if has_secret:` does not
    rf"(?:{_NAME})(?:\\?['\"]?\]?\s*(?::[^=]{{0,30}}=|:?=(?!=))|\\?['\"]\s*:)\s*[(\\]*\s*$", _PATTERN
)
# API_KEY=..., as in a shell, an .env file, or %env
_SHELL = re.compile(
    rf"^[#\s]*(?:export\s+|%(?:set_)?env\s+|!\s*export\s+)?(?P<name>[A-Z0-9_]*(?:{_WORDS.upper()})\w*)"
    r"=(?P<value>[^\s'\"(),]+)\s*$",
)
_ENV = re.compile(rf"%(?:set_)?env\s+(?P<name>\w*(?:{_WORDS})\w*)[ =]+(?P<value>\S+)", _PATTERN)
# password: ..., api_key = ..., as in YAML, INI and similar files
_BARE = re.compile(
    rf"^[\s#;-]*(?P<name>(?:[\w-]{{1,20}}\.){{0,3}}{_NAME})\s*[:=]\s*(?P<value>[^\s'\"(){{}}\[\]|>&*]{{6,500}})\s*(?:[#;].*)?$",
    _PATTERN,
)
_DRAWN = re.compile(r"[\d!@$%^+=~?]")  # `type: string` is no secret
_HINTS = (
    *("passw", "passphrase", "pw", "secret", "key", "credential", "auth", "token", "bearer", "basic"),
    *("://", "sig", "login"),
)
_repr = reprlib.Repr()
_repr.maxdict = _repr.maxlist = _repr.maxtuple = _repr.maxset = _repr.maxfrozenset = 1000
_repr.maxstring = _repr.maxother = 20_000
_LONGEST = 20_000  # characters: in longer lines only text around hints is scanned
_AROUND = re.compile("(?:" + "|".join(map(re.escape, _HINTS)) + ")", _PATTERN)
_BEFORE, _BEHIND = 100, 700
_INNOCENT = re.compile(
    r"(.)\1*|x{3,}.*|<.*>|\[.*\]|\{.*\}|\$.*|%.*|.*(?:\.\.\.|…)|os\.environ.*|getpass.*"
    r"|(?:your|my|the|some|an?|this|any)(?:[-_ ][a-z]+)+[-_ ]?\d{0,2}"
    r"|(?:example|dummy|fake|test|placeholder|change)(?:[-_ ]?[a-z]{1,12}){0,4}[-_ ]?\d{0,4}"
    r"|(?:layer|block|head|stage|conv|fc|linear|norm|embedding|feature|column|col|field|input|output)s?[-_.]?\d*(?:\.weight|\.bias)?"
    r"|none|null|true|false|todo|tbd|redacted|hidden|secret|password|token|(?:api)?_?key",
    _PATTERN | re.DOTALL,
)
_SENTENCE = re.compile(  # prose: two spaces or more, and a capital, a full stop or a function word
    r"(?=.*\s\S+\s).*?(?:^[A-Z][\w']*\s[a-z]|[.:?!,]\s*$|\b(?:the|an?|of|your|to|is|are|or|and|for|in|on|not|with|password|token|key|secret)\b).*",
    re.DOTALL,
)
_PATH = re.compile(
    r"(?:~|\.{0,2})(?:/[\w.-]{1,24}){2,12}/?|(?:[\w.-]{1,40}/){0,12}[\w-]{1,40}\.(?:pem|key|json|ya?ml|txt|crt|p12|pub|toml|ini|cfg|py)"
)


def is_code(name: str) -> bool:
    """Return True if files of this name have a syntax with quoted strings, such as Python and JSON."""
    return name.endswith((".py", ".pyi", ".ipynb", ".json"))


def find_secrets(text: str, known: Iterable[str] = (), code: bool = True) -> list[tuple[int, str]]:
    """Return line (from 1) and kind of each likely secret, such as `[(3, "a GitHub token")]`; each line once.

    `known` are secrets to be found in any form. Placeholders ("...", "<token>") are no secrets, nor are lines with the
    comment `# daylight: not a secret`. In text that is not `code`, values need no quotes: `password: hunter2`.
    """
    telling = [(kind, pattern) for kind, begins, pattern in _TOKENS if begins in text]
    known = [secret for secret in known if secret in text]
    hinted = _AROUND.search(text) is not None
    if not (telling or known or hinted):
        return []
    found: list[tuple[int, str]] = []
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        kind = next((kind for kind, pattern in telling if pattern.search(line)), None)
        if kind is None and hinted:
            behind = lines[number] if number < len(lines) and OVERRIDE not in lines[number] else ""
            kind = next(filter(None, (_by_its_words(each, code) for each in _telling_parts(line, behind))), None)
        if kind is None and any(secret in line for secret in known):
            kind = "the value of a secret variable"
        if kind is not None and OVERRIDE not in line:
            found.append((number, kind))
    return found


def names_secret(name: str) -> bool:
    """Return True if a whole word of the name indicates a secret: `HF_TOKEN` does, `tokens` does not."""
    return _strong(name) or any(_WEAK.fullmatch(word) for word in _words(name))


def is_secret(name: str, value: object) -> bool:
    """Return True if name and value look like a secret; numbers, booleans and paths are never secrets.

    If the name says little, as `key` does, plain words and short numbers as text are no secrets, either.
    """
    if not names_secret(name):
        return False
    if isinstance(value, str | bytes):
        text = value if isinstance(value, str) else value.decode(errors="replace")
        return _may_be_one(text.strip(), _strong(name))
    if isinstance(value, Mapping):
        return any(is_secret(name, each) for each in value.values())
    return isinstance(value, list | tuple | set | frozenset) and any(is_secret(name, each) for each in value)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _strong(name: str) -> bool:
    words = _words(name)
    of_keys = any(one in _OF_KEYS and other in ("key", "keys", "token") for one, other in pairwise(words))
    return of_keys or any(_STRONG.fullmatch(word) for word in words)


def _may_be_one(value: str, strong: bool) -> bool:
    if not _tells(value) or value.startswith(("/", "~/", "./")) or _PATH.fullmatch(value):
        return False
    return strong or not re.fullmatch(r"[-+]?[\d._,]{1,9}|[a-z]{1,12}|[A-Z][a-z]{0,11}", value)


def known_secrets(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the values of environment variables whose names suggest secrets, except paths and single words."""
    named = (value for name, value in environment.items() if names_secret(name))
    return [
        value
        for value in named
        if len(value) >= _SHORTEST and not value.isalpha() and value[0] != "/" and _tells(value)
    ]


def text_of(value: object) -> str:
    """Return a text to scan for secrets, shortened if long: of a string, a container or a dataclass; else ""."""
    plain = isinstance(value, str | bytes | list | tuple | dict | set | frozenset) or is_dataclass(value)
    return _repr.repr(value) if plain else ""


def _telling_parts(line: str, behind: str) -> Iterator[str]:
    """Yield the parts of a line to search for secrets: the whole line if it is short, else the text around each hint.

    Hints are what occurs near secrets, such as an assignment or a URL; a line without hints yields nothing. `behind` is
    the next line, whose beginning is appended if the line ends where a value is expected, as in `password =`.
    """
    if len(line) <= _LONGEST:
        if _AROUND.search(line):
            yield f"{line} {behind.strip()[:_BEHIND]}" if _OPEN.search(line[-_BEHIND:]) else line
        return
    at = 0
    while (hint := _AROUND.search(line, at)) is not None:
        yield line[max(0, hint.start() - _BEFORE) : hint.end() + _BEHIND]
        at = hint.end() + _BEHIND // 2


def _by_its_words(line: str, code: bool) -> str | None:
    if any(_tells(each["value"]) for each in _URL.finditer(line)):
        return "a password in a URL"
    if any(_random(each["value"]) for each in _URL_TOKEN.finditer(line)):
        return "a token in a URL"
    if any(_tells(each["value"]) and not each["value"].isalpha() for each in _QUERY.finditer(line)):
        return "a signature or token in a URL"
    if any(_random(each["value"]) for pattern in (_BEARER, _AZURE, _KEY) for each in pattern.finditer(line)):
        return "a token"
    if any(_is_one("password", _fixed(each)) for each in _PAIR.finditer(line)):
        return "a password"
    named = [(each["name"], _fixed(each)) for each in _SET.finditer(line)]
    named += [(each["name"], each["value"]) for pattern in (_SHELL, _ENV) for each in pattern.finditer(line)]
    bare = None if code else _BARE.match(line)
    if bare is not None and _DRAWN.search(bare["value"]) and "://" not in bare["value"]:
        named.append((bare["name"], bare["value"]))
    return "a secret" if any(_is_one(name, value) for name, value in named) else None


def _fixed(literal: re.Match[str]) -> str:
    """Return the text of a string literal; of an f-string without its replacement fields."""
    return re.sub(r"\{[^{}]*\}", "", literal["value"]) if "f" in literal["prefix"].lower() else literal["value"]


def _is_one(name: str, value: str) -> bool:
    """Return True if name and value look like a secret.

    For names such as `eos_token`, which need not mean a secret, the value must look random.
    """
    if not _tells(value) or value.lower().strip("-_") == name.lower() or _PATH.fullmatch(value):
        return False
    vague = re.search(r"token|auth|credential|key_?id", name, re.IGNORECASE)
    return _random(value) if vague else len(value) >= 4


def _tells(value: str) -> bool:
    value = value.strip("\\")
    return bool(value) and _INNOCENT.fullmatch(value) is None and _SENTENCE.fullmatch(value) is None


def _random(value: str) -> bool:
    return (
        len(value) >= 16 and bool(re.search(r"\d", value)) and bool(re.search(r"[A-Za-z]", value)) and " " not in value
    )


_WAY_OUT = (
    "A snapshot is kept, and shown to others. Read it from os.environ, and set it where Daylight's service is started"
)
# Advice by option.
_OPTIONS = {
    "--name": "Call it something else",
    "--note": "Write the note without it",
    "--tag": "Choose another tag",
    "--commit": "Write the version alone, without what gives access to it",
    "--data": "Write the address alone: what gives access to it is read from the environment",
}


def leaks_on_the_line(given: Mapping[str, Value], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (kind of secret, message) for each hyperparameter or option that looks like a secret.

    `given` has the values by name of hyperparameter or flag of option; `known` are secrets to be found in any form.
    """
    for name, value in given.items():
        found = find_secrets(f"{name} = {value!r}", known) if isinstance(value, str) else []
        if found and name in _OPTIONS:
            kept = "which is kept, and shown to others"
            yield found[0][1], f"{name} on the line holds what looks like {found[0][1]}, {kept}. {_OPTIONS[name]}."
        elif found:
            yield found[0][1], leak_text(f"{name}=... on the line", found[0][1], "give the hyperparameter another name")


def leak_text(place: str, kind: str, otherwise: str) -> str:
    """Return a message about a secret, such as `a GitHub token` (`kind`), that `place` contains, and what to do.

    `otherwise` is the advice for the case that it is no secret.
    """
    return f"{place} holds what looks like {kind}. {_WAY_OUT}. If it is none, {otherwise}."
