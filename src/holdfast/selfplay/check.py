"""Refuses settings of self-play that contradict each other or could not act, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.errors import ConfigError, nearest
from holdfast.guards import GuardsConfig
from holdfast.learn.rnd import NoveltyConfig
from holdfast.selfplay.opponents import LEARN
from holdfast.selfplay.options import SelfPlayConfig
from holdfast.selfplay.rule import levels_of
from holdfast.tables import text
from holdfast.worlds.pursuit.options import PursuitOptions

SIDES = {
    "protocol": "decides which side learns",
    "balance": "decides which side learns",
    "collapse": "takes a side back that has collapsed",
    "dampen": "learns more slowly the more even the sides are",
}
"""Guards that act on the sides of self-play, and what they do."""
LEVELLED = {
    "protocol": ("evader_first", "warm_start_steps", "mixed_share", "protect"),
    "balance": ("protect",),
}
"""Settings of guards that act only where levels rise."""


def check_sides(
    selfplay: SelfPlayConfig,
    guards: GuardsConfig,
    options: Any,
    novelty: NoveltyConfig,
    roles: Sequence[str] | None,
) -> None:
    """Raise if settings of self-play contradict each other or could not act; `roles` are None while nobody knows them."""
    check_guards(selfplay, guards)
    if roles is not None:
        check_game(guards, roles)
    check_tremble(selfplay)
    check_masking(guards, options)
    if roles is not None:
        check_novelty(selfplay, novelty, roles)


def check_guards(selfplay: SelfPlayConfig, guards: GuardsConfig) -> None:
    """Raise if a guard that acts on the sides has none, or if two guards decide which side learns."""
    for name, does in SIDES.items():
        if getattr(guards, name).enabled and not selfplay.enabled:
            raise ConfigError(
                f"guards.{name} {does}, but one learner plays all sides. "
                f"Add --selfplay.enabled true, or leave it out: --guards.{name}.enabled false"
            )
    if guards.protocol.enabled and guards.balance.enabled:
        raise ConfigError(
            "guards.protocol and guards.balance both decide which side learns; a run takes one of them. "
            "Add --guards.balance.enabled false or --guards.protocol.enabled false"
        )

    if guards.balance.enabled and guards.balance.past:
        learning = selfplay.pursuer == selfplay.evader == LEARN
        if not learning or not selfplay.history:
            raise ConfigError(
                "guards.balance.past lets past opponents play, but none are kept: that takes two learners and "
                "selfplay.history above 0. Add --selfplay.history 0.3, or leave it out: --guards.balance.past 0"
            )
    for role in ("pursuer", "evader"):
        if getattr(selfplay, role) != LEARN:
            check_led(selfplay, guards, role)


def check_game(guards: GuardsConfig, roles: Sequence[str]) -> None:
    """Raise if a guard that acts on pursuer and evader is on in a world that has other roles."""
    for name in SIDES:
        if getattr(guards, name).enabled and not {"pursuer", "evader"} <= set(roles):
            raise ConfigError(
                f"guards.{name} is for games of a pursuer and an evader; the roles of this world are: "
                f"{', '.join(dict.fromkeys(roles))}. Leave it out: --guards.{name}.enabled false"
            )


def check_led(selfplay: SelfPlayConfig, guards: GuardsConfig, role: str) -> None:
    """Raise if a guard would let a role learn that somebody else plays, or change it."""
    protocol, freeze = guards.protocol, guards.protocol.freeze
    stays = freeze.role == role and not (
        freeze.switch or freeze.until_steps or freeze.force_steps or freeze.force_first_steps
    )
    touched = protocol.warm_start_steps or (
        role == "evader" and (protocol.cold_start or protocol.protect)
    )
    alone = (
        f"keep that side frozen and as it is: --guards.protocol.freeze.role {role} --guards.protocol.freeze.switch false, "
        "without cold start, warm start and protect"
    )
    led = {
        "protocol": (protocol.enabled and (not stays or touched), alone),
        "balance": (guards.balance.enabled, "leave it out: --guards.balance.enabled false"),
    }
    for name, (refused, out) in led.items():
        if refused:
            raise ConfigError(
                f"guards.{name} lets both sides learn, but selfplay.{role} = '{getattr(selfplay, role)}' never does. "
                f"Add --selfplay.{role} learn, or {out}"
            )


def check_levelled(guards: GuardsConfig) -> None:
    """Raise if a setting says what happens when a level is advanced, and there are no levels."""
    for name, settings in LEVELLED.items():
        guard = getattr(guards, name)
        for setting in settings if guard.enabled and guard.curriculum.kind == "none" else ():
            value = getattr(guard, setting)
            if value:
                flag = f"--guards.{name}.{setting.replace('_', '-')} {text(type(value)(0))}"
                raise ConfigError(
                    f"guards.{name}.{setting} = {text(value)} acts when a level is advanced, and there are no levels "
                    f"(guards.{name}.curriculum.kind = 'none'). Add --guards.{name}.curriculum.kind smooth, or leave it "
                    f"out: {flag}"
                )


def check_tremble(selfplay: SelfPlayConfig) -> None:
    """Raise if hands cannot tremble so much: between two held actions there is a steady step at least."""
    most = selfplay.tremble_steps / (1.0 + selfplay.tremble_steps)
    if selfplay.tremble > most:
        needed = math.ceil(selfplay.tremble / (1.0 - selfplay.tremble) - 1e-9)
        raise ConfigError(
            f"selfplay.tremble = {selfplay.tremble:g}: actions held for {selfplay.tremble_steps:g} steps in the mean, with a "
            f"steady step between them, make up {most:.3g} of the steps at most. Add --selfplay.tremble-steps {needed}"
        )


def check_levels(guards: GuardsConfig, options: Any) -> None:
    """Raise if the world could not play one of the levels that it is to be led through, value by value."""
    levels = levels_of(guards, options)
    if levels is None or not isinstance(options, PursuitOptions):
        return
    # A world has rows for as many obstacles as it was made with.
    options = replace(options, obstacle_capacity=options.capacity)
    for place in range(levels.last + 1):
        for name, value in levels.values(place).items():
            number = int(value) if name == "n_obstacles" else value
            try:
                options = options.turned({name: number})
            except ConfigError as error:
                room = "obstacle-capacity" if name == "n_obstacles" else "max-init-distance"
                raise ConfigError(
                    f"Level {place + 1} of the curriculum sets {name} to {value:g}, which this world cannot play. {error} "
                    f"Add --world.{room} {value:g}, or change the levels."
                ) from None


def check_masking(guards: GuardsConfig, options: Any) -> None:
    """Raise if the masking curriculum is on where the opponent is never masked; `options` are the world's."""
    mode = getattr(options, "mode", None)
    if guards.masking.enabled and mode != "masked":
        seen = "this world has none" if mode is None else f"it is '{mode}'"
        raise ConfigError(
            "guards.masking hides the opponent little by little, which needs an observation that can hide it; "
            f"{seen}. Add --world.observation masked, or leave it out: --guards.masking.enabled false"
        )


def check_novelty(selfplay: SelfPlayConfig, novelty: NoveltyConfig, roles: Sequence[str]) -> None:
    """Raise if `selfplay.novelty_roles` names what is no role of the world, or one learner plays all roles."""
    wanted, known = selfplay.novelty_roles, list(dict.fromkeys(roles))
    for role in wanted:
        if role not in known:
            raise ConfigError(
                f"selfplay.novelty_roles: there is no role '{role}'.{nearest(role, known)} "
                f"Roles of this world: {', '.join(known)}."
            )
    pays = novelty.weight or novelty.last_weight
    if wanted and pays and not selfplay.enabled:
        raise ConfigError(
            "selfplay.novelty_roles pays some roles, but one learner plays all of them. "
            "Add --selfplay.enabled true, or leave selfplay.novelty_roles out."
        )
