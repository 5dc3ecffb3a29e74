"""Pictures of episodes: a grid of trajectories as PNG, the same in motion as a film.

traces = record(world, pursuer, evader, seed=0)
draw_grid(traces, "episodes.png")
animate(traces, "episodes.gif")
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from holdfast.records import F32, F64, Array, Episode
from holdfast.store.media import Image, checked_path, write_film
from holdfast.worlds.camera import RATE, shown
from holdfast.worlds.paint import arrow, path, ring, text_width, wedge, write
from holdfast.worlds.pursuit.layout import ROLES, inner_walls
from holdfast.worlds.pursuit.options import PursuitOptions
from holdfast.worlds.pursuit.policies import Policy
from holdfast.worlds.pursuit.world import PursuitWorld

COLOURS = ((200, 55, 74), (38, 105, 168))
"""Pursuer red, evader blue."""
INK, PAPER, GROUND, STONE = (43, 47, 54), (255, 255, 255), (251, 251, 249), (185, 188, 194)
GOAL = (58, 154, 91)
COLUMNS = 3
"""Most panels side by side."""
HOLD = 45
"""Moments that the end of a film stays, so that the outcomes can be read."""


@dataclass
class Trace:
    """What one episode looked like."""

    options: PursuitOptions
    obstacles: F64
    """`[n, 3]`: x, y, radius."""
    poses: list[F64] = field(default_factory=list)
    """`[2, 3]` at each step, the reset first."""
    ended: str = ""
    goals: list[F64 | None] = field(default_factory=list)
    """`[2]` at each step, None where the evader seeks no goal."""

    @classmethod
    def begin(cls, world: PursuitWorld, game: int) -> Trace:
        """Return a trace that holds the state of one game now."""
        record = world.records[game]
        count = int(record["n_obstacles"])
        trace = cls(world.options, world.obstacles[game, :count].copy())
        trace.add(record)
        return trace

    def follow(self, world: PursuitWorld, game: int, episode: Episode | None) -> None:
        """Add the moment after a step; `episode` is there if the game ended with it."""
        if not self.ended:
            self.ended = episode.ended if episode is not None else ""
            source = world.finished if self.ended else world.records
            self.add(source[game])

    def add(self, record: Any) -> None:
        """Add the moment that the record of a game holds."""
        self.poses.append(record["pose"].copy())
        seeks = self.options.task == "navigation" and not record["flee"]
        self.goals.append(record["goal"].copy() if seeks else None)

    @property
    def label(self) -> str:
        """Outcome and time."""
        seconds = (len(self.poses) - 1) * self.options.dt
        return f"{self.ended or 'running'}  {seconds:.1f} s"


@dataclass
class Film:
    """Episodes side by side, each in a panel of its own."""

    traces: list[Trace]
    rate: float = RATE

    @property
    def length(self) -> int:
        """Steps of the longest episode, and a while in which nothing moves."""
        return max(len(trace.poses) for trace in self.traces) + HOLD

    def pictures(self, *, size: int = 720, every: int = 1, title: str = "") -> Iterator[Image]:
        """Yield every `every`-th moment and the last one."""
        board = Board(self.traces, size, title)
        for moment in shown(self.length, every):
            yield board.at(moment)


class Camera:
    """Follows some games of a pursuit world."""

    values = False

    def __init__(self, world: PursuitWorld, games: Sequence[int]) -> None:
        self._world = world
        self._traces: dict[int, Trace] = {}
        self._lasts: dict[int, list[Any]] = {game: [] for game in games}

    def look(self) -> None:
        """Take in the moment before a step, and where a game that has just ended was at its end."""
        for game, lasts in self._lasts.items():
            if game in self._traces:
                self._traces[game].add(self._world.records[game])
            else:
                self._traces[game] = Trace.begin(self._world, game)
            lasts.append(self._world.finished[game].copy())

    def chose(self, actions: Array, values: F32 | None) -> None:
        """Nothing of this is in the picture."""

    def film(self, game: int, episode: Episode) -> Film:
        """Return the film of a game's first episode."""
        seen, lasts, steps = self._traces[game], self._lasts[game], episode.steps
        last = lasts[steps] if len(lasts) > steps else self._world.finished[game]
        trace = Trace(
            seen.options, seen.obstacles, seen.poses[:steps], episode.ended, seen.goals[:steps]
        )
        trace.add(last)
        return Film([trace])


