"""Test that snapshots never contain secrets: a likely one is refused, and the message never repeats it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_ext.capture import capture_cell, capture_file
from jupyter_ext.magics import magics
from jupyter_ext.project import Imported
from jupyter_ext.submit.submit import PreparedSubmission, Session, SubmitOptions, check, describe
from kernel_backend.errors import CaptureError
from kernel_backend.model.labels import Labels
from kernel_backend.model.search.space import UNSEARCHED
from kernel_backend.secret_scan import find_secrets, is_secret, known_secrets
from kernel_backend.snapshots.archive import pack_snapshot
from kernel_backend.spec.assignments import parse_line

LONG = "abcdefghij" * 4
PASSWORD = "correcthorse7"
ROLES = "def model(): return {}\ndef train_data(): ...\ndef loss(): ...\n"

SECRETS = [
    'x = "AKIAIOSFODNN7ABCDEFG"',
    f't = "ghp_{LONG}"',
    f"github_pat_{LONG}",
    f"glpat-{LONG}",
    f"sk-ant-{LONG}",
    f"sk-proj-{LONG}",
    f"hf_{LONG}",
    "xoxb-1234567890-abc",
    "AIza" + "b" * 35,
    "-----BEGIN RSA PRIVATE KEY-----",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3.SflKxwRJSMeKKF2QT4",
    'password = "hunter2"',
    "connect(user='ada', password='hunter2')",
    '{"api_key": "9f8d7c6b5a"}',
    'API_KEY: str = "9f8d7c6b5a"',
    'os.environ["MY_API_KEY"] = "abc123"',
    'os.environ.setdefault("WANDB_API_KEY", "abc123zz")',
    "postgres://ada:hunter2@db/x",
    'token = "f81d4fae7dec11d0a765"',
    "# %env API_KEY=abc123",
    "%env API_TOKEN abcdef123456789012",
    "export DB_PASSWORD=hunter2",
    'headers = {"Authorization": "Bearer f81d4fae7dec11d0a765"}',
    'def f(secret="hunter2"): ...',
    '"password = \\"hunter2\\"\\n"',
    'wandb.login(key="9f8d7c6b5a9f8d7c6b5a9f8d7c6b5a9f8d7c6b5a")',
    'requests.get(url, auth=("dave", "hunter2xyz"))',
    'password = f"hunter2{suffix}"',
    'password = rb"hunter2"',
    'if pw := "hunter2": ...',
    "AccountName=a;AccountKey=aGVsbG8gd29ybGQgMTIzNDU2Nzg5MA==;EndpointSuffix=x",
    "https://a.blob.core.windows.net/c?sv=2022&sig=aGVsbG8gd29ybGQgMTIzNDU2%3D",
    "'Authorization: Token 9f8d7c6b5a9f8d7c6b5a9f8d'",
    "https://9f8d7c6b5a9f8d7c6b5a@github.com/a/b",
    "--data = 'https://b.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature=9f8d7c6b5a9f8d7c'",
    "--data = 'https://host/x?token=9f8d7c'",
    'password = "correct horse battery staple"',
    'password = "test1234secretreal"',
    'password = "my-real-P4ss"',
    f"{'x = 1; ' * 30_000}password = 'hunter2'; {'y = 1; ' * 30_000}",
]
BARE = [
    "password: hunter2xyz",
    "  db_password: hunter2xyz  # of the database",
    "api_key = 9f8d7c6b5a",
    "spring.datasource.password=hunter2xyz",
    "- token: 9f8d7c6b5a9f8d7c6b5a",
]
NONE = [
    'password = ""',
    'password = "..."',
    'api_key="xxx"',
    "api_key='<token>'",
    'key = os.environ["API_KEY"]',
    'api_key = os.getenv("API_KEY", "")',
    'password = getpass("Password: ")',
    'eos_token = "</s>"',
    'pad_token="[PAD]"',
    'tokenizer = "bert-base-uncased"',
    'token = "hello"',
    'sort(key="name")',
    'api_key = "your-api-key"',
    'password="{password}"',
    "https://host:8080/x@y",
    "http://user:<password>@h",
    "risk-free-lunch-and-a-long-name",
    'password = "hunter2"  # daylight: not a secret',
    'assert password == "hunter2"',
    'token_type="absolute"',
    'author = "Ada Lovelace"',
    'private_key = "keys/id.pem"',
    'os.environ["PWD"] = "/home/x1"',
    'hidden_secret = "layer4"',
    'password = "Enter the password: "',
    'password = f"{password}"',
    'x = {"key": "bert-base-uncased-finetuned-on-everything"}',
    "https://host/x?token=yes&page=2",
    "password: str2",
    'if statement.sets_secret:\n    text = "what it sets"',
]
NONE_BARE = ["password: string", "secret: my-secret-name", "max_tokens: 512000", "token: bearer", "auth: ${TOKEN_1}"]


@pytest.mark.parametrize("text", SECRETS)
def test_what_looks_like_a_secret_is_found_on_its_line(text: str):
    ((line, _),) = find_secrets(f"\n{text}\n")
    assert line == 2


@pytest.mark.parametrize("text", NONE)
def test_placeholders_and_other_words_are_none(text: str):
    assert find_secrets(text) == []


@pytest.mark.parametrize("text", BARE)
def test_a_file_that_is_no_code_needs_no_quotes(text: str):
    ((line, _),) = find_secrets(f"\n{text}\n", code=False)
    assert line == 2
    assert not find_secrets("def f(password: hunter2xyz): ...")


@pytest.mark.parametrize("text", NONE_BARE)
def test_placeholders_without_quotes_are_none(text: str):
    assert find_secrets(text, code=False) == []


@pytest.mark.parametrize("text", ['password = (\n    "hunter2xyz"\n)', 'f(\n    password=\n    "hunter2xyz")'])
def test_a_value_may_stand_on_the_line_after(text: str):
    assert [kind for _, kind in find_secrets(text)] == ["a secret"]
    assert not find_secrets(text.replace('xyz"', 'xyz"  # daylight: not a secret'))


def test_the_value_of_a_secret_variable_is_known_wherever_it_stands():
    others = {
        "HOME": "/home/ada",
        "SHORT_KEY": "ab",
        "A_TOKEN": "..." * 3,
        "KEY_FILE": "/etc/keys",
        "KEYRING": "backends",
    }
    known = known_secrets({"WANDB_API_KEY": "plain words", **others})
    assert known == ["plain words"]
    assert find_secrets("x = 'plain words'", known) == [(1, "the value of a secret variable")]


def archived(checked: PreparedSubmission) -> bytes:
    return pack_snapshot(checked.capture.source, describe(checked), checked.files)[1]


def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> PreparedSubmission:
    """Return a checked cell in which a secret is hidden in one of several ways."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    cells, namespace, captured, include, given = list[str](), dict[str, object](), list[str](), list[str](), {}
    space = UNSEARCHED
    name = f"helpers_{way.replace(' ', '_')}"
    target = ROLES.format("x")
    match way:
        case "definition":
            cells = [f"x = dict(password='{PASSWORD}')"]
        case "comment":
            target = f"# password = '{PASSWORD}'\n" + ROLES.format("1")
        case "module":
            cells = [f"import {name} as x"]
            (tmp_path / f"{name}.py").write_text(f"db = 'sql://ada:{PASSWORD}@host'\n")
        case "file beside a package":
            cells = [f"import {name} as x"]
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("")
            (tmp_path / name / "settings.json").write_text(f'{{"password": "{PASSWORD}"}}')
        case "included":
            target, include = ROLES.format("1"), ["conf.yaml"]
            (tmp_path / "conf.yaml").write_text(f"db:\n  password: '{PASSWORD}'\n")
        case "captured json":
            namespace, captured = {"x": {"password": PASSWORD}}, ["x"]
        case "captured pickle":
            namespace, captured = {"x": {1: f"sql://ada:{PASSWORD}@host"}}, ["x"]
        case "captured object":
            namespace, captured = {"x": argparse.Namespace(url=f"sql://ada:{PASSWORD}@host")}, ["x"]
        case "captured array":
            namespace, captured = {"x": np.array(["a", f"sql://ada:{PASSWORD}@host", ""])}, ["x"]
        case "captured table":
            namespace, captured = {"x": pd.DataFrame({"url": [f"sql://ada:{PASSWORD}@host"]})}, ["x"]
        case "captured by its name":
            namespace, captured, target = {"api_key": PASSWORD}, ["api_key"], ROLES.format("api_key")
        case "hyperparameter":
            given = {"password": PASSWORD}
            target = ROLES.format("1").replace("model()", "model(password)")
        case "choice":
            space = parse_line([f"password={PASSWORD},other"]).space
            target = ROLES.format("1").replace("model()", "model(password)")
        case "written in":
            namespace = {"x": {"password": PASSWORD}}
        case "value of a variable":
            monkeypatch.setenv("MY_TOKEN", PASSWORD)
            cells = [f"x = ['{PASSWORD}']"]
    capture = capture_cell(cells, target, namespace, captured=captured)
    return check(
        capture, given, SubmitOptions(include=tuple(include)), session=Session(namespace, Imported()), space=space
    )


