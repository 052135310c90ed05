"""The verb about what trials have kept: list it, and bring it here."""

from __future__ import annotations

import time
from argparse import Namespace

from kernel_backend.cli.output import print_json, print_table, tell
from kernel_backend.cli.verb import OK, Verb, takes_json, takes_one
from kernel_backend.client import Client
from kernel_backend.model.options import OptionParser
from kernel_backend.text.kept import ARTIFACT_HEAD, artifact_row


def _artifacts(options: Namespace) -> int:
    from jupyter_ext.artifacts import brought, listed

    client = Client.connect()
    found = listed(client, options.reference)
    if options.get or options.out:
        files = [str(file) for file in brought(client, options.reference, found, options)]
        if options.json:
            print_json({"files": files})
        else:
            tell("\n".join(files) or "nothing has been kept")
    elif options.json:
        print_json({"artifacts": found})
    else:
        print_table(ARTIFACT_HEAD, [artifact_row(each, time.time()) for each in found], "nothing has been kept")
    return OK


def _arguments(parser: OptionParser) -> None:
    from jupyter_ext.artifacts import add_choice

    takes_one(parser)
    add_choice(parser)
    takes_json(parser)


ARTIFACTS = Verb(
    "artifacts",
    "list what trials have kept with run.artifact, or bring it here",
    _artifacts,
    _arguments,
    ("artifacts 12", "artifacts 12.7 --get architecture", "artifacts 12 --out pictures"),
)
