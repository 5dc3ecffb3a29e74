"""The penalty gate: evaluations decide how far the penalty schedule may go.

The gate stands at a stage, an index into the sorted allowance of phases; `phase_limit` is the phase
that this stage allows, and schedules read it as `guard/gate/phase_limit`. Each evaluation is one event,
by the first rule that matches:

    rollback           a failure above stage 0, as many in a row as are tolerated: one stage down
    failure_hold       any other failure
    locked             not after `lock_until` yet
    frozen             a change (or a success, or a failure) is too recent
    advance            enough successes in a row: one stage up
    success_progress   a success, but not enough yet, or already at the last stage
    noop               neither failure nor success

Success and failure compare the evaluation with thresholds that may differ by the type of the tail stage
that the training is in (`guard/tails/stage_type`). Counts of step-one deaths depend mostly on the seeds of
the evaluation; the criteria on avoidable deaths do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from statistics import median
from typing import Annotated, Any

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.guards.check import Check, measured
from holdfast.guards.guard import Guard
from holdfast.guards.stages import UNTYPED, parse_pairs
from holdfast.records import Cause, Decision, DecisionKind, Signals

MIN_HISTORY = 4
"""Evaluations that are remembered at least."""
BY_TYPE = "_by_type"
TINY = 5e-324
"""The least number above 0."""
WHOLE = ("success_early_death_window", "success_p10_window", "failure_tolerance")
"""Settings that are whole numbers >= 1."""


@dataclass(frozen=True)
class GateConfig:
    """When the penalty may rise, must fall back, or has to wait. Defaults are those of v36.

    A `..._by_type` setting replaces its threshold while the training is in a tail stage of that type:
    `ne:0.13,main:0.10`.
    """

    enabled: bool = False
    """Let evaluations limit the penalty phases."""
    allowance: Annotated[tuple[int, ...], Meta(ge=1)] = (4, 5, 6, 7)
    """Phases (from 1) that the stages allow; sorted, each once. Empty: no limit."""
    required_successes: Annotated[int, Meta(ge=0)] = 2
    """Successes in a row before an advance. 0: no limit at all."""
    freeze: Annotated[int, Meta(ge=0)] = 5
    """Updates without successes after an advance, a rollback or a failure."""
    success_freeze: Annotated[int, Meta(ge=0)] = 2
    """Updates before the next success counts."""
    lock_until: int = -1
    """No success counts up to this update; 0 or less: that of the density schedule."""

    success_step_one: int = 18
    """Most step-one deaths of a success. Negative: no such criterion."""
    success_step_one_by_type: str = ""
    """The same by stage type, `type:count,...`."""
    success_step_one_ratio: float = 0.02
    """Largest share of fish that die at step one. 0 or less: no such criterion."""
    success_step_one_ratio_by_type: str = ""
    """The same by stage type, `type:share,...`."""
    step_one_avoidable: bool = False
    """Count only the step-one deaths that some policy could have avoided."""
    success_early_death: float = 0.115
    """Largest share of early deaths of a success, now and in the median. Negative: no such criterion."""
    success_early_death_by_type: str = ""
    """The same by stage type, `type:share,...`."""
    success_early_death_window: Annotated[int, Meta(ge=1)] = 2
    """Evaluations in the median of early deaths; with 1 the evaluation itself counts."""
    success_early_death_window_by_type: str = ""
    """The same by stage type, `type:evaluations,...`."""
    success_p10: float = 70.0
    """Lowest median of the 10th percentile of death steps. 0 or less: no such criterion."""
    success_p10_by_type: str = ""
    """The same by stage type, `type:step,...`."""
    success_p10_window: Annotated[int, Meta(ge=1)] = 2
    """Evaluations in the median of the 10th percentile; with 1 the evaluation itself counts."""
    success_p10_window_by_type: str = ""
    """The same by stage type, `type:evaluations,...`."""
    success_avoidable: Annotated[float, Meta(le=1)] = -1.0
    """Largest share of fish that died although they could have lived. Negative: no such criterion."""
    success_avoidable_by_type: str = ""
    """The same by stage type, `type:share,...`."""

    failure_p10: float = 95.0
    """A 10th percentile of death steps below this is a failure. 0 or less: no such criterion."""
    failure_p10_by_type: str = ""
    """The same by stage type, `type:step,...`."""
    failure_min_final: Annotated[float, Meta(le=1)] = 0.5
    """Survival of the worst episode below this is a failure. 0 or less: no such criterion."""
    failure_min_final_by_type: str = ""
    """The same by stage type, `type:share,...`."""
    failure_avoidable: Annotated[float, Meta(le=1)] = -1.0
    """A share of avoidable deaths above this is a failure. Negative: no such criterion."""
    failure_avoidable_by_type: str = ""
    """The same by stage type, `type:share,...`."""
    failure_tolerance: Annotated[int, Meta(ge=1)] = 2
    """Failures in a row that cause a rollback."""
    failure_tolerance_by_type: str = ""
    """The same by stage type, `type:failures,...`."""
    separate_windows: bool = True
    """Medians under a typed tail stage use the evaluations under that type only (as since v40)."""

    early_death_signal: str = "probe/ed100"
    """Signal of the share of early deaths."""
    p10_signal: str = "probe/p10"
    """Signal of the 10th percentile."""
    min_final_signal: str = "probe/min_final"
    """Signal of the worst episode."""

    def __post_init__(self) -> None:
        self.overrides()

    def overrides(self) -> dict[str, dict[str, float]]:
        """Return the thresholds that differ by stage type: setting -> type -> value."""
        found = {}
        for name in (f.name for f in fields(self) if f.name.endswith(BY_TYPE)):
            base = name.removesuffix(BY_TYPE)
            whole = base in WHOLE
            low = 1.0 if whole else -math.inf
            found[base] = parse_pairs(getattr(self, name), name, low=low, whole=whole)
        return found

    def reads(self) -> dict[str, str]:
        """Return the signal of every criterion that is on: setting -> signal."""
        word = "avoidable_step_one" if self.step_one_avoidable else "step_one"
        avoidable = "probe/avoidable_death_fraction"
        signals = {
            "success_step_one": (f"probe/{word}_count", 0.0),
            "success_step_one_ratio": (f"probe/{word}_count", TINY),
            "success_early_death": (self.early_death_signal, 0.0),
            "success_p10": (self.p10_signal, TINY),
            "success_avoidable": (avoidable, 0.0),
            "failure_p10": (self.p10_signal, TINY),
            "failure_min_final": (self.min_final_signal, TINY),
            "failure_avoidable": (avoidable, 0.0),
        }
        types = self.overrides()
        return {
            name: signal
            for name, (signal, least) in signals.items()
            if max(getattr(self, name), *types[name].values(), -math.inf) >= least
        }


class PenaltyGate(Guard):
    """Limits the penalty phases by evaluations; `stage` counts from 0, phases count from 1.

    Reads, on updates with an evaluation, `probe/ed100`, `probe/p10`, `probe/min_final`,
    `probe/step_one_count`, `probe/fish_samples`, and for the criteria on avoidable deaths
    `probe/avoidable_step_one_count` and `probe/avoidable_death_fraction`.
    """

    name = "gate"

    def __init__(self, config: GateConfig, density_lock_until: int = 0) -> None:
        """`density_lock_until` is the lock of the density schedule, used without an own lock."""
        self.config = config
        self.allowance = sorted(set(config.allowance))
        if any(phase < 1 for phase in self.allowance):
            raise ConfigError(
                f"guards.gate.allowance = {config.allowance} is not allowed. It takes phases counted "
                "from 1; type for example: --guards.gate.allowance 4,5,6,7"
            )
        self.lock_until = config.lock_until if config.lock_until > 0 else density_lock_until
        self._overrides = config.overrides()
        windows = [config.success_early_death_window, config.success_p10_window, MIN_HISTORY]
        for name in ("success_early_death_window", "success_p10_window"):
            windows += [int(w) for w in self._overrides[name].values()]
        self._length = max(windows)
        self.stage = 0
        self.success_streak = 0
        self.failure_streak = 0
        self.freeze_until = 0
        self.last_success = 0
        self._history: dict[str, dict[str, list[float]]] = {"": {"ed": [], "p10": []}}
        self._last: dict[str, Any] = {"event": "", "event_update": 0, "changed": 0}

    @property
    def active(self) -> bool:
        """Whether the gate limits anything."""
        return bool(self.allowance) and self.config.required_successes > 0

    @property
    def phase_limit(self) -> int:
        """The last phase that is allowed now; 0 means all."""
        return self.allowance[self.stage] if self.active else 0

    def step(self, signals: Signals) -> list[Decision]:
        self._last.update(event="", changed=0)
        config = self.config
        early = measured(signals, config.early_death_signal)
        p10 = measured(signals, config.p10_signal)
        worst = measured(signals, config.min_final_signal)
        if not self.active or (early is None and p10 is None and worst is None):
            return []
        update = int(signals.get("update", 0))
        kind = str(signals.get("guard/tails/stage_type") or "").lower()
        kind = "" if kind == UNTYPED else kind
        self._remember(kind, early, p10)
        failures = [c for c in self._failures(signals, kind, p10, worst) if c.holds()]
        checks = self._criteria(signals, kind, early)
        unmet = [c for c in checks if not c.holds()]
        self.failure_streak = self.failure_streak + 1 if failures else 0
        before = self.stage
        event, cause = self._transition(update, kind, failures, unmet)
        self._last.update(
            event=event,
            last_event=event,
            event_update=update,
            changed=int(self.stage != before),
            failure=int(bool(failures)),
            stage_type=kind or UNTYPED,
        )
        moved: DecisionKind = "advance_phase" if event == "advance" else "hold_phase"
        message = (
            f"gate {event}: {cause}; stage {self.stage}, penalty phases up to {self.phase_limit}, "
            f"{self.success_streak} of {config.required_successes} successes, "
            f"{self.failure_streak} failures in a row"
        )
        return [Decision(moved, cause, name=event, value=self.phase_limit, message=message)]

    def _transition(
        self, update: int, kind: str, failures: list[Check], unmet: list[Check]
    ) -> tuple[str, Cause]:
        config = self.config
        tolerance = int(self._threshold("failure_tolerance", kind))
        if failures:
            self.success_streak = 0
            self.freeze_until = update + config.freeze
            cause = failures[0].cause(self.failure_streak)
            if self.stage > 0 and self.failure_streak >= tolerance:
                self.stage -= 1
                self.failure_streak = 0
                return "rollback", cause
            return "failure_hold", cause
        if update <= self.lock_until:
            self.success_streak = 0
            return "locked", Cause("update", update, self.lock_until)
        if update < self.freeze_until:
            self.success_streak = 0
            return "frozen", Cause("update", update, self.freeze_until)
        if unmet:
            self.success_streak = 0
            return "noop", unmet[0].cause()
        self.success_streak += 1
        self.last_success = update
        streak, required = self.success_streak, config.required_successes
        if config.success_freeze > 0:
            self.freeze_until = max(self.freeze_until, update + config.success_freeze)
        cause = Cause("guard/gate/success_streak", streak, required, streak)
        if streak >= required and self.stage < len(self.allowance) - 1:
            self.stage += 1
            self.success_streak = 0
            self.freeze_until = update + config.freeze
            return "advance", cause
        return "success_progress", cause

    def _failures(
        self, signals: Signals, kind: str, p10: float | None, worst: float | None
    ) -> list[Check]:
        found = []
        low = self._threshold("failure_p10", kind)
        if low > 0:
            found.append(Check(self.config.p10_signal, p10, "<", low))
        low = self._threshold("failure_min_final", kind)
        if low > 0:
            found.append(Check(self.config.min_final_signal, worst, "<", low))
        high = self._threshold("failure_avoidable", kind)
        if high >= 0:
            signal = "probe/avoidable_death_fraction"
            found.append(Check(signal, measured(signals, signal), ">", high))
        return found

    def _criteria(self, signals: Signals, kind: str, early: float | None) -> list[Check]:
        config, found = self.config, []
        word = "avoidable_step_one" if config.step_one_avoidable else "step_one"
        count, ratio = measured(signals, f"probe/{word}_count"), None
        samples = measured(signals, "probe/fish_samples")
        if count is not None and samples:
            ratio = count / samples
        elif not config.step_one_avoidable:
            ratio = measured(signals, "probe/step_one_ratio")
        most = self._threshold("success_step_one", kind)
        if most >= 0:
            found.append(Check(f"probe/{word}_count", count, "<=", most))
        share = self._threshold("success_step_one_ratio", kind)
        if share > 0:
            found.append(Check(f"probe/{word}_ratio", ratio, "<=", share))
        limit = self._threshold("success_early_death", kind)
        window = int(self._threshold("success_early_death_window", kind))
        own, everywhere = self._median("ed", kind, window), self._median("ed", "", window)
        if limit >= 0:
            found.append(Check(config.early_death_signal, early, "<=", limit))
            if window > 1:
                used = own if self._separate(kind) else everywhere
                found.append(Check(config.early_death_signal, used, "<=", limit, window))
        low = self._threshold("success_p10", kind)
        p10_window = int(self._threshold("success_p10_window", kind))
        p10_own = self._median("p10", kind, p10_window)
        p10_all = self._median("p10", "", p10_window)
        if low > 0:
            own_counts = self._separate(kind) and p10_own is not None
            used = p10_own if own_counts else p10_all
            found.append(Check(config.p10_signal, used, ">=", low, p10_window))
        most_avoidable = self._threshold("success_avoidable", kind)
        if most_avoidable >= 0:
            signal = "probe/avoidable_death_fraction"
            found.append(Check(signal, measured(signals, signal), "<=", most_avoidable))
        self._last.update(
            step_one_ratio=ratio,
            early_death_median=self._median("ed", "", config.success_early_death_window),
            early_death_median_type=own if kind else None,
            p10_median=p10_all,
            p10_median_type=p10_own if kind else None,
            step_one_threshold=most,
            step_one_ratio_threshold=share,
            early_death_threshold=limit,
            early_death_window=window,
            p10_threshold=low,
            p10_window=p10_window,
            avoidable_threshold=most_avoidable,
            failure_tolerance=int(self._threshold("failure_tolerance", kind)),
        )
        return found

    def _threshold(self, name: str, kind: str) -> float:
        return self._overrides[name].get(kind, float(getattr(self.config, name)))

    def _separate(self, kind: str) -> bool:
        return bool(kind) and self.config.separate_windows

    def _remember(self, kind: str, early: float | None, p10: float | None) -> None:
        for place in {"", kind}:
            history = self._history.setdefault(place, {"ed": [], "p10": []})
            for key, value in (("ed", early), ("p10", p10)):
                if value is not None:
                    history[key] = [*history[key], value][-self._length :]

    def _median(self, key: str, kind: str, window: int) -> float | None:
        values = self._history.get(kind, {}).get(key, [])
        return float(median(values[-window:])) if len(values) >= window else None

    def light(self) -> str:
        return "red" if self.failure_streak > 1 else "yellow" if self.failure_streak else "green"

    def status(self) -> dict[str, Any]:
        return {
            **self._last,
            "stage": self.stage,
            "phase_limit": self.phase_limit,
            "success_streak": self.success_streak,
            "failure_streak": self.failure_streak,
            "freeze_until": self.freeze_until,
            "last_success": self.last_success,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "success_streak": self.success_streak,
            "failure_streak": self.failure_streak,
            "freeze_until": self.freeze_until,
            "last_success": self.last_success,
            "history": {kind: dict(values) for kind, values in self._history.items()},
            "last": dict(self._last),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.stage = min(int(state["stage"]), max(len(self.allowance) - 1, 0))
        self.success_streak = int(state["success_streak"])
        self.failure_streak = int(state["failure_streak"])
        self.freeze_until = int(state["freeze_until"])
        self.last_success = int(state["last_success"])
        self._history = {
            str(kind): {key: [float(v) for v in values[key]] for key in ("ed", "p10")}
            for kind, values in state["history"].items()
        }
        self._last = dict(state["last"])
