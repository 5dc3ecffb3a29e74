"""What is written down of every update: its line of metrics, its episodes, its journal entry and a heartbeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.overlap import Gathered
from holdfast.progress import recorded

if TYPE_CHECKING:
    from holdfast.loop import Loop


def account(loop: Loop, gathered: Gathered, began: float) -> None:
    """Record an update that began at `began`, and show it."""
    progress, signals, recorder = loop.progress, loop.signals, loop.recorder
    for episode in gathered.episodes:
        recorder.episode(progress.update, episode)
    wall = time.perf_counter() - began
    signals["time/update_s"] = wall
    signals["time/env_steps_per_s"] = loop.steps / wall
    signals["time/world_s"] = gathered.world_s
    signals["time/policy_s"] = gathered.policy_s
    signals["time/collect_s"] = gathered.collect_s
    signals.update({f"time/{name}_s": seconds for name, seconds in loop.seconds.items()})
    signals.update({f"time/{name}": value for name, value in loop.feed.times.items()})
    recorder.update(recorded(signals))
    recorder.journal(
        "update",
        progress.update,
        env_steps=progress.env_steps,
        parameters=loop.team.parameter_hash(),
    )
    lights = {guard.name: guard.light() for guard in loop.guards}
    recorder.heartbeat(
        state="running",
        update=progress.update,
        updates=loop.total,
        env_steps=progress.env_steps,
        env_steps_per_s=loop.steps / wall,
        lights=lights,
    )
    loop.show(
        {
            **signals,
            "updates": loop.total,
            "lights": lights,
            "messages": loop.messages,
            "best_by": loop.rule.main,
            "best_value": progress.best_value,
            "best_update": progress.best_update,
        }
    )
