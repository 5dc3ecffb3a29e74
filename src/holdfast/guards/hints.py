"""The guard that gives hints: it turns the signals of an update into facts and asks the rules of hint_rules.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from holdfast.guards.guard import Guard, number
from holdfast.guards.hint_rules import RULES, Hint, Table
from holdfast.records import Cause, Decision, Signals

SOURCES: dict[str, tuple[str, ...]] = {
    "gain_mean": ("guard/progress/gain_mean",),
    "positive_ratio": ("guard/progress/positive_ratio",),
    "same_place_rate": ("guard/progress/same_place_rate",),
    "same_place": ("guard/progress/same_place",),
    "injections": ("guard/bootstrap/injections",),
    "return_mean": ("episode/return_mean",),
    "episodes": ("episode/count",),
    "reward_mean": ("train/reward_mean",),
    "policy_loss": ("train/policy_loss",),
    "value_loss": ("train/value_loss",),
    "entropy": ("train/entropy_mean",),
    "entropy_max": ("train/entropy_max",),
    "explained_variance": ("train/explained_variance",),
    "replay_fill": ("train/replay_fill_rate",),
    "policy_lag": ("train/policy_lag",),
}
"""Signals that a fact is taken from, the first that is there."""
LIT = 20
"""Updates for which the light shows a hint."""
PROBED = ("probe/clear_rate", "probe/avg_final")
"""Rates of probes that should not fall."""


@dataclass(frozen=True)
class HintsConfig:
    """Hints about what is usually wrong."""

    enabled: bool = True
    """Give hints."""
    cooldown: Annotated[int, Meta(ge=1)] = 200
    """Updates before the same hint is given again."""
    longest_episode: Annotated[int, Meta(ge=1)] = 10_000
    """Steps that the longest episode may take. In a run that has not ended a single one in three times as many steps
    of a slot the environment is taken to be broken."""
    stop_when_endless: bool = True
    """Stop such a run instead of only saying so."""


class HintsGuard(Guard):
    """Asks `RULES` after every update.

    What a rule says about the learner it says of a run with one; several have guards of their own.
    """

    name = "hints"

    def __init__(self, config: HintsConfig) -> None:
        self.config = config
        self.table = Table(RULES, config.cooldown)
        self.episodes = 0
        self.env_steps = 0.0
        self.steps_without_end = 0.0
        self.first_return: float | None = None
        self.best_return = -math.inf
        self.best_probe: dict[str, float] = {}
        self.total = 0
        self.last = ""
        self.last_update = 0
        self.update = 0

    def step(self, signals: Signals) -> list[Decision]:
        self.update = int(signals.get("update", 0))
        return [self._decision(hint) for hint in self.table.look(self.update, self.facts(signals))]

    def facts(self, signals: Signals) -> dict[str, float]:
        """Return what the rules compare, as far as the signals tell it."""
        found: dict[str, float] = {}
        for fact, names in SOURCES.items():
            value = next((v for n in names if (v := number(signals, n)) is not None), None)
            if value is not None and math.isfinite(value):
                found[fact] = value
        if "policy_loss" in found and "value_loss" in found:
            found["loss"] = abs(found["policy_loss"]) + 0.5 * found["value_loss"]
        if "entropy_max" in found:
            found["discrete"] = 1.0
            if "entropy" in found and found["entropy_max"] > 0:
                found["entropy_share"] = found["entropy"] / found["entropy_max"]
        found["helped"] = found.get("injections", 0.0)
        if "return_mean" in found:
            if self.first_return is None:
                self.first_return = found["return_mean"]
            self.best_return = max(self.best_return, found["return_mean"])
            found["best_return"] = self.best_return
            gain = found["return_mean"] - self.first_return
            found["return_gain"] = gain / max(abs(self.first_return), 1e-9)
        self._count_ends(signals, found)
        self._rank_probe(signals, found)
        return found

    def _count_ends(self, signals: Signals, found: dict[str, float]) -> None:
        slots = (number(signals, "world/games") or 0) * (
            number(signals, "world/slots_per_game") or 0
        )
        steps = number(signals, "env_steps")
        if steps is None or slots <= 0 or "episodes" not in found:
            return
        made, self.env_steps = steps - self.env_steps, steps
        ended, self.episodes = found["episodes"] > self.episodes, int(found["episodes"])
        self.steps_without_end = 0.0 if ended else self.steps_without_end + made / slots
        found["steps_without_end"] = self.steps_without_end
        found["lengths_without_end"] = self.steps_without_end / self.config.longest_episode

    def _rank_probe(self, signals: Signals, found: dict[str, float]) -> None:
        for name in PROBED:
            value = number(signals, name)
            if value is not None and math.isfinite(value):
                best = self.best_probe[name] = max(self.best_probe.get(name, value), value)
                found.update(probe_now=value, probe_best=best, probe_drop=best - value)
                return

    def _decision(self, hint: Hint) -> Decision:
        self.total, self.last, self.last_update = self.total + 1, hint.rule.id, self.update
        name, _, threshold = hint.condition
        fatal = hint.rule.severity == "fatal" and self.config.stop_when_endless
        return Decision(
            "stop" if fatal else "warn",
            Cause(name, hint.evidence[name], threshold, hint.rule.lasting),
            name=hint.rule.id,
            value=hint.evidence,
            message=hint.message,
        )

    def light(self) -> str:
        return "yellow" if self.total and self.update - self.last_update < LIT else "green"

    def status(self) -> dict[str, Any]:
        return {"given": self.total, "last": self.last}

    def state_dict(self) -> dict[str, Any]:
        return {
            "table": self.table.state_dict(),
            "episodes": self.episodes,
            "env_steps": self.env_steps,
            "steps_without_end": self.steps_without_end,
            "first_return": self.first_return,
            "best_return": self.best_return,
            "best_probe": [[name, value] for name, value in self.best_probe.items()],
            "total": self.total,
            "last": self.last,
            "last_update": self.last_update,
            "update": self.update,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.table.load_state_dict(state["table"])
        if (
            self.config.stop_when_endless
        ):  # what stopped the run stops it again at once, not after the cooldown
            fatal = {rule.id for rule in RULES if rule.severity == "fatal"}
            self.table.said = {k: v for k, v in self.table.said.items() if k not in fatal}
        self.episodes, self.env_steps = int(state["episodes"]), float(state["env_steps"])
        self.steps_without_end = float(state["steps_without_end"])
        first = state["first_return"]
        self.first_return = None if first is None else float(first)
        self.best_return = float(state["best_return"])
        self.best_probe = {str(name): float(value) for name, value in state["best_probe"]}
        self.total, self.last = int(state["total"]), str(state["last"])
        self.last_update, self.update = int(state["last_update"]), int(state["update"])
