"""The arrays that the kernels share: one record a game, one record of parameters a level.

Records keep all of a game in neighbouring memory and one kernel argument. What has an option-sized
axis (obstacles, history, search grid) is an array of its own, so that no option changes a compiled type.

Kernels freeze the constants of this file when they are compiled; naming `holdfast.jit` here puts the file
under the stamp that recompiles them after an edit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.records import Array
from holdfast.worlds.pursuit.options import MODES, PursuitOptions

ROLES = ("pursuer", "evader")
SCRIPTS = (
    "static",
    "random",
    "greedy",
    "pure_pursuit",
    "flee",
    "flee_to_corner",
    "circling",
    "chaser",
)
"""Scripted policies, see `policies.Scripted`."""

PARTS = (
    "distance",
    "capture",
    "timeout",
    "visibility",
    "occlusion",
    "hiding",
    "survival",
    "approach",
    "collision",
    "wall",
    "search",
    "barrier",
    "goal_distance",
    "goal",
    "goal_wall",
    "flee_distance",
    "flee_capture",
)
"""Reward components, in the order of `GAME["parts"]`."""
(DISTANCE, CAPTURE, TIMEOUT, VISIBILITY, OCCLUSION, HIDING, SURVIVAL, APPROACH) = range(8)
(COLLISION, WALL, SEARCH, BARRIER, GOAL_DISTANCE, GOAL, GOAL_WALL, FLEE_DISTANCE) = range(8, 16)
FLEE_CAPTURE = 16

ENDINGS = ("", "captured", "escaped", "cut", "goals", "navigation_limit")
"""Why an episode ended, by code; 0 means it runs."""
CAPTURED, ESCAPED, CUT, GOALS, LIMIT = range(1, 6)

FULL, MASKED, SENSORS, FRAME = range(len(MODES))
GRID = 10
"""Cells a side of the search grid."""

MOST_SEGMENTS = 9
"""Segments of inner walls that a layout has at most."""
SEGMENTS: dict[str, tuple[tuple[float, ...], ...]] = {
    "none": (),
    "corridor": ((8, 0, 8, 20), (12, 0, 12, 20)),
    "l_shape": ((8, 8, 15, 8), (8, 8, 8, 15)),
    "warehouse": tuple((x, y, x + 4, y) for x in (3, 9, 15) for y in (5, 10, 15)),
}
"""Ends (x, y, x, y) of inner walls in metres from the corner of the arena."""

GAME = np.dtype(
    [
        ("pose", "f8", (2, 3)),
        ("t", "i8"),
        ("n_obstacles", "i8"),
        ("last_action", "f4", (2, 2)),
        ("distance", "f8"),
        ("clearance", "f8"),
        ("min_distance", "f8"),
        ("los_blocked", "?"),
        ("visible", "u1", (2,)),
        ("wall_contact", "u1", (2,)),
        ("obstacle_contact", "u1", (2,)),
        ("cut", "?"),
        ("flee", "?"),
        ("queued", "u1"),
        ("row", "i8"),
        ("head", "i8"),
        ("returns", "f8", (2,)),
        ("parts", "f8", (2, len(PARTS))),
        ("init_distance", "f8"),
        ("seed", "i8"),
        ("game_seed", "i8"),
        ("episode", "i8"),
        ("interventions", "i8", (2,)),
        ("infeasible", "i8", (2,)),
        ("violations", "i8", (2,)),
        ("barrier_margin", "f8"),
        ("barrier_condition", "f8"),
        ("correction", "f8"),
        ("goal", "f8", (2,)),
        ("goals_reached", "i8"),
        ("goal_draws", "i8"),
        ("queued_seed", "i8"),
        ("queued_pose", "f8", (2, 3)),
        ("queued_n", "i8"),
    ],
    align=True,
)
"""State of one game. `head` is the newest row of the history; `queued` is 0 nothing, 1 a seed, 2 a
snapshot for the next reset; `row` is the game's row of parameters."""

