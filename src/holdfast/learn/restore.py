"""From the files of a checkpoint to a policy that plays; the optimiser and the world are left alone."""

from __future__ import annotations

from holdfast.errors import StorageError
from holdfast.learn.normalise import ObsNorm
from holdfast.learn.policy import Policy
from holdfast.learn.spec import NetSpec
from holdfast.store.checkpoint import Checkpoint


def policy_from_checkpoint(checkpoint: Checkpoint, part: str = "learner") -> Policy:
    """Return the frozen policy that a checkpoint holds; `part` names one of several learners."""
    state = checkpoint.load()
    learner = state.get(part)
    if not isinstance(learner, dict) or not {"spec", "parameters"} <= learner.keys():
        raise StorageError(
            f"The checkpoint {checkpoint.path} holds no learner '{part}'. "
            f"Its parts are: {', '.join(sorted(state))}."
        )
    spec = NetSpec.from_state(learner["spec"])
    norm = None
    if learner.get("norm") is not None:
        norm = ObsNorm(spec.obs_size)
        norm.load_state_dict(learner["norm"])
    return Policy(spec, learner["parameters"], norm)
