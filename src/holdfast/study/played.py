"""With which options of the world an episode of a shoal run was played: what a start that is made from it depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.plan import make_plan
from holdfast.probes import shoal
from holdfast.probes.mining import Found, began_in
from holdfast.run import probe_spec
from holdfast.store.journal import read_lines

LAW = (
    "escape_boost_speed",
    "escape_jitter",
    "spawn_jitter",
    "pre_roll_angle_jitter",
    "pre_roll_speed_jitter",
)
"""World values on which a start depends; the first two concern the fish only."""


def in_training(config: Any, run: Path, hold: str) -> tuple[Callable[[Found], Any], bool]:
    """Return the options in use when an episode began (None: not sure), and whether fish numbers differ.

    `hold` is what the starts shall hold; `auto` is the predator alone where the number of fish changes.
    """
    plan = make_plan(config, lambda options: options.games * options.fish)
    several = len({phase.options.fish for phase in plan.phases}) > 1
    alone = hold == "predator" or (hold == "auto" and several)
    names = LAW[2:] if alone else LAW
    lines = {int(line["update"]): line for line in read_lines(run / "metrics.jsonl")}
    values = {}
    for update, line in lines.items():
        # A rollout that was played ahead has not seen what was decided since: the line before has its values.
        held = lines.get(update - int(line.get("train/policy_lag", 0)), line)
        values[update] = {n: held[f"world/{n}"] for n in names if f"world/{n}" in held}

    def options_of(one: Found) -> Any:
        phase = plan.phase(one.update)
        first = plan.built_at(phase)
        updates = began_in(one, phase.learner.steps, first)
        made = {replace(phase.options, **values.get(max(u, first), {})) for u in updates}
        # Whether the guards' values held already at the first reset of a world is not recorded.
        made |= {phase.options} if updates[0] < first else set()
        return made.pop() if len(made) == 1 else None

    return options_of, several


def in_probes(config: Any, probes: list[dict[str, Any]]) -> tuple[Callable[[Found], Any], bool]:
    """Return the options that an evaluated episode was played with, and whether training has other fish."""
    spec = probe_spec(config)
    values = {int(p["update"]): (p.get("detail") or {}).get("values") or {} for p in probes}

    def options_of(one: Found) -> Any:
        return shoal.prepare(replace(spec.options, **values[one.update]), spec.protocol)

    fish = shoal.prepare(spec.options, spec.protocol).fish
    return options_of, any(p.options.fish != fish for p in make_plan(config, 1).phases)