PARAMS = np.dtype(
    [
        ("half_x", "f8"),
        ("half_y", "f8"),
        ("diagonal", "f8"),
        ("dt", "f8"),
        ("robot_radius", "f8"),
        ("capture_radius", "f8"),
        ("v_max", "f8", (2,)),
        ("omega_max", "f8", (2,)),
        ("max_steps", "i8"),
        ("prep_steps", "i8"),
        ("mode", "i8"),
        ("unit_actions", "?"),
        ("timeout_terminates", "?"),
        ("needs_los", "?"),
        ("needs_visible", "?"),
        ("navigation", "?"),
        ("guarded", "u1", (2,)),
        ("correct", "?"),
        ("continuous", "?"),
        ("legacy_lidar", "?"),
        ("n_segments", "i8"),
        ("segments", "f8", (MOST_SEGMENTS, 4)),
        ("legacy_goals", "?"),
        ("combined_masking", "?"),
        ("asymmetric_obs", "?"),
        ("use_visibility_reward", "?"),
        ("min_init_distance", "f8"),
        ("max_init_distance", "f8"),
        ("n_obstacles", "i8"),
        ("n_obstacles_min", "i8"),
        ("n_obstacles_max", "i8"),
        ("n_obstacle_obs", "i8"),
        ("sensing_radius", "f8"),
        ("fov_angle", "f8"),
        ("max_goals", "i8"),
        ("navigation_steps", "i8"),
        ("history_length", "i8"),
        *(
            (name, "f8")
            for name in (
                "obstacle_radius_min",
                "obstacle_radius_max",
                "obstacle_margin",
                "p_full",
                "sensor_half_angle",
                "sensor_range",
                "lidar_range",
                "lidar_noise",
                "distance_scale",
                "capture_bonus",
                "timeout_penalty",
                "w_vis_pursuer",
                "w_occlusion",
                "visibility_weight",
                "survival_bonus",
                "w_obs_approach",
                "w_collision",
                "w_wall",
                "w_search",
                "t_stale",
                "w_cbf_margin",
                "w_cbf_condition",
                "w_cbf_intervention",
                "safety_gamma",
                "safety_alpha",
                "safety_reach",
                "safety_separation",
                "safety_speed_weight",
                "flee_probability",
                "goal_radius",
                "flee_speed_ratio",
            )
        ),
    ],
    align=True,
)
"""Parameters of one level. Radius and angle are -1 where unset, as are the obstacle range's ends."""

VALUES = (
    "min_init_distance",
    "max_init_distance",
    "n_obstacles",
    "n_obstacles_min",
    "n_obstacles_max",
    "prep_steps",
    "max_steps",
    "capture_radius",
    "pursuer_v_max",
    "evader_v_max",
    "p_full",
    "sensing_radius",
    "fov_angle",
    "lidar_noise",
    "distance_scale",
    "capture_bonus",
    "timeout_penalty",
    "w_vis_pursuer",
    "w_occlusion",
    "visibility_weight",
    "survival_bonus",
    "w_obs_approach",
    "w_collision",
    "w_wall",
    "w_search",
    "t_stale",
    "w_cbf_margin",
    "w_cbf_condition",
    "w_cbf_intervention",
    "safety_gamma",
    "safety_alpha",
    "flee_probability",
    "flee_speed_ratio",
)
"""What `set_value` turns while the world runs."""


def inner_walls(o: PursuitOptions) -> Array:
    """Return `[n, 4]`: the ends x, y, x, y of the inner walls as the lidar sees them."""
    # The original's lidar measures from the corner although the arena is centred (defect D1).
    corner = np.zeros(2) if o.legacy_lidar else np.array([o.arena_width, o.arena_height]) / 2
    ends: Array = np.array(SEGMENTS[o.walls], np.float64).reshape(-1, 4) - np.tile(corner, 2)
    return ends


def fill_params(row: Any, o: PursuitOptions) -> None:
    """Write the options into one record of parameters."""
    for name in PARAMS.names or ():
        if name != "mode" and hasattr(o, name):
            value = getattr(o, name)
            row[name] = -1 if value is None else value
    row["mode"] = MODES.index(o.mode)
    row["half_x"], row["half_y"] = o.arena_width / 2, o.arena_height / 2
    row["diagonal"] = np.sqrt(o.arena_width**2 + o.arena_height**2)
    row["v_max"] = (o.pursuer_v_max, o.evader_v_max)
    row["omega_max"] = o.turn_limits
    row["navigation"] = o.task == "navigation"
    row["guarded"] = [o.safety in (role, "both") for role in ROLES]
    row["correct"] = o.safety_method != "observe"
    row["continuous"] = o.safety_method == "ctcbf"
    segments = inner_walls(o)
    row["n_segments"] = len(segments)
    row["segments"][: len(segments)] = segments
    row["needs_visible"] = o.mode == "masked" or o.w_search != 0
    row["needs_los"] = (
        row["needs_visible"]
        or o.w_vis_pursuer != 0
        or o.w_occlusion != 0
        or o.use_visibility_reward
    )


def read_value(row: Any, name: str) -> float:
    """Return what the kernels use for `name`; -1 where it is unset."""
    if name in ("pursuer_v_max", "evader_v_max"):
        return float(row["v_max"][0 if name.startswith("pursuer") else 1])
    return float(row[name])


def ray_table(o: PursuitOptions) -> Array:
    """Return cosine and sine of the lidar rays relative to the heading, `[rays, 2]`."""
    angles = -np.pi + np.arange(o.lidar_rays) * (2 * np.pi / o.lidar_rays)
    return np.ascontiguousarray(np.stack([np.cos(angles), np.sin(angles)], axis=1))
