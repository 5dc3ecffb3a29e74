"""One side has collapsed: both go back to a pair that still played, and never further back each time.

Two measures see a collapse. During training: the policy's entropy, and the share of captures among the last
episodes. At evaluations: a side that wins next to nothing for several in a row. Pairs are kept while all is
well; a rollback goes to the third newest (training) or to the best-balanced (evaluation), for both sides, and
never to a pair older than the last one that was gone back to, nor to one that this left behind.

In a cold or warm start of the protocol a script plays the pursuer, so captures say nothing about the learners; they
are counted afresh afterwards, and so they are after a rollback. Evaluations there are of a pursuer that does not learn, and
do not count either. Of a side that a script or a frozen policy plays, nothing is a collapse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.guards.guard import Guard, number
from holdfast.records import Cause, Decision, Signals

ROLES = ("pursuer", "evader")
WINDOW = 100
"""Episodes over which the loop averages `pursuit/captured`."""


@dataclass(frozen=True)
class CollapseConfig:
    """When a side counts as collapsed, and what is gone back to."""

    enabled: bool = False
    """Watch for it."""
    keep_every: Annotated[int, Meta(ge=1)] = 5
    """Updates between two pairs that are kept."""
    both: bool = True
    """Go back with both sides; off, only with the side that collapsed."""
    min_entropy: float = -2.0
    """A policy below this total entropy has collapsed."""
    capture_low: Annotated[float, Meta(ge=0, le=1)] = 0.02
    """So few captures among the recent episodes are a collapse of the pursuer; 0 is off."""
    capture_high: Annotated[float, Meta(ge=0, le=1)] = 0.98
    """So many are a collapse of the evader; 1 is off."""
    wait_steps: Annotated[int, Meta(ge=0)] = 50_000
    """Environment steps between two rollbacks."""
    rate_below: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """A side that wins less at evaluations has collapsed; 0 is off."""
    evaluations: Annotated[int, Meta(ge=1)] = 3
    """For so many evaluations in a row."""
    max_rollbacks: Annotated[int, Meta(ge=0)] = 20
    """No more than this in a run."""

    def __post_init__(self) -> None:
        low, high = self.capture_low, self.capture_high
        if low > high:
            raise ConfigError(f"capture_low = {low:g} is above capture_high = {high:g}; swap them.")


class CollapseGuard(Guard):
    """Goes back to a consistent pair when one side has collapsed."""

    name = "collapse"

    def __init__(self, config: CollapseConfig) -> None:
        self.config = config
        self.rollbacks = 0
        self.last_steps = 0
        self.floor = self.left_until = -1
        """Updates of the pair that was gone back to last, and of that rollback: pairs between them were abandoned."""
        self.losing = dict.fromkeys(ROLES, 0)
        self.entropy = dict.fromkeys(ROLES, 0.0)
        self.scripted_until = -1
        """Last update whose rollout a script played in."""
        self.fresh_from = 0
        """Episodes that had ended when these learners began to play each other."""
        self.told = False

    def initial(self, signals: Signals) -> list[Decision]:
        self._watch_scripts(signals)
        return [self._keep(signals)]

    def step(self, signals: Signals) -> list[Decision]:
        # A warm start that the protocol begins now comes after the evaluation.
        scripted = int(number(signals, "update") or 0) <= self.scripted_until
        self._watch_scripts(signals)
        found = self._collapsed(signals, scripted)
        if found is None:
            self.told = False
            update = int(number(signals, "update") or 0)
            return [self._keep(signals)] if update % self.config.keep_every == 0 else []
        cause, role, best = found
        steps = int(number(signals, "env_steps") or 0)
        if steps - self.last_steps < self.config.wait_steps and self.rollbacks:
            return []
        if self.rollbacks >= self.config.max_rollbacks:
            return []
        target = self._target(signals, best)
        if target is None:
            if self.told:
                return []
            self.told = True
            text = f"the {role} has collapsed, and there is no pair to go back to yet"
            return [Decision("warn", cause, name="collapse", role=role, message=text)]
        self.rollbacks += 1
        self.last_steps, self.floor = steps, int(target["update"])
        self.left_until = int(number(signals, "update") or 0)
        self.losing = dict.fromkeys(ROLES, 0)
        self.fresh_from = _ended(signals)
        who = "both sides go" if self.config.both else f"the {role} goes"
        return [
            Decision(
                "rollback",
                cause,
                name=target["label"],
                role="" if self.config.both else role,
                message=f"the {role} has collapsed: {who} back to {target['label']}",
            )
        ]

    def _keep(self, signals: Signals) -> Decision:
        """Keep the pair with the pursuer's win rate. One of which nothing is known counts as just not collapsed: it is gone
        back to before those that are, and after all others."""
        update = int(number(signals, "update") or 0)
        rate, ended = number(signals, "probe/capture_rate"), _ended(signals)
        if rate is None and ended - self.fresh_from >= min(WINDOW, ended):
            rate = number(signals, "pursuit/captured")
        cause = Cause("update", update, self.config.keep_every)
        score = self.config.rate_below if rate is None else rate
        return Decision("keep_pair", cause, name=f"u{update}", value={"score": score})

    def _collapsed(self, signals: Signals, scripted: bool) -> tuple[Cause, str, bool] | None:
        """Return the cause, the side, and whether the best pair rather than a recent one is wanted."""
        config = self.config
        # A script or a frozen player cannot collapse: it stays what it is.
        learning = signals.get("selfplay/learning") or ROLES
        for role in ROLES:
            entropy = number(signals, f"train/{role}/entropy_mean")
            if entropy is not None:
                self.entropy[role] = entropy
                if entropy < config.min_entropy:
                    name = f"train/{role}/entropy_mean"
                    return Cause(name, entropy, config.min_entropy), role, False
        rate = number(signals, "probe/capture_rate")
        if rate is not None and config.rate_below and not scripted:
            for role, own in zip(ROLES, (rate, 1.0 - rate), strict=True):
                self.losing[role] = self.losing[role] + 1 if own < config.rate_below else 0
                if self.losing[role] >= config.evaluations and role in learning:
                    streak = self.losing[role]
                    return Cause(f"{role} win rate", own, config.rate_below, streak), role, True
        captures = number(signals, "pursuit/captured")
        if captures is not None and _ended(signals) - self.fresh_from >= WINDOW:
            if ROLES[1] in learning and config.capture_high < 1 and captures >= config.capture_high:
                cause = Cause("pursuit/captured", captures, config.capture_high, WINDOW)
                return cause, ROLES[1], False
            if ROLES[0] in learning and config.capture_low > 0 and captures <= config.capture_low:
                cause = Cause("pursuit/captured", captures, config.capture_low, WINDOW)
                return cause, ROLES[0], False
        return None

    def _watch_scripts(self, signals: Signals) -> None:
        """Begin to count afresh while a script plays for a learner."""
        update = int(number(signals, "update") or 0)
        cold = number(signals, "guard/protocol/phase") == 0
        if cold or number(signals, "guard/protocol/warming"):
            # The coming rollout is scripted too, and with overlap the one after it.
            self.scripted_until = update + 1 + int(number(signals, "train/policy_lag") or 0)
        if update <= self.scripted_until:
            self.fresh_from = _ended(signals)

    def _target(self, signals: Signals, best: bool) -> dict[str, Any] | None:
        """Return the pair to go back to: none older than the last one that was gone back to, and none on the way that was
        left by it.

        Milestones lie whole phases apart, so they are no recent pairs.
        """
        kept = [
            pair
            for pair in signals.get("selfplay/pairs", [])
            if pair["update"] == self.floor or pair["update"] > max(self.floor, self.left_until)
        ]
        if best and kept:
            return dict(min(kept, key=lambda p: (abs(p["score"] - 0.5), -p["update"])))
        rolling = [p for p in kept if not p["milestone"]]
        return dict(rolling[max(0, len(rolling) - 3)]) if rolling else None

    def light(self) -> str:
        return "yellow" if any(self.losing.values()) else "green"

    def status(self) -> dict[str, Any]:
        words = {role: _word(value) for role, value in self.entropy.items()}
        return {"rollbacks": self.rollbacks, **{f"{r}_entropy": w for r, w in words.items()}}

    def state_dict(self) -> dict[str, Any]:
        return {
            "rollbacks": self.rollbacks,
            "last_steps": self.last_steps,
            "floor": self.floor,
            "left_until": self.left_until,
            "losing": dict(self.losing),
            "entropy": dict(self.entropy),
            "scripted_until": self.scripted_until,
            "fresh_from": self.fresh_from,
            "told": self.told,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rollbacks, self.last_steps = int(state["rollbacks"]), int(state["last_steps"])
        self.floor, self.left_until = int(state["floor"]), int(state.get("left_until", -1))
        self.losing, self.entropy = dict(state["losing"]), dict(state["entropy"])
        self.scripted_until = int(state.get("scripted_until", -1))
        self.fresh_from = int(state.get("fresh_from", 0))
        self.told = bool(state.get("told", False))


def _ended(signals: Signals) -> int:
    """Return how many episodes have come to their own end so far."""
    for name in ("episode/uncut_count", "episode/count"):
        count = number(signals, name)
        if count is not None:
            return int(count)
    return 0


def _word(entropy: float) -> Literal["ok", "yellow", "red", "collapse"]:
    if entropy < -2.0:
        return "collapse"
    return "red" if entropy < -0.5 else "yellow" if entropy < 0.5 else "ok"


@dataclass(frozen=True)
class DampenConfig:
    """Smaller steps while the sides are balanced."""

    enabled: bool = False
    """Dampen the learning rate."""
    gap: Annotated[float, Meta(gt=0, le=1)] = 0.3
    """Below this gap the learning rate falls with it."""
    least: Annotated[float, Meta(gt=0, le=1)] = 0.1
    """Least factor on the learning rate."""


class DampenGuard(Guard):
    """Scales the learning rate of both sides by the gap of the last evaluation, beside what `nonfinite` has cut."""

    name = "dampen"

    def __init__(self, config: DampenConfig) -> None:
        self.config = config
        self.scale = self.cut = 1.0

    def step(self, signals: Signals) -> list[Decision]:
        rate = number(signals, "probe/capture_rate")
        cut = number(signals, "guard/nonfinite/lr_scale") or 1.0
        cause, scale = Cause("guard/nonfinite/lr_scale", cut), self.scale
        if rate is not None:
            gap = abs(2.0 * rate - 1.0)
            scale = min(1.0, max(self.config.least, gap / self.config.gap))
            cause = Cause("gap", gap, self.config.gap)
        if (scale, cut) == (self.scale, self.cut):
            return []
        self.scale, self.cut = scale, cut
        text = f"the learning rate is {scale * cut:.2g} of its schedule"
        return [Decision("set_learner", cause, name="lr_scale", value=scale * cut, message=text)]

    def status(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale, "cut": self.cut}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scale, self.cut = float(state["scale"]), float(state.get("cut", 1.0))
