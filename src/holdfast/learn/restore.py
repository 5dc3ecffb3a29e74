"""From the files of a checkpoint to policies that play; the optimiser and the world are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import StorageError
from holdfast.learn.normalise import ObsNorm
from holdfast.learn.policy import Policy, make_policy
from holdfast.learn.roles import RolePolicies
from holdfast.learn.spec import NetSpec
from holdfast.store.checkpoint import Checkpoint


def policy_of(state: Mapping[str, Any]) -> Policy:
    """Return the frozen policy of a learner's state."""
    spec = NetSpec.from_state(dict(state["spec"]))
    norm = None
    if state.get("norm") is not None:
        norm = ObsNorm(spec.obs_size)
        norm.load_state_dict(state["norm"])
    return make_policy(spec, state["parameters"], norm)


def learner_states(checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
    """Return the states of the learners that a checkpoint holds, by role; one for all has the role ''."""
    return _learners(checkpoint, checkpoint.load())


def _learners(checkpoint: Checkpoint, state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = {}
    for name, part in state.items():
        if name == "learner" or name.startswith("learner."):
            if not isinstance(part, dict) or not {"spec", "parameters"} <= part.keys():
                raise StorageError(f"The part '{name}' of {checkpoint.path} is no learner.")
            found[name.removeprefix("learner").removeprefix(".")] = part
    if not found:
        raise StorageError(
            f"The checkpoint {checkpoint.path} holds no learner. Its parts are: {', '.join(sorted(state))}."
        )
    return found


def policy_from_checkpoint(
    checkpoint: Checkpoint, roles: tuple[str, ...] = ()
) -> Policy | RolePolicies:
    """Return the frozen policies that a checkpoint holds; `roles` names the slots of one game, if it does not say."""
    state = checkpoint.load()
    found = _learners(checkpoint, state)
    if list(found) == [""]:
        return policy_of(found[""])
    kept = state.get("team", {}).get("roles")
    known = tuple(kept or roles or found)
    return RolePolicies(known, {role: policy_of(s) for role, s in found.items()})
