"""Hints: what the numbers of a run usually mean, said once in a while, with the numbers.

A rule is data: conditions on facts that must all hold for some updates in a row, from some update on. When they
do, its sentence is said with the values that it saw, and not again for `cooldown` updates; the guard's memory, and
so the cooldown, is part of the checkpoint. A fatal rule stops the run.

`RULES` read the signals of the updates and always decide the same on the same run. `WALL_RULES` read clocks and
machines, so the watcher of the run (lookout.py) asks them, and they are written to hints.jsonl, not to the journal.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["info", "warning", "fatal"]
Sign = Literal["<", "<=", ">", ">=", "=="]
SIGNS: dict[Sign, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
ENDLESS = 3
"""How many times as long as the longest expected episode nothing may go on before it counts as endless."""
Facts = Mapping[str, float]
Condition = tuple[str, Sign, float]
"""Fact, comparison, threshold. An unknown fact fulfils nothing."""


@dataclass(frozen=True)
class Rule:
    """One thing that can be wrong with a run."""

    id: str
    severity: Severity
    conditions: tuple[Condition, ...]
    """All must hold."""
    message: str
    """What it usually means and what to try; `{fact}` stands for a value that was seen."""
    min_update: int = 0
    lasting: int = 1
    """Looks in a row in which the conditions hold."""


@dataclass(frozen=True)
class Hint:
    """A rule that has fired."""

    rule: Rule
    message: str
    evidence: dict[str, float]
    condition: Condition


RULES: tuple[Rule, ...] = (
    Rule(
        "no_progress",
        "warning",
        (("gain_mean", "<=", 0.0), ("positive_ratio", "<=", 0.0), ("helped", "==", 0.0)),
        "no episode gains any ground (gain {gain_mean:.3g}, share with progress {positive_ratio:.3g}). Raise the "
        "reward for progress, or let scripts begin: --guards.bootstrap.enabled true",
        min_update=10,
        lasting=5,
    ),
    Rule(
        "script_without_progress",
        "warning",
        (("gain_mean", "<=", 0.0), ("helped", ">", 0.0)),
        "scripts have played {helped:.0f} times and still no episode of the policy gains ground. Check with "
        "guards.bootstrap.forward_probe that the forward action moves at all",
        min_update=10,
        lasting=50,
    ),
    Rule(
        "ends_at_one_place",
        "warning",
        (("same_place_rate", ">", 0.5),),
        "{same_place_rate:.0%} of the last episodes of a stage end short of the goal at the same place, near "
        "{same_place:.0f}. See what happens there (holdfast watch), train from just before it (guards.tails), or "
        "explore more (--entropy)",
        min_update=60,
        lasting=40,
    ),
    Rule(
        "return_stays_low",
        "warning",
        (("episodes", ">", 0.0), ("best_return", "<=", 0.0), ("return_gain", "<=", 0.05)),
        "the mean return is {return_mean:.3g} after {episodes:.0f} episodes: never above 0, and hardly better than at "
        "first ({return_gain:+.1%}). Check the scale and the sign of the rewards: holdfast doctor",
        min_update=200,
    ),
    Rule(
        "progress_without_end",
        "warning",
        (("reward_mean", ">", 0.0), ("episodes", "==", 0.0)),
        "there is progress (mean reward {reward_mean:.3g}) but no episode has ended. Set the world's max_steps",
        min_update=200,
    ),
    Rule(
        "never_ends",
        "fatal",
        (("episodes", "==", 0.0), ("lengths_without_end", ">=", ENDLESS)),
        "no episode has ended in {steps_without_end:.0f} steps a slot, {lengths_without_end:.1f} times the longest "
        "that is expected (guards.hints.longest_episode). The environment never reports an end, or has no time "
        "limit: set --max-steps, or raise the expected length",
    ),
    Rule(
        "no_longer_ends",
        "warning",
        (("episodes", ">", 0.0), ("lengths_without_end", ">=", ENDLESS)),
        "no episode has ended for {steps_without_end:.0f} steps a slot, though {episodes:.0f} did before. If the "
        "policy has become that good, set --max-steps",
    ),
    Rule(
        "replay_stays_empty",
        "info",
        (("replay_fill", "<", 0.05),),
        "the replay store is {replay_fill:.1%} full: it is too large for this run, or nothing is put in",
        min_update=300,
    ),
    Rule(
        "loss_is_large",
        "warning",
        (("loss", ">", 2.5),),
        "the loss is {loss:.3g} (policy {policy_loss:.3g}, value {value_loss:.3g}). Lower --lr, check "
        "--max-grad-norm, or normalise the rewards",
        min_update=50,
        lasting=10,
    ),
    Rule(
        "policy_stays_uniform",
        "warning",
        (("entropy_share", ">", 0.98),),
        "the policy is still {entropy_share:.1%} as random as at the start (entropy {entropy:.3g}): it does not learn. "
        "Check that rewards reach it, raise --lr, or lower --entropy",
        min_update=500,
        lasting=20,
    ),
    Rule(
        "policy_collapsed",
        "warning",
        (("discrete", "==", 1.0), ("entropy", "<", 0.05)),
        "the entropy of the policy is {entropy:.3g}: it always does the same and explores no more. Raise --entropy",
        lasting=10,
    ),
    Rule(
        "values_predict_nothing",
        "warning",
        (("explained_variance", "<", 0.0),),
        "the value function predicts worse than a constant would (explained variance {explained_variance:.3g}). "
        "Lower --gamma or --lr, or normalise the rewards",
        lasting=100,
    ),
    Rule(
        "policy_lags",
        "warning",
        (("policy_lag", ">", 4.0),),
        "rollouts are {policy_lag:.1f} updates older than the policy that learns from them",
        lasting=10,
    ),
    Rule(
        "got_worse",
        "warning",
        (("probe_drop", ">", 0.2),),
        "the last probe is {probe_drop:.0%} points below the best ({probe_now:.3g} after {probe_best:.3g}). "
        "The best checkpoint is kept; lower --lr, or look at what changed: holdfast report",
    ),
)

WALL_RULES: tuple[Rule, ...] = (
    Rule(
        "world_takes_the_time",
        "info",
        (("world_share", ">", 0.85),),
        "the world takes {world_share:.0%} of the time. More games at once, or worker processes "
        "(--mode process), may help; a faster learner will not",
        min_update=50,
        lasting=3,
    ),
    Rule(
        "gpu_idles",
        "info",
        (("gpu_util_pct", "<", 5.0),),
        "the GPU is used {gpu_util_pct:.0f} % of the time. More games or a larger minibatch would use it; a small "
        "network is faster without it",
        min_update=200,
        lasting=3,
    ),
    Rule(
        "disk_nearly_full",
        "warning",
        (("disk_free_gb", "<", 1.0),),
        "only {disk_free_gb:.2f} GB are free for the run. Lower run.keep_last or run.keep_every, or free some space; "
        "without space the run stops at its next checkpoint",
    ),
    Rule(
        "memory_nearly_full",
        "warning",
        (("system_memory_pct", ">", 95.0),),
        "{system_memory_pct:.0f} % of the machine's memory are in use ({rss_mb:.0f} MB by this run). Fewer games or "
        "shorter rollouts need less",
    ),
    Rule(
        "environments_fail",
        "warning",
        (("env_restarts", ">", 0.0), ("restarts_an_hour", ">=", 1.0)),
        "environments were replaced {env_restarts:.0f} times, {restarts_an_hour:.1f} times an hour: see "
        "env_events.jsonl, or type: holdfast envcheck",
    ),
)


class Table:
    """Rules with their memory: how long each has held, and when it was last said."""

    def __init__(self, rules: Sequence[Rule], cooldown: int) -> None:
        self.rules, self.cooldown = tuple(rules), cooldown
        self.held: dict[str, int] = {}
        self.said: dict[str, int] = {}
        """When each rule fired last."""

    def look(self, update: int, facts: Facts, clock: int | None = None) -> list[Hint]:
        """Return what is to be said now; the cooldown counts updates, or whatever `clock` counts."""
        found, now = [], update if clock is None else clock
        for rule in self.rules:
            holds = all(
                name in facts and SIGNS[s](facts[name], t) for name, s, t in rule.conditions
            )
            self.held[rule.id] = self.held.get(rule.id, 0) + 1 if holds else 0
            if update < rule.min_update or self.held[rule.id] < rule.lasting:
                continue
            if rule.id in self.said and now - self.said[rule.id] < self.cooldown:
                continue
            self.said[rule.id] = now
            evidence = {name: facts[name] for name in facts if f"{{{name}" in rule.message}
            evidence.update({name: facts[name] for name, _, _ in rule.conditions})
            text = rule.message.format_map(_Known(facts))
            found.append(Hint(rule, text, evidence, rule.conditions[-1]))
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the memory."""
        return {"held": dict(self.held), "said": dict(self.said)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the memory."""
        self.held = {str(k): int(v) for k, v in state["held"].items()}
        self.said = {str(k): int(v) for k, v in state["said"].items()}


class _Known(dict[str, Any]):
    """Facts for a sentence; one that is not known reads as not a number."""

    def __missing__(self, key: str) -> float:
        return math.nan
