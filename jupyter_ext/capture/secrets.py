"""What looks like a secret in a text: the one place that knows how they look. A finding never repeats the secret."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)  # names of variables of the environment
OVERRIDE = "daylight: not a secret"  # in a comment on the line
_SHORTEST = 6  # characters of a variable's value that is looked for elsewhere

# Kinds that tell themselves by how they begin; the text in front is looked for first, which is quick.
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
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,100}:(?P<value>[^\s/@'\"]{1,200})@", re.IGNORECASE)
_BEARER = re.compile(r"\b(?:bearer|basic)\s+(?P<value>[A-Za-z0-9._~+/-]{16,}=*)", re.IGNORECASE)
_WORDS = r"passw(?:or)?d|passphrase|pwd|secret|api_?key|access_?key|private_?key|credentials?|auth|token"
_QUOTED = r"(?P<quote>\\?['\"])(?P<value>(?:(?!(?P=quote))[^\n]){1,500})(?P=quote)"
# password = "...", "api_key": "...", token: str = "...", os.environ["SECRET"] = "...", setdefault("TOKEN", "...")
_SET = re.compile(
    rf"(?P<name>\b[\w-]{{0,40}}?(?:{_WORDS})(?:_?\d+|_(?:id|key|value))?)\\?['\"]?\]?"
    rf"(?:\s*:\s*[\w\[\]|. ]{{1,30}}=|\s*=(?!=)|\s*:|(?<=['\"])\s*,)\s*[rRuUbB]?{_QUOTED}",
    re.IGNORECASE,
)
# API_KEY=..., as a shell, a file of variables, or %env has it
_SHELL = re.compile(
    rf"^[#\s]*(?:export\s+|%(?:set_)?env\s+|!\s*export\s+)?(?P<name>[A-Z0-9_]*(?:{_WORDS.upper()})\w*)=(?P<value>[^\s'\"(),]+)\s*$",
)
_ENV = re.compile(rf"%(?:set_)?env\s+(?P<name>\w*(?:{_WORDS})\w*)[ =]+(?P<value>\S+)", re.IGNORECASE)
_HINTS = ("passw", "passphrase", "pwd", "secret", "key", "credential", "auth", "token", "bearer", "basic", "://")
_LONGEST = 100_000  # characters of a line whose words are read: longer ones are data
_INNOCENT = re.compile(
    r"(.)\1*|x{3,}.*|<.*>|\[.*\]|\{.*\}|\$.*|%.*|.*(?:\.\.\.|…)|.*\s.*\s.*|os\.environ.*|getpass.*"
    r"|(?:your|my|the|some|an?|this|any)[-_ ].*|(?:example|dummy|fake|test|placeholder|change).*"
    r"|none|null|true|false|todo|tbd|redacted|hidden|secret|password|token|(?:api)?_?key",
    re.IGNORECASE | re.DOTALL,
)


def find_secrets(text: str, known: Iterable[str] = ()) -> list[tuple[int, str]]:
    """Line (from 1) and kind of all that looks like a secret: `[(3, "a GitHub token")]`, each line once.

    `known` are secrets that are known to be such, whatever they look like. Placeholders ("...", "<token>") are none,
    nor is what stands on a line with the comment `# daylight: not a secret`.
    """
    telling = [(kind, pattern) for kind, begins, pattern in _TOKENS if begins in text]
    known = [secret for secret in known if secret in text]
    lower = text.lower()
    hints = [hint for hint in _HINTS if hint in lower]
    if not (telling or known or hints):
        return []
    found: list[tuple[int, str]] = []
    for number, (line, low) in enumerate(zip(text.split("\n"), lower.split("\n"), strict=True), start=1):
        kind = next((kind for kind, pattern in telling if pattern.search(line)), None)
        if kind is None and len(line) <= _LONGEST and any(hint in low for hint in hints):
            kind = _by_its_words(line)
        if kind is None and any(secret in line for secret in known):
            kind = "the value of a secret variable"
        if kind is not None and OVERRIDE not in line:
            found.append((number, kind))
    return found


def known_secrets(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The values of this process's variables whose names say that they are secrets."""
    return [
        value
        for name, value in environment.items()
        if SECRET.search(name) and len(value) >= _SHORTEST and _tells(value)
    ]


def _by_its_words(line: str) -> str | None:
    if any(_tells(each["value"]) for each in _URL.finditer(line)):
        return "a password in a URL"
    if any(_random(each["value"]) for each in _BEARER.finditer(line)):
        return "a token"
    named = (each for pattern in (_SET, _SHELL, _ENV) for each in pattern.finditer(line))
    return "a secret" if any(_is_one(each["name"], each["value"]) for each in named) else None


def _is_one(name: str, value: str) -> bool:
    """Whether a name and its value are a secret's. Of models' tokens (`eos_token`) the value must look drawn."""
    if not _tells(value) or value.lower().strip("-_") == name.lower():
        return False
    vague = re.search(r"token|auth|credential|key_?id", name, re.IGNORECASE)
    return _random(value) if vague else len(value) >= 4


def _tells(value: str) -> bool:
    return _INNOCENT.fullmatch(value.strip("\\")) is None


def _random(value: str) -> bool:
    return (
        len(value) >= 16 and bool(re.search(r"\d", value)) and bool(re.search(r"[A-Za-z]", value)) and " " not in value
    )