@pytest.mark.parametrize(
    ("way", "place"),
    [
        ("definition", "cell [1] line 1 holds what looks like a secret"),
        ("comment", "cell [1] line 1 holds"),
        ("module", "helpers_module.py line 1 holds what looks like a password in a URL"),
        ("file beside a package", "settings.json line 1 holds"),
        ("included", "conf.yaml line 2 holds"),
        ("captured json", "--capture x: it holds"),
        ("captured pickle", "--capture x: it holds"),
        ("captured object", "--capture x holds"),
        ("captured array", "--capture x holds"),
        ("captured table", "--capture x holds"),
        ("captured by its name", "--capture api_key: its name says"),
        ("hyperparameter", "password=... on the line holds"),
        ("choice", "password=... on the line holds"),
        ("written in", "uses 'x' (line 1), which no executed cell defines"),
        ("value of a variable", "cell [1] line 1 holds what looks like the value of a secret variable"),
    ],
)
def test_a_planted_secret_is_refused_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, place: str
):
    with pytest.raises(CaptureError) as raised:
        planted(tmp_path, monkeypatch, way)
    assert place in raised.value.message
    assert PASSWORD not in str(raised.value.to_json())


def test_secrets_that_nothing_needs_stay_behind_and_stop_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "__init__.py").write_text("")
    (tmp_path / "packed" / ".env").write_text(f"API_KEY={PASSWORD}")
    (tmp_path / ".gitignore").write_text("credentials.json")
    (tmp_path / "packed" / "credentials.json").write_text(f'{{"password": "{PASSWORD}"}}')
    cells = [
        f"password = '{PASSWORD}'",
        f"%env API_KEY={PASSWORD}",
        f"%env PLAIN_NAME=sql://ada:{PASSWORD}@host",
        f"import os\nos.environ['DB'] = 'sql://ada:{PASSWORD}@host'",
        f"!curl -H 'password: {PASSWORD}' host",
        f"cfg = {{'password': os.environ.get('NOWHERE', ''), 'k': {len(PASSWORD)}}}\nimport packed",
    ]
    held = {"cfg": {"password": PASSWORD, "k": len(PASSWORD)}, "packed": 1}
    capture = capture_cell(cells, ROLES.format("cfg, packed"), held)
    checked = check(capture, {}, session=Session(held, Imported()))
    assert PASSWORD.encode() not in archived(checked)
    assert sum("looks like a secret and stays out" in warning for warning in checked.warnings) == 3
    assert not checked.state