def together(films: Sequence[Film]) -> Film:
    """Return several films as one."""
    return Film([trace for film in films for trace in film.traces])


def record(world: PursuitWorld, pursuer: Policy, evader: Policy, *, seed: int = 0) -> list[Trace]:
    """Return the trace of one episode a game, game g from seed `seed + g`."""
    world.reset(seed=seed)
    traces = [Trace.begin(world, g) for g in range(world.games)]
    actions = np.zeros((world.num_envs, *(world.single_action_space.shape or ())), np.float32)
    while any(not trace.ended for trace in traces):
        pursuer.write(world, actions)
        evader.write(world, actions)
        *_, info = world.step(actions)
        over = {episode.game: episode for episode in info.get("episodes", ())}
        for g, trace in enumerate(traces):
            trace.follow(world, g, over.get(g))
    return traces


def draw_grid(traces: list[Trace], path: str | Path, *, size: int = 1080) -> Path:
    """Write the whole trajectories of up to nine episodes as a PNG."""
    target = Path(path)
    Pillow.fromarray(render_frame(traces, size=size)).save(target)
    return target


def animate(traces: list[Trace], path: str | Path, *, size: int = 720) -> Path:
    """Write the episodes in motion; the ending decides: `.gif` or `.mp4`."""
    every = 2 if checked_path(path).suffix == ".mp4" else 3
    film = Film(traces)
    return write_film(path, film.pictures(size=size, every=every), fps=film.rate / every)


def render_frame(traces: list[Trace], t: int = -1, *, size: int = 720) -> Image:
    """Return one RGB image `[H, W, 3]` of the traces at step `t` (the last by default)."""
    last = max(len(trace.poses) for trace in traces) - 1
    return Board(traces, size).at(last if t < 0 else t)


