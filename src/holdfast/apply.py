"""What each kind of decision does to a run; the value read back goes into the journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.records import Decision

if TYPE_CHECKING:
    from holdfast.loop import Loop


def apply(loop: Loop, decision: Decision) -> Any:
    """Make one change to the run; return the value read back."""
    act = ACTS.get(decision.kind)
    return act(loop, decision) if act is not None else None


def _set_learner(loop: Loop, decision: Decision) -> float:
    return loop.team.set_value(decision.name, decision.value, decision.role)


def _set_world(loop: Loop, decision: Decision) -> float:
    loop.world.set_value(decision.name, decision.value)
    value = loop.world.value(decision.name)
    loop.progress.turned[decision.name] = value
    return value


def _unset_world(loop: Loop, decision: Decision) -> float:
    """Give a value back: the option of the phase holds again, here and in later phases."""
    loop.world.unset_value(decision.name)
    loop.progress.turned.pop(decision.name, None)
    return loop.world.value(decision.name)


def _inject_starts(loop: Loop, decision: Decision) -> int:
    loop.world.queue_starts(decision.slots, decision.value)
    return len(decision.value)


def _force_reset(loop: Loop, decision: Decision) -> int:
    slots = decision.slots or range(loop.world.num_envs)
    loop.world.request_reset(slots)
    return len(slots)


def _override_actions(loop: Loop, decision: Decision) -> int:
    slots = decision.slots or range(loop.world.num_envs)
    return loop.world.override(slots, decision.value)


def _rollback(loop: Loop, decision: Decision) -> str:
    """Undo the last update, or put learners back to a pair that was kept."""
    if decision.name == "last_good":
        loop.team.undo()
        return "last_good"
    roles = list(loop.team.pick(decision.role))
    update = loop.pairs.restore(decision.name, loop.team.learners, roles)
    loop.feed.leave_out()
    return f"{decision.name} of update {update}"


def _train_roles(loop: Loop, decision: Decision) -> list[str]:
    return list(loop.team.train(decision.value))


def _keep_pair(loop: Loop, decision: Decision) -> list[str]:
    facts = dict(decision.value or {})
    loop.pairs.keep(
        decision.name,
        loop.progress.update,
        loop.team.learners,
        bool(facts.get("milestone", False)),
        float(facts.get("score", 0.0)),
    )
    return [pair["label"] for pair in loop.pairs.list()]


def _protect(loop: Loop, decision: Decision) -> float:
    """Hold what the last rollout shows the learner to know (elastic weight consolidation)."""
    from holdfast.learn.ewc import anchor_of

    facts = dict(decision.value)
    weight, decay, samples = float(facts["weight"]), facts["decay"], int(facts["samples"])
    held = loop.team.pick(decision.role)
    for role, seat in zip(loop.team.learners, loop.feed.seats, strict=True):
        if role in held:
            learner, rollout = seat.learner, seat.rollout
            learner.protect(anchor_of(learner, rollout, weight, decay=decay, samples=samples))
    return weight


def _stand_in(loop: Loop, decision: Decision) -> str:
    """Let a script play a role's slots for a while; an empty name ends it."""
    return loop.cast.stand_in(decision.role, decision.name, loop.world)


def _mix(loop: Loop, decision: Decision) -> float:
    """Let past opponents play a role in a share of the games of both learners."""
    return loop.cast.mix(decision.role, decision.value)


def _probe(loop: Loop, decision: Decision) -> int:
    """Evaluate after the coming update."""
    loop.progress.probe_at = loop.progress.update + 1
    return loop.progress.probe_at


def _end(loop: Loop, decision: Decision) -> None:
    loop.stopped_by = decision
    if decision.kind == "finish":
        loop.progress.finished = decision.message or decision.name


ACTS: dict[str, Callable[[Any, Decision], Any]] = {
    "set_learner": _set_learner,
    "set_world": _set_world,
    "unset_world": _unset_world,
    "inject_starts": _inject_starts,
    "force_reset": _force_reset,
    "override_actions": _override_actions,
    "rollback": _rollback,
    "train_roles": _train_roles,
    "keep_pair": _keep_pair,
    "protect": _protect,
    "stand_in": _stand_in,
    "mix": _mix,
    "probe": _probe,
    "stop": _end,
    "finish": _end,
}
"""`hold_phase`, `advance_phase`, `warn` and `clear` change nothing by themselves: they are records."""