def test_a_line_may_say_that_it_holds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("password = 'hunter2'  # daylight: not a secret\n" + ROLES.format("1"))
    check(capture_file(tmp_path / "train.py"), {}, file=tmp_path / "train.py")


def test_a_dry_run_refuses_too(capsys: pytest.CaptureFixture[str]):
    shell: Any = InteractiveShell()
    magics.load(shell)
    shell.run_cell(f"key = dict(password='{PASSWORD}')", store_history=True)
    result = shell.run_cell(f"%%dlsubmit --dry-run\n{ROLES.format('key')}", store_history=True)
    magics.unload(shell)
    assert "cell [1] line 1 holds what looks like a secret" in str(result.error_in_exec)
    assert PASSWORD not in capsys.readouterr().out


TOKEN = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ"


@pytest.mark.parametrize(
    ("asked", "place", "way_out"),
    [
        (
            SubmitOptions(labels=Labels(name=TOKEN)),
            "--name on the line holds what looks like a Hugging Face token",
            "Call it something else",
        ),
        (SubmitOptions(labels=Labels(note=f"with {TOKEN}")), "--note on the line holds", "Write the note without it"),
        (SubmitOptions(labels=Labels(tags=("draft", TOKEN))), "--tag on the line holds", "Choose another tag"),
        (SubmitOptions(commits=(TOKEN,)), "--commit on the line holds", "Write the version alone"),
        (
            SubmitOptions(data=(f"https://ada:{PASSWORD}@host/x",)),
            "--data on the line holds",
            "Write the address alone",
        ),
    ],
)
def test_a_secret_in_an_option_is_refused_and_neither_looked_up_nor_repeated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: SubmitOptions,
    place: str,
    way_out: str,
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CaptureError) as raised:
        check(capture_cell([], ROLES.format("1")), {}, asked)
    said = str(raised.value.to_json()) + "".join(capsys.readouterr())
    assert place in said
    assert way_out in said
    assert "hyperparameter" not in said
    assert TOKEN not in said
    assert PASSWORD not in said
    assert len(raised.value.message.split("\n")) == 1


