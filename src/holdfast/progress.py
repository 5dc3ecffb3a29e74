"""The clock of a run, the averages of its recent episodes, and which starts came and went."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.probes.pre_roll import circular
from holdfast.probes.rank import Rule
from holdfast.probes.runner import returns_of
from holdfast.records import Episode, EvalReport
from holdfast.worlds.contract import World

WINDOW = 100
"""Finished episodes over which the episode signals are averaged."""


@dataclass
class Progress:
    """The clock of a run and its best probe so far."""

    update: int = 0
    env_steps: int = 0
    episodes: int = 0
    uncut: int = 0
    """Episodes that came to their own end."""
    best_value: float = -math.inf
    best_rank: list[float] = field(default_factory=list)
    """What the rule of `probe.best_by` made of the best probe."""
    best_update: int = 0
    probes: int = 0
    probe_at: int = 0
    """Update after which a guard has asked for a probe."""
    last_probe: dict[str, Any] = field(default_factory=dict)
    """Seeds and per-episode values of the last probe, with which the next one is paired."""
    built: int = 1
    """How many times the world was built."""
    trained: dict[str, int] = field(default_factory=dict)
    """Environment steps that each role has learned from."""
    evaluated: dict[str, int] = field(default_factory=dict)
    """The same at the last evaluation of self-play."""
    turned: dict[str, float] = field(default_factory=dict)
    """World values that guards have set; they hold across phases and in probes."""
    entropy: float | None = None
    """Weight of the entropy bonus that the schedule has set last; guards may have turned it since."""
    finished: str = ""
    """Why a guard has ended the run; it does not go on."""
    recent: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Facts of the last episodes that came to their own end."""

    def add(self, episodes: Sequence[Episode], world: str, roles: Sequence[str] = ()) -> None:
        """Remember the facts of episodes that came to their own end; `roles` are those of a game's slots."""
        self.episodes += len(episodes)
        whole = [episode for episode in episodes if not episode.cut]
        self.uncut += len(whole)
        of_roles = returns_of(roles, whole)
        for k, episode in enumerate(whole):
            facts = {
                **{f"episode/{name}": values[k] for name, values in of_roles.items()},
                "episode/return_mean": float(episode.returns.mean()),
                "episode/length_steps": float(episode.steps),
            }
            facts.update({f"{world}/{k}": float(v) for k, v in episode.facts.items()})
            self.recent.append(facts)

    def averages(self) -> dict[str, float]:
        """Return the means over the recent episodes."""
        found: dict[str, float] = {}
        for key in sorted({key for facts in self.recent for key in facts}):
            values = [facts[key] for facts in self.recent if key in facts]
            found[key] = mean_fact(key, values)
            if key.endswith("/first_death_step") and found[key] >= 0:
                name = key.removesuffix("step") + "p10"
                found[name] = float(np.percentile([v for v in values if v >= 0], 10))
        return found

    def rank(self, report: EvalReport, rule: Rule) -> None:
        """Remember the report if none so far is better by the rule; of equal ones the newest has learned most."""
        key = rule.key(report.metrics)
        if key >= self.best_rank or not self.best_update:
            self.best_rank, self.best_update = key, report.update
            self.best_value = float(report.metrics.get(rule.main, math.nan))

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self), "recent": list(self.recent)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(
            {
                **state,
                "turned": dict(state["turned"]),
                "trained": dict(state["trained"]),
                "evaluated": dict(state.get("evaluated", {})),
            }
        )
        self.recent = deque(state["recent"], maxlen=WINDOW)


def mean_fact(name: str, values: Sequence[float]) -> float:
    """Return the mean of a fact over episodes: of degrees the mean direction, of first deaths that of the episodes with one
    (-1 without any)."""
    if name.endswith("_deg"):
        return circular(values)["mean"]
    if name.endswith("first_death_step"):
        values = [v for v in values if v >= 0] or [-1.0]
    return sum(values) / len(values)


def start_signals(world: World, episodes: Sequence[Episode]) -> dict[str, Any]:
    """Return which starts began and ended in this update, and how many wait in each game."""
    begun = [{"game": e.game, **e.start.brief()} for e in episodes]
    seen = set()
    now = world.current_starts()
    for i, episode in enumerate(episodes):
        # The first end in a game belongs to an episode that began in an earlier update.
        if episode.game not in seen:
            seen.add(episode.game)
            begun[i] = {"game": episode.game, **now[episode.game].brief()}
    ended = [
        {"game": e.game, **e.start.brief(), "steps": e.steps, "ended": e.ended, **e.facts}
        | ({"begin": dict(e.begin)} if e.begin else {})
        | ({"cut": True} if e.cut else {})
        for e in episodes
    ]
    by_type: dict[str, Any] = {}
    for kind in sorted({e.start.type for e in episodes}):
        own = [e for e in episodes if e.start.type == kind]
        by_type[f"starts/{kind}/episodes"] = len(own)
        whole = [e for e in own if not e.cut]
        for fact in sorted({fact for e in whole for fact in e.facts}):
            values = [float(e.facts[fact]) for e in whole if fact in e.facts]
            by_type[f"starts/{kind}/{fact}"] = mean_fact(fact, values)
    return {
        **by_type,
        "starts/begun": begun,
        "starts/ended": ended,
        "starts/waiting": world.queued(),
        "starts/forced": sum(e.ended == "forced" for e in episodes),
    }


def recorded(signals: dict[str, Any]) -> dict[str, Any]:
    """Return the signals as they are written down.

    Of mined starts only what identifies them; of ended ones not what each part of the reward paid, nor the reasons for
    which they did not end: episodes.jsonl has all of that.
    """
    short = dict(signals)
    if "starts/mined" in signals:
        short["starts/mined"] = [start.brief() for start in signals["starts/mined"]]
    if "starts/ended" in signals:
        short["starts/ended"] = [
            {k: v for k, v in e.items() if not k.startswith("reward_") and (v or k[:4] != "end_")}
            for e in signals["starts/ended"]
        ]
    return short
