"""Pictures of episodes: a grid of trajectories as PNG, the same in motion as GIF or MP4.

traces = record(world, pursuer, evader, seed=0)
draw_grid(traces, "episodes.png")
animate(traces, "episodes.gif")
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Polygon, Rectangle, Wedge

from holdfast.errors import ConfigError
from holdfast.records import F64, Array
from holdfast.worlds.pursuit.layout import ROLES
from holdfast.worlds.pursuit.options import PursuitOptions
from holdfast.worlds.pursuit.policies import Policy
from holdfast.worlds.pursuit.world import PursuitWorld

COLOURS = ("#c8374a", "#2669a8")
"""Pursuer red, evader blue."""
INK, GROUND, STONE = "#2b2f36", "#fbfbf9", "#b9bcc2"
PANEL_IN = 2.7
"""Inches of one panel."""
FPS = 30
EVERY = 3
"""Steps from one frame to the next."""


@dataclass
class Trace:
    """What one episode looked like."""

    options: PursuitOptions
    obstacles: F64
    """`[n, 3]`: x, y, radius."""
    poses: list[F64] = field(default_factory=list)
    """`[2, 3]` at each step, the reset first."""
    ended: str = ""
    goal: F64 | None = None

    @classmethod
    def begin(cls, world: PursuitWorld, game: int) -> Trace:
        """Return a trace that holds the state of one game now."""
        record = world.records[game]
        count = int(record["n_obstacles"])
        goal = None
        if world.options.task == "navigation" and not record["flee"]:
            goal = record["goal"].copy()
        kept = world.obstacles[game, :count].copy()
        return cls(world.options, kept, [record["pose"].copy()], "", goal)

    @property
    def label(self) -> str:
        """Outcome and time."""
        seconds = (len(self.poses) - 1) * self.options.dt
        return f"{self.ended or 'running'}  {seconds:.1f} s"


def record(world: PursuitWorld, pursuer: Policy, evader: Policy, *, seed: int = 0) -> list[Trace]:
    """Return the trace of one episode a game, game g from seed `seed + g`."""
    world.reset(seed=seed)
    traces = [Trace.begin(world, g) for g in range(world.games)]
    actions = np.zeros((world.num_envs, *(world.single_action_space.shape or ())), np.float32)
    while any(not trace.ended for trace in traces):
        pursuer.write(world, actions)
        evader.write(world, actions)
        *_, info = world.step(actions)
        over = {episode.game: episode.ended for episode in info.get("episodes", ())}
        for g, trace in enumerate(traces):
            if not trace.ended:
                trace.ended = over.get(g, "")
                source = world.finished if trace.ended else world.records
                trace.poses.append(source[g]["pose"].copy())
    return traces


def draw_grid(traces: list[Trace], path: str | Path, *, columns: int = 3) -> Path:
    """Write the whole trajectories of up to `columns` squared episodes as a PNG."""
    figure, axes = _panels(traces, columns)
    for ax, trace in zip(axes, traces, strict=False):
        _trails(ax, trace)
        _sensing(ax, trace, len(trace.poses) - 1)
        _agents(ax, trace, len(trace.poses) - 1)
        _caption(ax, trace)
    path = Path(path)
    figure.savefig(path, dpi=130, facecolor="white")
    return path


def animate(traces: list[Trace], path: str | Path, *, columns: int = 3) -> Path:
    """Write the episodes in motion; the suffix decides: `.gif` or `.mp4`."""
    path = Path(path)
    if path.suffix not in (".gif", ".mp4"):
        raise ConfigError(f"Cannot write '{path}': allowed suffixes are .gif and .mp4.")
    longest = max(len(trace.poses) for trace in traces)
    # A second of stillness at the end, so that the outcomes can be read.
    steps = [*range(0, longest, EVERY), *[longest - 1] * FPS]
    frames = _Frames(traces, columns)
    if path.suffix == ".gif":
        _write_gif((frames.at(t) for t in steps), path)
    else:
        _write_mp4((frames.at(t) for t in steps), path)
    return path


def render_frame(traces: list[Trace], t: int = -1) -> Array:
    """Return one RGB image `[H, W, 3]` of the traces at step `t` (the last by default)."""
    last = max(len(trace.poses) for trace in traces) - 1
    return _Frames(traces, math.ceil(math.sqrt(len(traces)))).at(last if t < 0 else t)


class _Frames:
    """Draws frames over a background that is rendered once."""

    def __init__(self, traces: list[Trace], columns: int) -> None:
        self.figure, self.axes = _panels(traces, columns)
        self.traces = traces[: len(self.axes)]
        self.canvas = _canvas(self.figure)
        self.canvas.draw()
        self.drawn = 0
        self.background = self.canvas.copy_from_bbox(self.figure.bbox)

    def at(self, t: int) -> Array:
        """Return the frame at step `t`; steps must not go back, since trails stay on the background."""
        self.canvas.restore_region(self.background)
        for ax, trace in zip(self.axes, self.traces, strict=True):
            _draw(ax, _new_trail(ax, trace, self.drawn, min(t, len(trace.poses) - 1)))
        self.drawn = t
        self.background = self.canvas.copy_from_bbox(self.figure.bbox)
        for ax, trace in zip(self.axes, self.traces, strict=True):
            now = min(t, len(trace.poses) - 1)
            _draw(ax, _sensing(ax, trace, now) + _agents(ax, trace, now))
            if now == len(trace.poses) - 1:
                _draw(ax, _caption(ax, trace))
        image = np.asarray(self.canvas.buffer_rgba())[..., :3]
        # Video codecs need even sizes.
        return image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2].copy()


def _canvas(figure: Figure) -> Any:
    # Matplotlib's canvases are not typed.
    return FigureCanvasAgg(figure)


def _draw(ax: Any, artists: list[Any]) -> None:
    for artist in artists:
        ax.draw_artist(artist)
        artist.remove()


def _new_trail(ax: Any, trace: Trace, since: int, now: int) -> list[Any]:
    """Add the stretch of path from step `since` to `now`."""
    if now <= since:
        return []
    path = np.array(trace.poses[since : now + 1])
    return [
        ax.add_artist(Line2D(path[:, me, 0], path[:, me, 1], color=colour, lw=1.4, zorder=4))
        for me, colour in enumerate(COLOURS)
    ]


def _panels(traces: list[Trace], columns: int) -> tuple[Figure, list[Any]]:
    """Return a figure with a panel for each trace: walls, obstacles, starts."""
    traces = traces[: columns * columns]
    rows = math.ceil(len(traces) / columns)
    columns = min(columns, len(traces))
    aspect = traces[0].options.arena_height / traces[0].options.arena_width
    size = (PANEL_IN * columns, (PANEL_IN * aspect + 0.25) * rows)
    figure = Figure(figsize=size, dpi=100, facecolor="white")
    grid = figure.subplots(rows, columns, squeeze=False)
    top = 0.42 / size[1]
    figure.subplots_adjust(0.015, 0.015, 0.985, 1 - top, wspace=0.05, hspace=0.12)
    for name, colour, x, side in zip(
        ROLES, COLOURS, (0.493, 0.507), ("right", "left"), strict=True
    ):
        figure.text(x, 1 - 0.06 / size[1], name, color=colour, fontsize=8, ha=side, va="top")
    axes = list(grid.ravel())
    for ax in axes[len(traces) :]:
        ax.set_axis_off()
    for ax, trace in zip(axes, traces, strict=False):
        o = trace.options
        width, height = o.arena_width, o.arena_height
        pad = 0.012 * max(width, height)
        ax.set(xlim=(-width / 2 - pad, width / 2 + pad), ylim=(-height / 2 - pad, height / 2 + pad))
        ax.set_aspect("equal")
        ax.set_axis_off()
        corner = (-width / 2, -height / 2)
        ax.add_patch(Rectangle(corner, width, height, fc=GROUND, ec=INK, lw=1.1, zorder=0))
        for x, y, r in trace.obstacles:
            ax.add_patch(Circle((x, y), r, fc=STONE, ec="#8f949c", lw=0.8, zorder=2))
        for me, colour in enumerate(COLOURS):
            x, y, _ = trace.poses[0][me]
            ax.plot(x, y, "o", ms=5, mfc="white", mec=colour, mew=1.2, zorder=3)
        if trace.goal is not None:
            ax.plot(*trace.goal, "*", ms=11, color="#3a9a5b", zorder=3)
    return figure, axes[: len(traces)]


def _trails(ax: Any, trace: Trace) -> None:
    """Add the whole paths, fading towards the start."""
    if len(trace.poses) < 2:
        return
    path = np.array(trace.poses)
    thin = max(1, len(path) // 300)
    path = np.concatenate([path[:-1:thin], path[-1:]])
    for me, colour in enumerate(COLOURS):
        points = path[:, me, :2]
        segments = np.stack([points[:-1], points[1:]], axis=1)
        # Fading towards white rather than transparency: overlapping ends leave no beads.
        fade = np.linspace(0.6, 0.0, len(segments))[:, None]
        shades = np.array(to_rgb(colour)) * (1 - fade) + fade
        style: dict[str, Any] = {"linewidths": 1.5, "zorder": 4, "capstyle": "round"}
        ax.add_collection(LineCollection(list(segments), colors=shades, **style))


def _sensing(ax: Any, trace: Trace, now: int) -> list[Any]:
    """Add what each agent can sense: a circle, or a wedge."""
    o = trace.options
    if o.mode == "full":
        return []
    radius = o.sensor_range if o.mode == "sensors" else o.sensing_radius
    angle = 2 * o.sensor_half_angle if o.mode == "sensors" else o.fov_angle
    if radius is None and angle is None:
        return []
    reach = radius if radius is not None else o.arena_width + o.arena_height
    added = []
    for me, colour in enumerate(COLOURS):
        if me == 1 and o.asymmetric_obs:
            continue
        x, y, theta = trace.poses[now][me]
        half = 180.0 if angle is None else math.degrees(angle / 2)
        centre = math.degrees(theta)
        patch: Any = (
            Circle((x, y), reach)
            if half >= 180.0
            else Wedge((x, y), reach, centre - half, centre + half)
        )
        patch.set(
            facecolor=(*to_rgb(colour), 0.09), edgecolor=(*to_rgb(colour), 0.45), linewidth=0.8
        )
        patch.set_zorder(1)
        ax.add_artist(patch)
        width, height = o.arena_width, o.arena_height
        frame = Rectangle((-width / 2, -height / 2), width, height, transform=ax.transData)
        patch.set_clip_path(frame)
        added.append(patch)
    return added


def _agents(ax: Any, trace: Trace, now: int) -> list[Any]:
    """Add both agents as arrowheads, and the capture circle round the pursuer."""
    o = trace.options
    size = max(o.robot_radius * 1.6, 0.022 * max(o.arena_width, o.arena_height))
    shape = np.array([[1.25, 0.0], [-0.85, 0.8], [-0.45, 0.0], [-0.85, -0.8]]) * size
    added: list[Any] = []
    for me, colour in enumerate(COLOURS):
        x, y, theta = trace.poses[now][me]
        c, s = math.cos(theta), math.sin(theta)
        points = shape @ np.array([[c, s], [-s, c]]) + (x, y)
        if me == 0:
            ring = Circle(
                (x, y), o.capture_radius, fill=False, ec=colour, lw=0.9, ls=(0, (3, 2)), zorder=5
            )
            added.append(ax.add_artist(ring))
        arrow = Polygon(points, closed=True, fc=colour, ec="white", lw=0.8, zorder=6)
        added.append(ax.add_artist(arrow))
    return added


def _caption(ax: Any, trace: Trace) -> list[Any]:
    """Add the outcome above the panel, in the winner's colour."""
    winner = {"captured": COLOURS[0], "escaped": COLOURS[1]}.get(trace.ended, INK)
    style = {"color": winner, "fontsize": 9, "fontweight": "bold", "ha": "center", "va": "bottom"}
    return [ax.text(0.5, 1.005, trace.label, transform=ax.transAxes, zorder=7, **style)]


def _write_gif(frames: Any, path: Path) -> None:
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    # One palette for all frames: no flicker, and a smaller file.
    palette = images[-1].quantize(64, dither=Image.Dither.NONE)
    small = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    small[0].save(path, save_all=True, append_images=small[1:], duration=1000 // FPS, loop=0)


def _write_mp4(frames: Any, path: Path) -> None:
    import av

    with av.open(str(path), "w") as container:
        stream: Any = None
        for image in frames:
            if stream is None:
                stream = container.add_stream("libx264", rate=FPS)
                stream.height, stream.width = image.shape[:2]
                stream.pix_fmt = "yuv420p"
                stream.options = {"crf": "20"}
            for packet in stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode() if stream is not None else ():
            container.mux(packet)
