"""Pictures and films of episodes."""

from __future__ import annotations

import av
import numpy as np
import pytest
from PIL import Image

from holdfast.errors import ConfigError
from holdfast.worlds.camera import shown
from holdfast.worlds.pursuit import PursuitWorld
from holdfast.worlds.pursuit.draw import (
    GOAL,
    HOLD,
    Camera,
    Film,
    animate,
    draw_grid,
    record,
    together,
)
from holdfast.worlds.pursuit.policies import Scripted


@pytest.fixture(scope="module")
def traces():
    world = PursuitWorld(
        games=4,
        arena_width=10.0,
        arena_height=10.0,
        n_obstacles=2,
        max_steps=30,
        min_init_distance=1.0,
        max_init_distance=4.0,
        partial_obs=True,
        sensing_radius=3.0,
        fov_angle=1.5,
    )
    return record(world, Scripted("greedy", "pursuer"), Scripted("flee", "evader"), seed=0)


def test_a_trace_runs_from_the_reset_to_the_end(traces):
    for trace in traces:
        assert trace.ended in ("captured", "escaped")
        assert len(trace.poses) - 1 <= 30
        gap = np.linalg.norm(trace.poses[-1][0, :2] - trace.poses[-1][1, :2])
        assert (gap <= 0.5) == (trace.ended == "captured")
        assert trace.label.startswith(trace.ended)


def test_the_grid_is_a_picture_in_both_colours(traces, tmp_path):
    path = draw_grid(traces, tmp_path / "grid.png")
    with Image.open(path) as picture:
        image = np.asarray(picture.convert("RGB")).astype(int)
    assert min(image.shape[:2]) > 500
    for red, green, blue in ((200, 55, 74), (38, 105, 168)):
        near = np.abs(image - [red, green, blue]).sum(axis=2) < 12
        assert near.sum() > 50


def test_a_film_shows_every_second_step_as_gif_and_mp4(traces, tmp_path):
    steps = max(len(trace.poses) for trace in traces)
    with Image.open(animate(traces[:1], tmp_path / "film.gif")) as gif:
        assert gif.n_frames > len(traces[0].poses) // 3
    with av.open(str(animate(traces, tmp_path / "film.mp4"))) as film:
        frames = sum(1 for _ in film.decode(video=0))
    assert frames == len(shown(steps + HOLD, 2))


def test_another_suffix_is_refused(traces, tmp_path):
    with pytest.raises(ConfigError, match=r"\.mp4 and \.gif"):
        animate(traces, tmp_path / "film.avi")


def test_a_camera_sees_every_pose_up_to_the_last_one():
    world = PursuitWorld(games=3, arena_width=10.0, arena_height=10.0, max_steps=25)
    expected = record(world, Scripted("greedy", "pursuer"), Scripted("flee", "evader"), seed=4)
    world.reset(seed=[4, 5, 6])
    camera = Camera(world, [1])
    pursuer, evader = Scripted("greedy", "pursuer"), Scripted("flee", "evader")
    actions = np.zeros((world.num_envs, *world.single_action_space.shape), np.float32)
    episodes = {}
    while len(episodes) < 3:
        camera.look()
        pursuer.write(world, actions)
        evader.write(world, actions)
        info = world.step(actions)[4]
        for episode in info.get("episodes", ()):
            episodes.setdefault(episode.game, episode)
    (trace,) = camera.film(1, episodes[1]).traces
    np.testing.assert_array_equal(np.array(trace.poses), np.array(expected[1].poses))
    assert trace.label == expected[1].label


def test_several_films_stand_side_by_side(traces):
    film = together([Film([trace]) for trace in traces])
    picture = next(film.pictures(size=360))
    assert picture.shape[1] == 360
    assert film.length == max(len(trace.poses) for trace in traces) + HOLD


def test_inner_walls_are_drawn_where_the_lidar_sees_them():
    dark = []
    for walls in ("none", "corridor"):
        world = PursuitWorld(games=1, walls=walls, partial_obs=True, max_steps=2)
        film = Film(
            record(world, Scripted("greedy", "pursuer"), Scripted("flee", "evader"), seed=0)
        )
        picture = next(film.pictures(size=400))
        dark.append((picture.max(axis=2) < 150).sum(axis=0))
    columns = np.flatnonzero(dark[1] - dark[0] > 150)
    assert 2 <= len(columns) <= 8
    gap = (columns.max() - columns.min()) / 400
    assert gap == pytest.approx(4 / 20, abs=0.03)


def test_agents_that_see_everything_have_no_cone():
    pictures = []
    for observation in ("full", "frame"):
        seen = {"observation": observation, "w_vis_pursuer": 0.1, "sensing_radius": 3.0}
        world = PursuitWorld(arena_width=10.0, arena_height=10.0, max_steps=20, **seen)
        traces = record(world, Scripted("greedy", "pursuer"), Scripted("flee", "evader"), seed=0)
        pictures.append(next(Film(traces).pictures(size=240)))
    np.testing.assert_array_equal(*pictures)


def marks(picture):
    """Return where the mark of a goal stands on a picture: the mean row and column of its green pixels."""
    near = np.abs(picture.astype(int) - GOAL).sum(axis=2) < 12
    return np.argwhere(near).mean(0)


def test_the_mark_of_a_goal_moves_when_another_goal_is_set():
    world = PursuitWorld(games=1, task="navigation", max_steps=20, goal_radius=100.0, max_goals=5,
                         arena_width=10.0, arena_height=10.0, n_obstacles=0, flee_probability=0.0, observation="sensors", partial_obs=True)  # fmt: skip
    world.reset(seed=[2])
    camera, goals, over = Camera(world, [0]), [], []
    while not over:
        camera.look()
        goals.append(world.records[0]["goal"].copy())
        over = world.step(np.zeros((2, 2), np.float32))[4].get("episodes", ())
    assert len(np.unique(goals, axis=0)) > 2
    film = camera.film(0, over[0])
    np.testing.assert_array_equal(film.traces[0].goals[: len(goals)], goals)
    pictures = list(film.pictures(size=720))
    for t in (0, 2):
        scale = 720 / 10.0
        moved = (marks(pictures[t]) - marks(pictures[0]))[::-1] / scale
        np.testing.assert_allclose(moved, (goals[t] - goals[0]) * [1, -1], atol=0.3)
