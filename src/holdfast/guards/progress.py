"""How far training episodes come: positive-progress ratio, stagnation, milestones, rates by stage.

Everything is computed from the facts of the episodes that ended in an update (`starts/ended`), so a recorded
run gives the same numbers again. Only episodes that began at a fresh start and were not cut count, and of these only
those that no script played a step of: ground that a snapshot start or a script brought is not the policy's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

from msgspec import Meta

from holdfast.guards.facts import Wanted, restore, state_of
from holdfast.guards.guard import Guard, number
from holdfast.records import Cause, Decision, Signals

Ended = Mapping[str, Any]
"""One entry of `starts/ended`: the start in brief, `steps`, `ended`, and the episode's facts."""
Moved = tuple[str, float, float]
"""A stage, its best now, and its best before."""
ROW = ("reached", "gain", "stall", "clear", "death", "pit", "stagnation", "timeout")
"""What is kept of an episode."""
FLAGS = {
    "clear": "clear",
    "death": "death",
    "pit": "end_death_pit",
    "stagnation": "end_stagnation",
    "timeout": "end_timeout_steps",
}
"""Facts that are 0 or 1, by the name under which their rate is reported."""


def crowd(rows: Iterable[Sequence[float]], near: float) -> tuple[float, float]:
    """Return the share of episodes that ended short of their goal within `near` of each other, and the middle of where."""
    kept = list(rows)
    ends = sorted(row[ROW.index("reached")] for row in kept if not row[ROW.index("clear")])
    most, middle, first = 0, 0.0, 0
    for last, end in enumerate(ends):
        while end - ends[first] > near:
            first += 1
        if last - first + 1 > most:
            most, middle = last - first + 1, 0.5 * (ends[first] + end)
    return most / max(len(kept), 1), middle


def own_episodes(signals: Signals) -> list[Ended]:
    """Return the episodes of this update that the policy played alone from a fresh start to their end."""
    ended: Sequence[Ended] = signals.get("starts/ended") or ()
    whole = [e for e in ended if not e.get("cut")]
    return [e for e in whole if not e.get("snapshot") and not number(e, "scripted")]


def facts_of(episodes: Iterable[Ended], name: str) -> list[float]:
    """Return a fact of the episodes that have it and in which it is finite."""
    found = (number(episode, name) for episode in episodes)
    return [value for value in found if value is not None and math.isfinite(value)]


def _finite(best: float) -> float | None:
    """Return the best, or None before there is one."""
    return best if math.isfinite(best) else None


@dataclass(frozen=True)
class ProgressConfig:
    """What is measured of the progress of training episodes, and when its lack is reported."""

    enabled: bool = False
    """Measure it."""
    fact: str = "best_x"
    """Fact of an episode that says how far it came."""
    gain_fact: str = "ground"
    """Fact of an episode that says what it won; more than 0 is progress."""
    done_fact: str = "clear"
    """Fact of an episode that is above 0 when it reached its goal: always progress."""
    window: Annotated[int, Meta(ge=1)] = 100
    """Episodes over which rates are taken, of all stages and of each."""
    milestone: Annotated[float, Meta(ge=0)] = 256.0
    """Distance between two milestones of the best so far; 0 counts none."""
    near: Annotated[float, Meta(ge=0)] = 48.0
    """Episodes that came no further apart than this ended at the same place."""
    patience: Annotated[int, Meta(ge=0)] = 40
    """Updates without a new best, and without an episode that reached its goal, before the warning; 0 never warns."""


