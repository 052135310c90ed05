"""Index executed statements by the names that they bind or may change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from jupyter_ext.capture.facts import Statement
from jupyter_ext.capture.follow import Follower
from jupyter_ext.capture.loaded import star_names


class History:
    """Index of executed statements by name; a *time* is an index into `executed`.

    `displayed` holds the times of statements whose value the notebook showed, and `data` the names whose values in the
    notebook are data that no training changes, such as a table that was loaded.
    """

    def __init__(
        self, executed: Sequence[Statement], displayed: Collection[int] = (), data: Collection[str] = ()
    ) -> None:
        self.executed = executed
        self.binders: dict[str, list[int]] = defaultdict(list)
        self.changers: dict[str, list[int]] = defaultdict(list)
        self.binds: list[dict[str, bool]] = []  # by time: name -> True if only in a branch
        self.read: list[set[str]] = []  # by time: names read by the functions that it calls
        self.drawn: list[set[str]] = []  # by time: random states it certainly draws from without seeding them
        self.ambient: list[int] = []
        self.by_chance: set[int] = set()  # times of statements whose result differs in each process
        self.by_hash: set[int] = set()  # times of statements whose result may depend on the order of a set
        self.prompting: list[int] = []  # times of statements that prompt the user
        self.stars: list[int] = []
        self.settings: dict[str, list[int]] = defaultdict(
            list
        )  # by package: times of statements that change its settings
        self.unseen: list[int] = []  # times of statements that run code generated at run time
        self.too_intricate: list[int] = []  # times of statements whose effects were assumed
        follower = Follower(counts_subclasses=any(statement.counts_subclasses for statement in executed))
        last = {name: time for time, statement in enumerate(executed) for name in statement.binds}
        for time, statement in enumerate(executed):
            done = follower.run(statement, displayed=time in displayed)
            follower.know_data([name for name in statement.binds if name in data and last[name] == time])
            # A draw depends on the last seed and on all draws since then.
            drawn = {state for state in done.drawn if state in self.binders}
            if done.by_chance or not done.surely_drawn <= self.binders.keys() | done.seeded | done.perhaps_seeded:
                self.by_chance.add(time)
            if done.by_hash:
                self.by_hash.add(time)
            perhaps = dict.fromkeys(done.bound | done.perhaps_seeded, True)
            binds = {**perhaps, **statement.binds, **dict.fromkeys(done.seeded, False)}
            self.binds.append(binds)
            self.read.append(done.read | drawn)
            self.drawn.append(done.surely_drawn - done.seeded)
            for name in binds:
                self.binders[name].append(time)
            for name in done.changed | drawn:
                self.changers[name].append(time)
            for package in done.packages:
                self.settings[package].append(time)
            if done.ambient:
                self.ambient.append(time)
            if done.prompts:
                self.prompting.append(time)
            if done.too_intricate:
                self.too_intricate.append(time)
            if done.unseen:
                self.unseen.append(time)
            if statement.star:
                self.stars.append(time)
                for name in star_names(statement.nodes):
                    binds[name] = False
                    self.binders[name].append(time)

    def names_at(self, time: int) -> set[str]:
        """Return the names that the statement at index `time` binds or may change."""
        return {*self.binds[time], *(name for name, times in self.changers.items() if time in times)}
