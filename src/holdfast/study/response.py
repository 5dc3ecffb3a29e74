"""Best responses: ordinary runs in the directory of the run that they exploit.

    runs/best/exploit/pursuer-u1000/    the pursuer learns from where it stood at update 1000 against the frozen evader

A response begins with the incumbent's parameters and statistics. It is saved as often as it is looked at, so one
that was interrupted goes on where it stood, and one that is finished is not trained again.
"""

from __future__ import annotations

import math
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from holdfast.config import Config, from_tables, to_toml
from holdfast.learn.restore import learner_states, policy_of
from holdfast.rng import derive_seed
from holdfast.run import RunDirectory, build
from holdfast.selfplay.players import Side
from holdfast.session import train
from holdfast.store.checkpoint import Checkpoint
from holdfast.worlds.pursuit.layout import ROLES
from holdfast.worlds.pursuit.options import PursuitOptions

ON = ("nonfinite", "hints")
"""Guards that a best response keeps; those that choose who learns, what is seen or where games begin have no place."""
Say = Callable[[str], None]
Ahead = Callable[[str, int, int], None]
"""Called with (what is done, how far it is, how far it goes)."""


@dataclass(frozen=True)
class Effort:
    """How much is spent on the answer."""

    steps: int = 2_000_000
    """Environment steps of each best response; 0 leaves them out."""
    choices: int = 10
    """Checkpoints of each among which the best is chosen."""
    games: int = 5000
    """Games of the final measurement."""
    checkpoints: int = 8
    """Checkpoints of each role in the cross-play; 0 leaves it out."""
    seed: int = 0


def best_response(
    directory: RunDirectory,
    config: Config,
    checkpoint: Checkpoint,
    role: str,
    options: PursuitOptions,
    effort: Effort,
    ahead: Ahead,
    say: Say,
) -> Iterator[tuple[int, Side]]:
    """Train `role` from the incumbent against the frozen other side; yield its checkpoints."""
    name = f"{role}-u{checkpoint.update}"
    own = response_config(config, directory, checkpoint.update, role, options, effort, name)
    response = begun(directory, own, checkpoint, role, say)

    def quiet(text: str) -> None:
        if not text.startswith(("Nothing left", "resumed at", "compiled", "device")):
            say(text)

    outcome = train(
        response,
        own,
        build,
        lambda line: ahead(f"best {role}", int(line["update"]), int(line["updates"])),
        quiet,
    )
    if outcome.state == "interrupted":
        say("What was trained is kept: the same command goes on from there.")
        raise KeyboardInterrupt
    for kept in sorted(response.checkpoints(own).all(), key=lambda c: c.update):
        planned = kept.update % own.run.checkpoint_every == 0 or kept.update == outcome.updates
        if kept.update > 0 and planned:
            steps = int(kept.load()["progress"]["env_steps"])
            yield steps, policy_of(learner_states(kept)[role])


def begun(
    directory: RunDirectory, own: Config, checkpoint: Checkpoint, role: str, say: Say
) -> RunDirectory:
    """Return the run of a response that has a first checkpoint; one of other settings is thrown away."""
    path = directory.path / "exploit" / own.run.name
    response = RunDirectory(path)
    same = (path / "run.toml").is_file() and (path / "run.toml").read_text() == to_toml(own)
    if same and response.checkpoints(own).all():
        return response
    shutil.rmtree(path, ignore_errors=True)
    response = RunDirectory.create(path.parent, own)
    with response.lock():
        loop = build(own, response, lambda line: None, say)
        try:
            learner = loop.team.learners[role]
            incumbent = learner_states(checkpoint)[role]
            learner.load_parameters(incumbent["parameters"])
            for part in ("norm", "reward_norm"):
                mine = getattr(learner, part)
                if mine is not None and incumbent.get(part) is not None:
                    mine.load_state_dict(incumbent[part])
            loop.recorder.load_state_dict(dict.fromkeys(loop.recorder.lines, 0))
            loop.begin()
            loop.save(force=True)
        finally:
            loop.recorder.close()
            loop.world.close()
    return response


def response_config(
    config: Config,
    directory: RunDirectory,
    update: int,
    role: str,
    options: PursuitOptions,
    effort: Effort,
    name: str,
) -> Config:
    """Return the config of a best response: one role learns, the other is the frozen checkpoint."""
    other = ROLES[1 - ROLES.index(role)]
    tables = tomllib.loads(to_toml(replace(config, phases=())))
    updates = max(1, round(effort.steps / (options.games * config.learner.steps)))
    tables["run"].update(
        name=name,
        seed=derive_seed(config.run.seed, "best response", role, effort.seed) % 2**31,
        updates=updates,
        env_steps=0,
        checkpoint_every=math.ceil(updates / effort.choices),
        keep_every=1,
        tensorboard=False,
        sinks=[],
        init_from="",
        max_minutes=0.0,
    )
    # A response is to win the game, and is paid for nothing else.
    tables["novelty"].update(weight=0.0, last_weight=0.0)
    tables["selfplay"].update(history=0.0, tremble=0.0, enabled=True)
    tables["selfplay"][role] = "learn"
    tables["selfplay"][other] = f"run:{directory.path.resolve()}@{update}"
    # A probe at the end is all that the loop insists on: what counts is measured afterwards.
    tables["probe"].update(every=0, episodes=1, clips=False)
    tables["learner"]["lr_schedule"] = "linear"
    tables["plan"] = {}
    tables["guards"].pop("own", None)
    for name, guard in tables["guards"].items():
        if name not in ON:
            guard["enabled"] = False
    plain = {f.name: getattr(options, f.name) for f in fields(options)}
    tables["world"] = {"name": "pursuit", **{k: v for k, v in plain.items() if v is not None}}
    return from_tables(tables)
