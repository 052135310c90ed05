"""All executed statements in order, indexed by what they bind and what they may change."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence

from jupyter_ext.capture.facts import Statement
from jupyter_ext.capture.follow import Follower


class History:
    """A time is an index of `executed`; `displayed` are those of statements whose value the notebook showed."""

    def __init__(self, executed: Sequence[Statement], displayed: Collection[int] = ()) -> None:
        self.executed = executed
        self.binders: dict[str, list[int]] = defaultdict(list)
        self.changers: dict[str, list[int]] = defaultdict(list)
        self.binds: list[dict[str, bool]] = []  # by time: name -> only perhaps
        self.read: list[set[str]] = []  # by time, through the functions that are called
        self.ambient: list[int] = []
        self.by_chance: set[int] = set()  # times of what comes out otherwise in each process
        self.by_hash: set[int] = set()  # of what does perhaps, for it depends on the order of a set
        self.asking: list[int] = []  # those that ask the user
        self.stars: list[int] = []
        self.settings: dict[str, list[int]] = defaultdict(list)  # by package: times of what sets something in it
        self.unseen: list[int] = []  # those that run a text which is made when they run
        follower = Follower(counts_subclasses=any(statement.counts_subclasses for statement in executed))
        for time, statement in enumerate(executed):
            done = follower.run(statement, displayed=time in displayed)
            # Random numbers are drawn from a state that a seed has made and each draw changes.
            drawn = {state for state in done.drawn if state in self.binders}
            if done.by_chance or not done.surely_drawn <= self.binders.keys() | done.seeded:
                self.by_chance.add(time)
            if done.by_hash:
                self.by_hash.add(time)
            binds = {**dict.fromkeys(done.bound, True), **statement.binds, **dict.fromkeys(done.seeded, False)}
            self.binds.append(binds)
            self.read.append(done.read | drawn)
            for name in binds:
                self.binders[name].append(time)
            for name in done.changed | drawn:
                self.changers[name].append(time)
            for package in done.packages:
                self.settings[package].append(time)
            if done.ambient:
                self.ambient.append(time)
            if done.asks:
                self.asking.append(time)
            if done.unseen:
                self.unseen.append(time)
            if statement.star:
                self.stars.append(time)
                for name in _star_names(statement):
                    binds[name] = False
                    self.binders[name].append(time)


def _star_names(statement: Statement) -> set[str]:
    """What `from x import *` binds, as far as the module is loaded."""
    found: set[str] = set()
    for node in statement.nodes:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            module = sys.modules.get(node.module or "")
            public = [name for name in vars(module) if not name.startswith("_")] if module else []
            found |= set(getattr(module, "__all__", public))
    return found