class Board:
    """Panels of episodes on one picture; what does not move is drawn once, and trails stay."""

    def __init__(self, traces: Sequence[Trace], size: int, title: str = "") -> None:
        """Lay out up to nine panels on a picture `size` pixels wide."""
        self.columns = min(math.ceil(math.sqrt(len(traces))), COLUMNS)
        traces = traces[: COLUMNS * COLUMNS]
        rows = math.ceil(len(traces) / self.columns)
        self.unit = size / 720.0
        self.letters = max(round(13 * self.unit), 9)
        self.gap = max(round(8 * self.unit), 4)
        side = (size - self.gap) // self.columns - self.gap
        aspect = traces[0].options.arena_height / traces[0].options.arena_width
        self.head, self.line = round(2.0 * self.letters), round(1.7 * self.letters)
        tall = round(side * aspect)
        height = self.head + rows * (tall + self.line + self.gap)
        self.ground: Image = np.empty((height + height % 2, size, 3), np.uint8)
        self.ground[:] = PAPER
        self._heading(title)
        self.panels = []
        for k, trace in enumerate(traces):
            left = self.gap + (k % self.columns) * (side + self.gap)
            top = self.head + self.line + (k // self.columns) * (tall + self.line + self.gap)
            self.panels.append(Panel(trace, left, top, side, tall))
        for panel in self.panels:
            panel.prepare(self.ground, self.unit)
        self.drawn = 0

    def at(self, t: int) -> Image:
        """Return the picture at step `t`; steps must not go back."""
        for panel in self.panels:
            panel.trail(self.ground, self.drawn, t, 2.0 * self.unit)
        self.drawn = t
        image = self.ground.copy()
        for panel in self.panels:
            panel.draw(image, t, self.unit)
            if t >= panel.last:
                middle, base = panel.left + panel.width / 2, panel.top - 0.8 * self.letters
                write(image, middle, base, panel.trace.label, panel.winner, self.letters, "mm")
        return image

    def _heading(self, title: str) -> None:
        y, right = self.head / 2, self.ground.shape[1] - self.gap
        write(self.ground, self.gap, y, title, (110, 116, 124), self.letters)
        for role, colour in zip(reversed(ROLES), reversed(COLOURS), strict=True):
            write(self.ground, right, y, role, colour, self.letters, "rm")
            right -= text_width(role, self.letters) + self.letters


@dataclass(frozen=True)
class Panel:
    """One episode on its part of the picture."""

    trace: Trace
    left: int
    top: int
    width: int
    height: int

    @property
    def last(self) -> int:
        """Index of the last pose."""
        return len(self.trace.poses) - 1

    @property
    def winner(self) -> tuple[int, int, int]:
        """Colour of whoever won."""
        return {"captured": COLOURS[0], "escaped": COLOURS[1]}.get(self.trace.ended, INK)

    @property
    def scale(self) -> float:
        """Pixels a metre."""
        return self.width / self.trace.options.arena_width

    def place(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return where a point of the arena, or many of them, lie on the picture."""
        return (
            self.left + self.width / 2 + x * self.scale,
            self.top + self.height / 2 - y * self.scale,
        )

    def prepare(self, image: Image, unit: float) -> None:
        """Draw what does not move: ground, walls, obstacles, starts."""
        bottom, right = self.top + self.height, self.left + self.width
        image[self.top : bottom, self.left : right] = GROUND
        for x, y, radius in self.trace.obstacles.tolist():
            px, py = self.place(x, y)
            ring(image, px, py, radius * self.scale, 0.0, _colour(STONE), 1.0, 0)
        corners = [(self.left, self.top), (right, self.top), (right, bottom), (self.left, bottom)]
        walls = np.array([*corners, corners[0]], np.float64)
        path(image, walls, max(1.4 * unit, 1.0), _colour(INK), 1.0)
        for ends in inner_walls(self.trace.options).reshape(-1, 2, 2):
            line = np.stack(self.place(ends[:, 0], ends[:, 1]), axis=1)
            path(image, line, max(1.4 * unit, 1.0), _colour(INK), 1.0)
        for me, colour in enumerate(COLOURS):
            px, py = self.place(*self.trace.poses[0][me, :2].tolist())
            ring(image, px, py, 4.0 * unit, 1.6 * unit, _colour(colour), 1.0, 0)

    def trail(self, image: Image, since: int, now: int, width: float) -> None:
        """Draw the stretch of both paths from step `since` to `now`."""
        poses = np.array(self.trace.poses[since : min(now, self.last) + 1])
        if len(poses) < 2:
            return
        for me, colour in enumerate(COLOURS):
            points = np.stack(self.place(poses[:, me, 0], poses[:, me, 1]), axis=1)
            path(image, points, width, _colour(colour) * 0.62 + 255.0 * 0.38, 1.0)

    def draw(self, image: Image, t: int, unit: float) -> None:
        """Draw both agents at step `t`, what they sense, the capture circle, and the goal of the moment."""
        o, now = self.trace.options, min(t, self.last)
        size = max(o.robot_radius * 1.6, 0.022 * max(o.arena_width, o.arena_height)) * self.scale
        for me, colour in enumerate(COLOURS):
            x, y, theta = self.trace.poses[now][me].tolist()
            px, py = self.place(x, y)
            self._sensing(image, me, px, py, theta)
            if me == 0:
                around = o.capture_radius * self.scale
                ring(image, px, py, around, 1.1 * unit, _colour(colour), 1.0, 18)
        goal = self.trace.goals[now]
        if goal is not None:
            px, py = self.place(*goal.tolist())
            ring(image, px, py, 5.0 * unit, 0.0, _colour(GOAL), 1.0, 0)
        for me, colour in enumerate(COLOURS):
            x, y, theta = self.trace.poses[now][me].tolist()
            px, py = self.place(x, y)
            arrow(
                image, px, py, math.cos(theta), -math.sin(theta), size, _colour(colour), _colour(PAPER)
            )  # fmt: skip

    def _sensing(self, image: Image, me: int, px: float, py: float, theta: float) -> None:
        o = self.trace.options
        if o.mode in ("full", "frame") or (me == 1 and o.asymmetric_obs):
            return
        radius = o.sensor_range if o.mode == "sensors" else o.sensing_radius
        angle = 2 * o.sensor_half_angle if o.mode == "sensors" else o.fov_angle
        if radius is None and angle is None:
            return
        reach = radius if radius is not None else o.arena_width + o.arena_height
        half = math.pi if angle is None else angle / 2
        wedge(
            image, px, py, reach * self.scale, -theta, half, _colour(COLOURS[me]), 0.09,
            self.top, self.left, self.top + self.height, self.left + self.width,
        )  # fmt: skip


def _colour(rgb: tuple[int, int, int]) -> F64:
    return np.array(rgb, np.float64)
