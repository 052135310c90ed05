"""The verbs of `%dl` that lay experiments beside each other."""

from __future__ import annotations

import time
from collections.abc import Sequence

from jupyter_ext.again import plan, verdict_text
from jupyter_ext.attribute import attribute
from jupyter_ext.host import headless, this_shell
from jupyter_ext.views.beside import attribution_bundle, diff_bundle, history_bundle
from jupyter_ext.waiting import show, wait
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.assignments import parse_assignments
from kernel_backend.model.ids import parse_reference, whole
from kernel_backend.model.options import OptionParser, add_rerun_options, add_trust
from kernel_backend.model.overview import Overview
from kernel_backend.model.spelling import given_settings
from kernel_backend.model.trial import checkpoint_step
from kernel_backend.text.terminal import tell


def diff(tokens: Sequence[str]) -> None:
    """`%dl diff 41 97 [--attribute]`."""
    parser = OptionParser(prog="%dl diff", add_help=False)
    parser.add_argument("--attribute", action="store_true")
    parser.set_defaults(words=[])
    options = parser.parse_mixed(tokens)
    if len(options.words) != 2:
        raise InvalidRequest("%dl diff takes two experiments: write %dl diff 41 97")
    a, b = (whole(parse_reference(word)) for word in options.words)
    client = Client.connect()
    _display(
        attribution_bundle(attribute(client, a, b, print)) if options.attribute else diff_bundle(client.diff(a, b))
    )


def rerun(tokens: Sequence[str]) -> None:
    """`%dl rerun 41 lr=0.1`, and `%dl rerun 12.7` of one trial of a search."""
    parser = OptionParser(prog="%dl rerun", add_help=False)
    add_rerun_options(parser, "notebook")
    parser.set_defaults(words=[])
    options = parser.parse_mixed(tokens)
    if not options.words or "=" in options.words[0]:
        raise InvalidRequest("%dl rerun takes an experiment first: write %dl rerun 41 lr=0.1")
    number, trial, _ = parse_reference(options.words[0])
    client = Client.connect()
    params, settings = parse_assignments(options.words[1:]), given_settings(options)
    planned = plan(client, number, params, settings, options.name, options.data or (), trial, options.trust)
    overview = client.rerun(number, planned.asked)
    captured = [f"the snapshot of #{number}{f'.{trial}' if trial else ''} again", *planned.notes]
    nobody_looks = headless(this_shell())
    if nobody_looks if options.wait is None else options.wait:
        wait(client, overview, captured, plain=nobody_looks, quiet=options.quiet)
        if trial in (None, 1):  # there is nothing to compare others with
            _say_verdict(client, overview)
    else:
        show(client, overview, captured)


def verify(tokens: Sequence[str]) -> None:
    """`%dl verify 41`: returns when it is known."""
    parser = OptionParser(prog="%dl verify", add_help=False)
    add_trust(parser)
    options = parser.parse_mixed(tokens)
    if len(options.words) != 1:
        raise InvalidRequest("%dl verify takes one experiment: write %dl verify 41")
    number = whole(parse_reference(options.words[0]))
    client = Client.connect()
    planned = plan(client, number, {}, {}, trust=options.trust)
    overview = client.retrain(number, planned.asked)
    config = overview.experiment.config
    since = overview.experiment.begins_from
    begins = f"step {checkpoint_step(since.partition('/')[2])}" if since else "the beginning"
    captured = [f"#{number} again from {begins} to step {config.until}", *planned.notes]
    wait(client, overview, captured, plain=headless(this_shell()), quiet=False)
    _say_verdict(client, overview, verifies=True)


def history(tokens: Sequence[str]) -> None:
    """`%dl history digits`."""
    parser = OptionParser(prog="%dl history", add_help=False)
    parser.add_argument("--limit", type=int, default=20)
    parser.set_defaults(words=[])
    options = parser.parse_mixed(tokens)
    found = Client.connect().history(" ".join(options.words) or None, options.limit)
    _display(history_bundle(found, time.time()))


def _say_verdict(client: Client, overview: Overview, verifies: bool = False) -> None:
    origin = overview.experiment.rerun_of
    assert origin is not None
    if client.experiment(overview.experiment.number).ended:
        tell(verdict_text(client.diff(origin, overview.experiment.number), verifies))


def _display(bundle: dict[str, str]) -> None:
    from IPython.display import display

    display(bundle, raw=True)  # type: ignore[no-untyped-call]