def test_a_secret_that_shares_its_line_with_what_is_needed_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    capture = capture_cell([f"import os; os.environ['HF_TOKEN'] = '{TOKEN}'"], ROLES.format("os"))
    assert TOKEN.encode() not in archived(check(capture, {}))
    assert capture.source.startswith("# cell [1]\nimport os\n\n")


def test_too_large_a_project_hides_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "big.bin").write_bytes(bytes(5000))
    (tmp_path / "conf" / "keys.txt").write_text("AKIA" + "ABCDEFGHIJKLMNOP")
    with pytest.raises(CaptureError) as raised:
        check(capture_cell([], ROLES.format("1")), {}, SubmitOptions(include=("conf",), limit=1000))
    assert "more than 1.0 kB" in raised.value.message
    assert "conf/keys.txt line 1 holds what looks like an AWS access key" in raised.value.message


def test_what_stays_behind_is_told_once_in_a_kernel_and_not_kept_with_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    capture = capture_cell([f"%env MY_API_TOKEN={PASSWORD}"], ROLES.format("1"))
    first = check(capture, {}, session=Session({}, Imported()))
    assert [each for each in first.passing if each.startswith("MY_API_TOKEN, set by %env in cell [1]")]
    assert set(first.passing) <= set(first.warnings)
    assert not any("MY_API_TOKEN" in each for each in describe(first).warnings)
    again = check(capture, {}, session=Session({}, Imported(), told=capture.kept_out))
    assert again.passing == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "hunter2xyz"),
        ("hfToken", "hunter2xyz"),
        ("GITHUBTOKEN", "hunter2xyz"),
        ("WANDB_API_KEY", "swordfish"),
        ("APIKEY", "swordfish"),
        ("API_KEYS", ["swordfish"]),
        ("PGPASSWORD", "swordfish"),
        ("db_password", "1234"),
        ("client_secret", b"swordfish"),
        ("credentials", {"user": "Ada Lovelace2"}),
        ("key", "9f8d7c6b5a"),
    ],
)
def test_a_name_says_by_a_whole_word_that_its_value_is_a_secret(name: str, value: object):
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("tokens", ["swordfish9x"]),
        ("keypoints", "swordfish9x"),
        ("keys", ["swordfish9x"]),
        ("monkey_business", "swordfish9x"),
        ("secretary", "swordfish9x"),
        ("MAX_TOKEN", "512"),
        ("token", [1, 2, 3]),
        ("token", np.ones(3)),
        ("sort_key", "name"),
        ("eos_token", "</s>"),
        ("KEY_FILE", "/etc/keys/id9x"),
        ("API_KEY", ""),
        ("HF_TOKEN", "..."),
    ],
)
def test_other_names_and_values_are_none(name: str, value: object):
    assert not is_secret(name, value)


def test_values_that_are_merely_called_so_are_compared_and_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    cells = [
        "tokens = ['a', 'b']\nkeypoints = [1, 2]\nkey = 'name'",
        "%env TOKENIZERS_PARALLELISM=false",
        "import os\nos.environ['TOKENIZERS_PARALLELISM'] = 'true'",
        "os.environ.setdefault('MAX_TOKENS', '5')",
        f"os.environ['HF_TOKEN'] = '{PASSWORD}'",
        "os.environ.update(MY_KEY=tokens[0], OTHER='1')",
        "hf_token = input(); os.environ['OTHER'] = hf_token",
    ]
    held = {"tokens": ["a", "b"], "keypoints": [1, 2], "key": "name"}
    checked = check(capture_cell(cells, ROLES.format("tokens, keypoints, key")), {}, session=Session(held, Imported()))
    assert set(checked.state) == {"tokens", "keypoints", "key"}
    assert checked.capture.environment == {"TOKENIZERS_PARALLELISM": "false"}
    assert "os.environ['TOKENIZERS_PARALLELISM'] = 'true'" in checked.capture.source
    assert "'MAX_TOKENS', '5'" in checked.capture.source
    assert not any(each in checked.capture.source for each in ("HF_TOKEN", "MY_KEY", "hf_token"))
    assert sum("sets what looks like a secret" in each for each in checked.capture.kept_out) == 3