class ProgressGuard(Guard):
    """Measures progress by update and by stage; warns when the best of no stage has moved for a while.

    Reads `starts/ended`. An update in which no episode of the policy's own ended leaves every number as it was
    and only ages the best.
    """

    name = "progress"
    reads_starts = True

    def __init__(self, config: ProgressConfig) -> None:
        self.config = config
        self.bests: dict[str, float] = {}
        """The best of each stage."""
        self.since_best = 0
        self.active = False
        self.totals = {"episodes": 0, "clears": 0}
        self.now: dict[str, float] = {}
        self.recent: deque[list[float]] = deque(maxlen=config.window)
        self.stages: dict[str, deque[list[float]]] = {}
        self.played: dict[str, int] = {}
        """Episodes of each stage in the whole run."""
        self.seen: dict[str, int] = {}
        """Episodes of all stages when each was played last."""
        self._wanted = [
            Wanted(f"guards.progress.{key}", getattr(config, key)) for key in ("fact", "gain_fact")
        ]

    def step(self, signals: Signals) -> list[Decision]:
        own = own_episodes(signals)
        reached = facts_of(own, self.config.fact)
        gains = facts_of(own, self.config.gain_fact)
        for episode in own:
            self._keep(episode)
        if gains:
            self.now["positive_ratio"] = sum(gain > 0 for gain in gains) / len(gains)
            self.now["gain_mean"] = fmean(gains)
        if reached:
            self.now["reached_mean"] = fmean(reached)
            self.now["reached_max"] = max(reached)
        self.now["episodes_now"] = len(own)
        done = any(value > 0 for value in facts_of(own, self.config.done_fact))
        said = [d for one in self._wanted for d in one.look(own, "episodes")]
        return said + self._judge(self._renew(own), done)

    @property
    def best(self) -> float:
        """How far any episode came, in any stage."""
        return max(self.bests.values(), default=-math.inf)

    def _renew(self, episodes: Iterable[Ended]) -> Moved | None:
        """Renew the best of every stage; return the last one that moved."""
        moved, before = None, dict(self.bests)
        for episode in episodes:
            stage = str(episode.get("label") or "")
            for reached in facts_of([episode], self.config.fact):
                if reached > self.bests.get(stage, -math.inf):
                    self.bests[stage] = reached
                    moved = (stage, reached, before.get(stage, -math.inf))
        return moved

    def _keep(self, episode: Ended) -> None:
        row = [
            number(episode, self.config.fact) or 0.0,
            number(episode, self.config.gain_fact) or 0.0,
            number(episode, "stall") or 0.0,
            *(number(episode, fact) or 0.0 for fact in FLAGS.values()),
        ]
        self.totals["episodes"] += 1
        self.totals["clears"] += int(row[ROW.index("clear")])
        self.recent.append(row)
        stage = str(episode.get("label") or "")
        if stage:
            self.stages.setdefault(stage, deque(maxlen=self.config.window)).append(row)
            self.played[stage] = self.played.get(stage, 0) + 1
            self.seen[stage] = self.totals["episodes"]

    def _judge(self, moved: Moved | None, done: bool) -> list[Decision]:
        """Age the best, or begin anew where one moved; return a warning or its end."""
        patience, signal = self.config.patience, f"starts/ended {self.config.fact}"
        if moved is not None or done:
            since, self.since_best = self.since_best + 1, 0
            if not self.active:
                return []
            self.active = False
            stage, reached, before = moved or ("", self.best, self.best)
            cause = Cause(signal, reached, _finite(before), since)
            where = f" in {stage}" if stage else ""
            old = f" at {before:g}" if math.isfinite(before) else ""
            message = f"progress again{where}: {reached:g} after {since} updates{old}"
            if moved is None:
                message = f"progress again: the goal is reached after {since} updates without"
            return [Decision("clear", cause, name="progress", message=message)]
        self.since_best += 1
        if not patience or self.active or self.since_best < patience:
            return []
        self.active = True
        best = _finite(self.best)
        cause = Cause(signal, best, best, self.since_best)
        than = "the best of its stage" if len(self.bests) > 1 else best
        message = f"no episode came further than {than} for {self.since_best} updates"
        return [Decision("warn", cause, name="progress", message=message)]

    def light(self) -> str:
        return "yellow" if self.active else "green"

    def status(self) -> dict[str, Any]:
        """Return the update's ratio and gain, rates over the window, milestones, and the same by stage."""
        best = max(self.best, 0.0)
        apart = self.config.milestone
        passed = int(best // apart) if apart else 0
        found: dict[str, Any] = {
            **self.now,
            "best": best,
            "since_best_updates": self.since_best,
            "episodes_total": self.totals["episodes"],
            "clears_total": self.totals["clears"],
            "milestones": passed,
            "milestone_next": (passed + 1) * apart if apart else -1,
        }
        if self.recent:
            rows = list(zip(*self.recent, strict=True))
            found["stall_steps_mean"] = fmean(rows[ROW.index("stall")])
            found.update({f"{name}_rate": fmean(rows[ROW.index(name)]) for name in FLAGS})
            # A stage that a later phase no longer plays says nothing of today's episodes.
            since = self.totals["episodes"] - self.config.window
            lately = [kept for stage, kept in self.stages.items() if self.seen[stage] > since]
            crowds = [crowd(kept, self.config.near) for kept in lately or [self.recent]]
            found["same_place_rate"], found["same_place"] = max(crowds)
        for stage, kept in self.stages.items():
            rows = list(zip(*kept, strict=True))
            found[f"stage/{stage}/episodes"] = self.played[stage]
            found[f"stage/{stage}/clear_rate"] = fmean(rows[ROW.index("clear")])
            found[f"stage/{stage}/death_rate"] = fmean(rows[ROW.index("death")])
            found[f"stage/{stage}/reached_mean"] = fmean(rows[ROW.index("reached")])
            found[f"stage/{stage}/reached_max"] = max(rows[ROW.index("reached")])
        return found

    def state_dict(self) -> dict[str, Any]:
        # lists, not dicts by stage: labels are free text, and keys become paths in a checkpoint
        return {
            "best": self.best,
            "bests": [[stage, best] for stage, best in self.bests.items()],
            "since_best": self.since_best,
            "active": self.active,
            "totals": dict(self.totals),
            "now": dict(self.now),
            "recent": [list(row) for row in self.recent],
            "stages": [
                [stage, self.played[stage], [list(row) for row in rows]]
                for stage, rows in self.stages.items()
            ],
            "seen": [[stage, episodes] for stage, episodes in self.seen.items()],
            "wanted": state_of(self._wanted),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        window = self.config.window
        self.since_best, self.active = int(state["since_best"]), bool(state["active"])
        self.totals, self.now = dict(state["totals"]), dict(state["now"])
        self.recent = deque(([float(x) for x in row] for row in state["recent"]), maxlen=window)
        self.stages = {
            stage: deque(([float(x) for x in row] for row in rows), maxlen=window)
            for stage, _, rows in state["stages"]
        }
        self.played = {stage: int(count) for stage, count, _ in state["stages"]}
        known = dict.fromkeys(self.stages, self.totals["episodes"])
        self.seen = known | {stage: int(count) for stage, count in state.get("seen", ())}
        self.bests = {
            stage: float(best) for stage, best in state.get("bests") or self._known(state)
        }
        restore(self._wanted, state.get("wanted"))

    def _known(self, state: Mapping[str, Any]) -> list[tuple[str, float]]:
        """Return the best of each stage as far as a state without them tells it."""
        if len(self.stages) > 1:
            place = ROW.index("reached")
            return [(s, max(row[place] for row in rows)) for s, rows in self.stages.items()]
        best = float(state["best"])
        return [(next(iter(self.stages), ""), best)] if math.isfinite(best) else []
