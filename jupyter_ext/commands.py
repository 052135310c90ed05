"""The verbs of `%dl`, one function each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_ext import artifacts, beside, sharing
from jupyter_ext.checkpoints import act_on, add_choice, chosen, listed, verified
from jupyter_ext.job import Job
from jupyter_ext.standing import best_rows, extension
from jupyter_ext.views import table
from jupyter_ext.views.recorded import environment_lines, lock_text
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.facts import known
from kernel_backend.model.ids import Reference, parse_reference
from kernel_backend.model.options import VIEWS, OptionParser
from kernel_backend.model.overview import Overview
from kernel_backend.model.resumption import parse_slots
from kernel_backend.model.values import nearest
from kernel_backend.text import OWNED_HEAD, TABLE_HEAD, hang_text, head_text, search_text, table_row
from kernel_backend.text.given import fact_lines
from kernel_backend.text.kept import ARTIFACT_HEAD, artifact_row, checkpoint_head, checkpoint_row, collected_lines
from kernel_backend.text.terminal import tell

HELP = """%dl VERB ...

  list [TEXT] [--state STATE] [--group]     experiments, the newest first; --group: those of your groups, too
  show 12 [--view widget]                   how it is, with its curves
  logs 12 [--rank 1] [--attempt 2]          what a rank printed
  metrics 12 [--kind validation]            every report, a row each
  facts 12                                  what its result depends on beside code: data, files, first weights
  checkpoints 12 [--verify]                 what has been saved, and why it is kept
  checkpoint ACTION 12 --latest             verify, download, delete, pin or unpin one: --latest, --best or --step S
  artifacts 12 [--get NAME] [--out DIR]     what trials have kept with run.artifact; bring it here
  gc [12] [--dry-run] [--verbose]           delete the checkpoints that the rules let go
  source 12                                 the definition that was submitted
  best 12 [-n 10]                           the best trials of a search, with their hyperparameters
  trials 12 [--sort lr]                     all of them; -lr turns the order round
  promote 12.7 · prune 12.7                 let a trial go on next, or give it up, whatever its rank
  extend 12 --trials 100                    a search goes on: --trials, --budget 20gpuh, --max-time 8h, in all
  env 12 [--lock]                           what it ran with; the requirements with hashes, as pip takes them
  diff 12 13 [--attribute]                  what differs, the likeliest cause first; how much each cause makes
  rerun 12 [lr=0.1] [OPTIONS]               its snapshot again; 12.7: one trial of a search alone
  verify 12                                 its first steps again: do the bits agree?
  history [TEXT] [--limit N]                what has changed from experiment to experiment
  pause 12 · resume 12 [--slots 4] · stop 12
  quota [show user ada] [--all]             what you may have, and have in use; admins: set, clear
  queue                                     what waits, its place and why; queue priority 12 5, queue first 12
  nodes                                     where experiments run, and who; admins: drain n1, undrain n1
  help                                      this text"""


NOTHING_KEPT = "nothing has been kept"


def run_command(tokens: Sequence[str]) -> None:
    """Carry out one `%dl` line; raises InvalidRequest for a verb that is none, with the nearest."""
    if not tokens or tokens[0] in ("help", "--help", "-h"):
        tell(HELP)
        return
    verb, *rest = tokens
    if {"--help", "-h"} & set(rest):
        tell(HELP)
        return
    if verb not in _VERBS:
        raise InvalidRequest(f"%dl has no verb {verb!r}{nearest(verb, _VERBS)}; it has: {' '.join(_VERBS)}")
    _VERBS[verb](rest)


def _show(bundle: dict[str, str]) -> None:
    from IPython.display import display

    display(bundle, raw=True)  # type: ignore[no-untyped-call]


def _list(tokens: Sequence[str]) -> None:
    parser = OptionParser(prog="%dl list", add_help=False)
    parser.add_argument("--state")
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--group", nargs="?", const="")
    parser.add_argument("--owner")
    parser.set_defaults(words=[])
    options = parser.parse_mixed(tokens)
    words = " ".join(options.words) or None
    found = Client.connect().experiments(options.state, words, options.limit, options.owner, options.group)
    now = time.time()
    if options.owner is None and options.group is None:
        _show(table(TABLE_HEAD, [table_row(each, now) for each in found], "no experiments yet"))
    else:
        rows = [table_row(each, now, owner=True) for each in found]
        _show(table(OWNED_HEAD, rows, "no experiments that you may see"))


def _number(verb: str, tokens: Sequence[str], *options: tuple[str, dict[str, Any]]) -> tuple[Reference, Any]:
    parser = OptionParser(prog=f"%dl {verb}", add_help=False)
    for flag, arguments in options:
        parser.add_argument(flag, **arguments)
    parser.set_defaults(words=[])
    found = parser.parse_mixed(tokens)
    if len(found.words) != 1:
        raise InvalidRequest(f"%dl {verb} takes one experiment: write %dl {verb} 12")
    return parse_reference(found.words[0]), found


def _show_one(tokens: Sequence[str]) -> None:
    reference, options = _number("show", tokens, ("--view", {"choices": VIEWS}))
    Job(reference.experiment).show(options.view)


def _logs(tokens: Sequence[str]) -> None:
    flags = [("--rank", {"type": int}), ("--attempt", {"type": int})]
    reference, options = _number("logs", tokens, *flags)
    attempt = reference.attempt if options.attempt is None else options.attempt
    job = Job(reference.experiment)
    trial = reference.trial or Client.connect().front(reference.experiment)
    text, overview = job.logs(options.rank, attempt, trial).rstrip(), job.overview
    newest = next((each.attempt for each in overview.trials if each.index == trial), 0)
    stacks = hang_text(overview, trial, attempt or newest)
    tell("\n".join(part for part in (text, stacks) if part) or "nothing was printed", log=True)


def _metrics(tokens: Sequence[str]) -> None:
    kinds = ["validation", "training", "all"]
    reference, options = _number("metrics", tokens, ("--kind", {"choices": kinds, "default": "all"}))
    kind = None if options.kind == "all" else options.kind
    client, number = Client.connect(), reference.experiment
    reports = client.reports(number, reference.trial or client.front(number), kind)
    names = list(dict.fromkeys(name for report in reports for name in report.metrics))
    rows = [
        (each.kind, str(each.step), f"{each.epoch:.2f}", *(_value(each.metrics.get(name)) for name in names))
        for each in reports
    ]
    _show(table(("kind", "step", "epoch", *names), rows, "no reports yet"))


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _facts(tokens: Sequence[str]) -> None:
    reference, _ = _number("facts", tokens)
    client = Client.connect()
    trial = reference.trial or client.front(reference.experiment)
    facts = known(client.facts(reference.experiment, trial))
    lines = fact_lines(facts, client.source(reference.experiment)[1])
    tell("\n".join(lines) or "nothing is known yet: it is told by a rank that trains")


def _checkpoints(tokens: Sequence[str]) -> None:
    reference, options = _number("checkpoints", tokens, ("--verify", {"action": "store_true"}))
    client = Client.connect()
    found = listed(client, reference)
    if options.verify:
        found = verified(client, found)
    rows = [checkpoint_row(each, found.metric.name, time.time()) for each in found.infos]
    _show(table(checkpoint_head(found.metric.name), rows, "no checkpoints yet"))


def _checkpoint(tokens: Sequence[str]) -> None:
    parser = OptionParser(prog="%dl checkpoint", add_help=False)
    add_choice(parser)
    parser.set_defaults(words=[])
    options = parser.parse_mixed(tokens)
    if len(options.words) != 2:
        raise InvalidRequest("%dl checkpoint takes an action and an experiment: %dl checkpoint verify 12 --latest")
    action, reference = options.words[0], parse_reference(options.words[1])
    client = Client.connect()
    found = listed(client, reference)
    done = act_on(client, found, action, chosen(found, action, options), options)
    tell("\n".join(said for _, said in done) or "no checkpoints yet")


def _artifacts(tokens: Sequence[str]) -> None:
    parser = OptionParser(prog="%dl artifacts", add_help=False)
    artifacts.add_choice(parser)
    parser.set_defaults(words=[])
    options = parser.parse_mixed(tokens)
    if len(options.words) != 1:
        raise InvalidRequest("%dl artifacts takes one experiment, or one trial: write %dl artifacts 12")
    client, reference = Client.connect(), parse_reference(options.words[0])
    found = artifacts.listed(client, reference)
    if options.get or options.out:
        tell("\n".join(map(str, artifacts.brought(client, reference, found, options))) or NOTHING_KEPT)
    else:
        _show(table(ARTIFACT_HEAD, [artifact_row(each, time.time()) for each in found], NOTHING_KEPT))


def _gc(tokens: Sequence[str]) -> None:
    parser = OptionParser(prog="%dl gc", add_help=False)
    for flag in ("--dry-run", "--verbose"):
        parser.add_argument(flag, action="store_true")
    parser.set_defaults(words=[])
    options = parser.parse_mixed(tokens)
    if len(options.words) > 1:
        raise InvalidRequest("%dl gc takes one experiment, or none for all: %dl gc 12 --dry-run")
    number = parse_reference(options.words[0]).experiment if options.words else None
    found = Client.connect().collect(number, options.dry_run)
    tell("\n".join(collected_lines(found, options.dry_run, options.verbose)))


def _source(tokens: Sequence[str]) -> None:
    reference, _ = _number("source", tokens)
    tell(Job(reference.experiment).source().rstrip())


def _env(tokens: Sequence[str]) -> None:
    reference, options = _number("env", tokens, ("--lock", {"action": "store_true"}))
    found = Client.connect().environment(reference.experiment)
    tell(lock_text(found, reference.experiment) if options.lock else "\n".join(environment_lines(found)))


def _shared(verb: str) -> Callable[[Sequence[str]], None]:
    def act(tokens: Sequence[str]) -> None:
        answer, add_options = sharing.ACTS[verb]
        parser = OptionParser(prog=f"%dl {verb}", add_help=False)
        add_options(parser)
        parser.set_defaults(words=[])
        options = parser.parse_mixed(tokens)
        found = answer(Client.connect(), options.words, options, f"%dl {verb}")
        if found.head:
            _show(table(found.head, found.rows, found.empty))
        if found.lines:
            tell("\n".join(found.lines))

    return act


def _best(tokens: Sequence[str]) -> None:
    reference, options = _number("best", tokens, ("-n", {"type": int, "default": 10}))
    _table(reference, options.n, "best")


def _trials(tokens: Sequence[str]) -> None:
    flags: list[tuple[str, dict[str, Any]]] = [("--sort", {"default": "trial"}), ("-n", {"type": int, "default": 1000})]
    reference, options = _number("trials", tokens, *flags)
    _table(reference, options.n, options.sort)


def _table(reference: Reference, count: int, sort: str) -> None:
    head, rows = best_rows(Client.connect(), reference.experiment, count, sort)
    _show(table(head, rows, "no trials yet"))


def _steer(verb: str) -> Callable[[Sequence[str]], None]:
    def act(tokens: Sequence[str]) -> None:
        reference, _ = _number(verb, tokens)
        if reference.trial is None:
            raise InvalidRequest(f"{verb} is about one trial: write %dl {verb} {reference.experiment}.7")
        _tell(getattr(Client.connect(), verb)(reference.experiment, reference.trial))

    return act


def _extend(tokens: Sequence[str]) -> None:
    flags: list[tuple[str, dict[str, Any]]] = [("--trials", {"type": int}), ("--budget", {}), ("--max-time", {})]
    reference, options = _number("extend", tokens, *flags)
    asked = extension(options.trials, options.budget, options.max_time)
    _tell(Client.connect().extend(reference.experiment, asked))


def _tell(overview: Overview) -> None:
    tell("\n".join([head_text(overview, time.time()), search_text(overview)]))


def _act(verb: str) -> Callable[[Sequence[str]], None]:
    def act(tokens: Sequence[str]) -> None:
        reference, _ = _number(verb, tokens)
        overview = getattr(Client.connect(), verb)(reference.experiment)
        tell(head_text(overview, time.time()))

    return act


def _resume(tokens: Sequence[str]) -> None:
    reference, options = _number("resume", tokens, ("--slots", {"type": parse_slots}))
    job = Job(reference.experiment).resume(options.slots)
    tell(head_text(job.overview, time.time()))


_VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "list": _list,
    "show": _show_one,
    "logs": _logs,
    "metrics": _metrics,
    "facts": _facts,
    "checkpoints": _checkpoints,
    "checkpoint": _checkpoint,
    "artifacts": _artifacts,
    "gc": _gc,
    "source": _source,
    "best": _best,
    "trials": _trials,
    "promote": _steer("promote"),
    "prune": _steer("prune"),
    "extend": _extend,
    "env": _env,
    "diff": beside.diff,
    "rerun": beside.rerun,
    "verify": beside.verify,
    "history": beside.history,
    "pause": _act("pause"),
    "resume": _resume,
    "stop": _act("stop"),
    "quota": _shared("quota"),
    "queue": _shared("queue"),
    "nodes": _shared("nodes"),
}
