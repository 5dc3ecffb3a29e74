"""Settings of a foreign environment, and what every way of running it must offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.worlds.pool_board import BOOT, CLOSE, CONSTRUCT, RESET, STEP, Board, Post
from holdfast.worlds.pool_faults import Fault
from holdfast.worlds.pool_games import GameSpec

Mode = Literal["serial", "threads", "process"]
TAKEN = ("length_mean", "episodes")
"""Names of what evaluations measure by themselves, beside returns."""
BOOT_S = 30.0
"""Least time that a worker process gets to start Python, before it touches the environment."""


@dataclass(frozen=True)
class ForeignOptions:
    """Settings of a foreign environment."""

    games: Annotated[int, Meta(ge=1, le=4096)] = 8
    """Environments that run at once."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keywords that the environment is made with, such as `{is_slippery = false}`; typed as
    `--world.kwargs.is_slippery false`."""
    facts: tuple[str, ...] = ()
    """Numbers of the last `info` of an episode that are kept, such as `is_success,distance`: of training as
    `facts/is_success`, of evaluations as `is_success`; of PettingZoo the mean over the agents that have it."""
    max_steps: Annotated[int, Meta(ge=0)] = 0
    """Cut episodes after this many steps; 0 leaves the environment's own limit."""
    mode: Literal["auto", "serial", "threads", "process"] = "auto"
    """How environments are stepped: one after the other (serial), in threads, or in worker processes that
    may hang or die without harm (process). auto times a step: process from 0.2 ms on, if there are two
    cores and two games, else serial. Results are the same in all modes."""
    workers: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Threads or processes; 0 takes one a core, at most one a game."""
    construct_s: Annotated[float, Meta(gt=0)] = 30.0
    """Longest time in seconds that the construction of one environment may take."""
    reset_s: Annotated[float, Meta(gt=0)] = 10.0
    """Longest time in seconds of one reset."""
    step_s: Annotated[float, Meta(gt=0)] = 5.0
    """Longest time in seconds of one step of one environment."""
    close_s: Annotated[float, Meta(gt=0)] = 1.0
    """Longest time in seconds for closing all environments; then workers are killed."""
    max_restarts: Annotated[int, Meta(ge=0)] = 3
    """Replacements of one worker (serial: of one environment) within an hour; one more stops the run."""
    start_width: Annotated[int, Meta(ge=1)] = 2
    """Worker processes that construct their environments at the same time."""
    start: Literal["forkserver", "spawn"] = "forkserver"
    """How worker processes are started: forked from a small clean server, or each as a new Python."""

    def __post_init__(self) -> None:
        taken = [n for n in self.facts if n in TAKEN or n.startswith(("return_", "change_"))]
        if taken or len(set(self.facts)) < len(self.facts) or "" in self.facts:
            raise ConfigError(
                f"facts = {','.join(self.facts)} names nothing, something twice, or what an evaluation measures itself "
                f"({', '.join(TAKEN)}, return_..., change_...). Let the environment tell it under another name."
            )

    def limit(self, phase: int) -> float:
        """Return the deadline of a phase in seconds."""
        return {
            BOOT: max(BOOT_S, self.construct_s),
            CONSTRUCT: self.construct_s,
            RESET: self.reset_s,
            STEP: self.step_s,
            CLOSE: self.close_s,
        }.get(phase, self.step_s)


class Backend(Protocol):
    """One way of running games. Faults are returned after the games were replaced."""

    mode: Mode
    spec: GameSpec
    board: Board
    post: Post

    def reset(self, games: Sequence[int]) -> list[Fault]:
        """Begin an episode with `board.seeds` in these games; games of a fault have not begun."""
        ...

    def step(self) -> list[Fault]:
        """Step every game with `board.actions`; for games of a fault `board.stage` says how far they came."""
        ...

    def stacks(self) -> Mapping[str, str]:
        """Return the Python stacks of the worker processes; any thread may ask."""
        ...

    def pids(self) -> list[int]:
        """Return the worker processes that run now."""
        ...

    def close(self) -> None:
        """Close every game."""
        ...


def ranges(games: int, workers: int) -> list[range]:
    """Return the games of each worker: contiguous, as equal as can be."""
    cuts = [games * k // workers for k in range(workers + 1)]
    return [range(cuts[k], cuts[k + 1]) for k in range(workers)]
