"""Reads the players that a config names for roles that do not learn: scripts and policies of other runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, nearest
from holdfast.learn.restore import learner_states
from holdfast.selfplay.options import SelfPlayConfig
from holdfast.store.checkpoint import Checkpoint, Checkpoints

LEARN = "learn"
RUN = "run:"


def players(config: SelfPlayConfig, roles: Sequence[str]) -> dict[str, str]:
    """Return who plays each role of the world."""
    chosen = {"pursuer": config.pursuer, "evader": config.evader}
    return {role: chosen.get(role, LEARN) for role in dict.fromkeys(roles)}


def scripts_of(
    config: SelfPlayConfig, roles: Sequence[str], known: Sequence[str]
) -> dict[str, str]:
    """Return the scripts by role; an unknown name is refused."""
    found = {}
    for role, player in players(config, roles).items():
        if player == LEARN or player.startswith(RUN):
            continue
        if player not in known:
            raise ConfigError(
                f"selfplay.{role} = '{player}' is no player. Write 'learn', 'run:NAME', or a script of this "
                f"world: {', '.join(known) or 'it has none'}.{nearest(player, list(known))}"
            )
        found[role] = player
    return found


def frozen_of(
    config: SelfPlayConfig, roles: Sequence[str], runs_dir: Path
) -> dict[str, dict[str, Any]]:
    """Return the learner states of roles that are played by a policy of another run."""
    found = {}
    for role, player in players(config, roles).items():
        if player.startswith(RUN):
            states = learner_states(checkpoint_of(player.removeprefix(RUN), runs_dir))
            if role not in states and "" not in states:
                raise ConfigError(
                    f"selfplay.{role} = '{player}': that run has no {role}, but: {', '.join(states)}."
                )
            found[role] = states.get(role) or states[""]
    return found


def checkpoint_of(text: str, runs_dir: Path) -> Checkpoint:
    """Return the checkpoint of `NAME` or `NAME@UPDATE`: the newest, or that of an update."""
    name, _, update = text.partition("@")
    path = Path(name) if (Path(name) / "run.toml").is_file() else runs_dir / name
    if not (path / "run.toml").is_file():
        have = sorted(p.parent.name for p in runs_dir.glob("*/run.toml"))
        raise ConfigError(
            f"There is no run '{name}' in {runs_dir}.{nearest(name, have)} There are: {', '.join(have) or 'none'}."
        )
    if update and not update.isdigit():
        raise ConfigError(
            f"'{text}': what follows '@' is the number of an update, for example run:first@60."
        )
    return Checkpoints(path / "checkpoints", 3, 0).find(int(update) if update else None)
