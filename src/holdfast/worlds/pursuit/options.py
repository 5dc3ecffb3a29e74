"""Every setting of the pursuit world, with its unit and range.

Names are those of the original's configuration (`env` and `reward` parts of the reference file), so a
recorded configuration can be passed as it stands: `PursuitOptions.of(**config["env"], **config["reward"])`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from holdfast.errors import ConfigError, nearest

MODES = ("full", "masked", "sensors", "frame")
OBSERVATIONS = ("auto", *MODES)
SAFETY_ROLES = ("none", "pursuer", "evader", "both")
SAFETY_METHODS = ("dcbf", "ctcbf", "observe")
TASKS = ("game", "navigation")
LAYOUTS = {"none": 0.0, "corridor": 20.0, "l_shape": 15.0, "warehouse": 20.0}
"""Layouts of inner walls, and the side in metres of the square arena that each belongs to."""


@dataclass(frozen=True)
class PursuitOptions:
    """Settings of the pursuit world; checked when made."""

    games: int = 1
    """Games stepped together, >= 1; slots are twice as many."""
    threads: int = 1
    """Threads that share the games, >= 1; results do not depend on it."""

    arena_width: float = 20.0
    """Arena extent along x in metres, > 0; the arena is centred on the origin."""
    arena_height: float = 20.0
    """Arena extent along y in metres, > 0."""
    dt: float = 0.05
    """Seconds a step, > 0."""
    max_steps: int = 1200
    """Steps until the evader has escaped, >= 1."""
    capture_radius: float = 0.5
    """Metres between the centres at which the evader is caught, > 0."""
    robot_radius: float = 0.15
    """Metres, >= 0; keeps centres off walls and obstacles."""
    pursuer_v_max: float = 1.0
    """Top speed of the pursuer in m/s, > 0."""
    evader_v_max: float = 1.0
    """Top speed of the evader in m/s, > 0."""
    action_v_max: float | None = None
    """Upper speed bound of the action space in m/s; None: the larger top speed. Leave room if a
    curriculum raises speeds."""
    omega_max: float = 2.84
    """Turn-rate limit of both in rad/s, > 0."""
    pursuer_omega_max: float | None = None
    """Turn-rate limit of the pursuer in rad/s; None: `omega_max`."""
    evader_omega_max: float | None = None
    """Turn-rate limit of the evader in rad/s; None: `omega_max`."""
    fixed_speed: bool = False
    """Agents choose only omega and drive at their top speed: the action has one number. Scripts keep their own."""
    unit_actions: bool = False
    """Actions are parts of the own limits, v in 0..1 and omega in -1..1, instead of m/s and rad/s: for
    games in which the limits of the two roles differ much."""
    prep_steps: int = 0
    """Steps at the start in which the pursuer may turn but not drive, >= 0."""
    min_init_distance: float = 3.0
    """Least distance of the agents at reset in metres, >= 0."""
    max_init_distance: float = 15.0
    """Greatest distance of the agents at reset in metres, >= `min_init_distance`."""
    n_obstacles: int = 0
    """Circular obstacles of each episode, 0 to `obstacle_capacity`."""
    n_obstacles_min: int | None = None
    """With `n_obstacles_max`: the count is drawn evenly from this range each episode."""
    n_obstacles_max: int | None = None
    """See `n_obstacles_min`."""
    obstacle_capacity: int | None = None
    """Rows kept for obstacles; None: enough for the options above, and at least 4."""
    obstacle_radius_min: float = 0.3
    """Least obstacle radius in metres, > 0."""
    obstacle_radius_max: float = 1.0
    """Greatest obstacle radius in metres, >= `obstacle_radius_min`."""
    obstacle_margin: float = 0.5
    """Least gap in metres between obstacles, and between obstacles and walls, >= 0."""
    timeout_terminates: bool = False
    """True: a time-out is a termination (no bootstrap). False, as in the original: a truncation. Time is
    not observed, so the last state looks like any other and its value is that of playing on; the
    time-out payment is then followed by that value, discounted. With many steps to the limit the two
    differ little; take True where returns must be exactly those of the finite game."""

    observation: str = "auto"
    """`full`, `masked` (opponent hidden by radius, cone or line of sight), `sensors` (cone, lidar and
    history), `frame` (as much as `full`, in the own frame and without seams: the easiest to learn from), or `auto`:
    `masked` if `partial_obs`, else `full`."""
    partial_obs: bool = False
    """The original's name for `observation = masked`."""
    n_obstacle_obs: int = 0
    """Nearest obstacles in the full, masked and frame observation, >= 0."""
    sensing_radius: float | None = None
    """Metres within which an agent sees the other (masked) and cells (search); None: unlimited."""
    fov_angle: float | None = None
    """Total angle of the view cone in rad, 0 to 2 pi; None: all round."""
    combined_masking: bool = False
    """Radius and cone also need a clear line of sight."""
    asymmetric_obs: bool = False
    """The evader is never masked."""
    p_full: float = 0.0
    """Masking curriculum: chance a step that the pursuer gets the unmasked vector, 0 to 1. Probes play with 0."""
    sensor_half_angle: float = math.pi / 3
    """Half angle of the opponent sensor in rad (sensors), 0 to pi."""
    sensor_range: float = 10.0
    """Range of the opponent sensor in metres (sensors), > 0."""
    lidar_rays: int = 36
    """Rays round the agent (sensors), >= 1."""
    lidar_range: float = 5.0
    """Longest lidar reading in metres, > 0."""
    lidar_noise: float = 0.02
    """Standard deviation of a lidar reading in metres, >= 0."""
    history_length: int = 10
    """Raw vectors kept in the sensors observation, >= 1."""
    walls: str = "none"
    """Inner walls that the lidar sees (sensors): `corridor`, `l_shape` or `warehouse`, the original's layouts for
    evaluation. As there, nothing else knows them: they neither stop agents nor block the view."""
    legacy_lidar: bool = False
    """Lidar walls at x = 0, W and y = 0, H as in the original (defect D1)."""

    distance_scale: float = 1.0
    """Weight of the closing of the distance, in units of the diagonal."""
    capture_bonus: float = 100.0
    """Paid to the pursuer at capture, and by the evader."""
    timeout_penalty: float = -100.0
    """Paid to the pursuer at the time-out (negative), and its opposite to the evader."""
    w_vis_pursuer: float = 0.0
    """A step on which the pursuer has the evader in radius and in line of sight, zero-sum."""
    w_occlusion: float = 0.0
    """To the evader for each step out of the line of sight (mode A), >= 0."""
    use_visibility_reward: bool = False
    """Mode B: where obstacles stand, the evader's step reward is +- `visibility_weight` instead."""
    visibility_weight: float = 1.0
    """Reward of mode B for being hidden, and cost of being seen."""
    survival_bonus: float = 0.0
    """To the evader for each live step."""
    w_obs_approach: float = 0.0
    """To the evader for nearing an obstacle, in units of the diagonal."""
    w_collision: float = 0.0
    """Cost of each step with an own obstacle contact, >= 0."""
    w_wall: float = 0.0
    """Cost of each step with an own wall contact, >= 0."""
    w_search: float = 0.0
    """To the pursuer for looking at cells not seen for long, while the evader is out of sight."""
    t_stale: float = 50.0
    """Steps after which a cell is fully stale, > 0."""
    w_cbf_margin: float = 0.0
    """Zero-sum, to the pursuer: times the least barrier value clipped to 0..1 (original 0.05)."""
    w_cbf_condition: float = 0.0
    """Zero-sum cost to the pursuer of an action that breaks the barrier condition, by how much."""
    w_cbf_intervention: float = 0.0
    """Zero-sum cost to the pursuer of being corrected: 1 - exp(-|du|^2 / 0.1)."""

    safety: str = "none"
    """Whose actions pass the barrier filter: `none`, `pursuer`, `evader`, `both`."""
    safety_method: str = "dcbf"
    """`dcbf` (discrete), `ctcbf` (continuous time), or `observe`: measure and change nothing."""
    safety_gamma: float = 0.2
    """Decay rate of the discrete barrier, 0 < gamma <= 1."""
    safety_alpha: float = 1.0
    """Gain of the continuous-time barrier in 1/s, > 0."""
    safety_reach: float = 0.1
    """Metres from the centre to the virtual control point, > 0."""
    safety_separation: float = 0.35
    """Least distance of the two virtual points in metres, >= 0."""
    safety_speed_weight: float = 150.0
    """Cost of changing v against changing omega, > 0."""

    task: str = "game"
    """`game`, or `navigation`: the cold start of the evader (goals, or fleeing a slow chaser)."""
    flee_probability: float = 0.5
    """Chance that a navigation episode is fleeing, 0 to 1."""
    navigation_steps: int = 300
    """Limit of a navigation episode in steps, >= 1."""
    goal_radius: float = 0.5
    """Metres at which a goal is reached, > 0."""
    max_goals: int = 3
    """Goals after which a navigation episode ends, >= 1."""
    flee_speed_ratio: float = 0.5
    """Speed of the chaser as a part of `pursuer_v_max`, >= 0."""
    legacy_goals: bool = False
    """Goals and near-wall cost in the original's wrong frame (defect D2)."""

    def __post_init__(self) -> None:
        """Check every field; raise `ConfigError` for the first that is out of range."""
        for name, low, strict in _LOWER:
            _at_least(name, getattr(self, name), low, strict)
        for name, high in _UPPER:
            value = getattr(self, name)
            if value is not None and value > high:
                raise _bad(name, value, f"at most {high:g}")
        for name, words in _WORDS:
            if getattr(self, name) not in words:
                raise _bad(name, getattr(self, name), "one of " + ", ".join(words))
        if self.max_init_distance < self.min_init_distance:
            allowed = f"at least min_init_distance, which is {self.min_init_distance:g} (set both at once)"
            raise _bad("max_init_distance", self.max_init_distance, allowed)
        reach = math.hypot(
            self.arena_width - 2 * self.robot_radius, self.arena_height - 2 * self.robot_radius
        )
        if self.min_init_distance > reach:
            raise _bad(
                "min_init_distance", self.min_init_distance, f"at most {reach:.3f} in this arena"
            )
        if self.obstacle_radius_max < self.obstacle_radius_min:
            raise _bad(
                "obstacle_radius_max", self.obstacle_radius_max, "at least obstacle_radius_min"
            )
        side = LAYOUTS[self.walls]
        if side and (self.arena_width, self.arena_height) != (side, side):
            raise _bad("walls", self.walls, f"in an arena of {side:g} x {side:g} m only")
        self._check_counts()
        if self.partial_obs and self.observation in ("full", "frame"):
            raise _bad(
                "observation", self.observation, "masked, sensors or auto while partial_obs is true"
            )
        self._check_hiding()
        self._check_barrier()
        if self.task == "navigation" and self.mode != "sensors" and self.flee_probability < 1.0:
            allowed = "1 unless observation is sensors: only the sensors show the goal"
            raise _bad("flee_probability", self.flee_probability, allowed)
        if not self.fixed_speed and max(self.pursuer_v_max, self.evader_v_max) > self.speed_bound:
            allowed = "at least both top speeds; make the world with a larger action_v_max"
            raise _bad("action_v_max", self.action_v_max, allowed)

    def _check_hiding(self) -> None:
        """Refuse what hides the opponent, or pays for looking for it, where the observation never hides it so."""
        if self.mode == "masked":
            return
        inert = ["fov_angle", "combined_masking", "asymmetric_obs", "p_full"]
        if self.mode != "sensors":
            inert.append("w_search")
        if not (self.w_vis_pursuer or self.w_search):
            inert.append("sensing_radius")
        for name in inert:
            value = getattr(self, name)
            if value:
                words = f"only with --observation masked; with '{self.mode}' it does nothing"
                raise _bad(name, value, words)

    def _check_barrier(self) -> None:
        """Refuse what pays for the pursuer's barrier where the pursuer has none."""
        if self.safety in ("pursuer", "both"):
            return
        for name in ("w_cbf_margin", "w_cbf_condition", "w_cbf_intervention"):
            value = getattr(self, name)
            if value:
                words = f"only with --safety pursuer or both; with '{self.safety}' it does nothing"
                raise _bad(name, value, words)

    def _check_counts(self) -> None:
        low, high = self.n_obstacles_min, self.n_obstacles_max
        if (low is None) != (high is None):
            raise _bad("n_obstacles_max", high, "set together with n_obstacles_min")
        if low is not None and high is not None and high < low:
            raise _bad("n_obstacles_max", high, f"at least n_obstacles_min, which is {low}")
        most = max(self.n_obstacles, high or 0)
        if most > self.capacity:
            raise _bad("n_obstacles", most, f"at most obstacle_capacity, which is {self.capacity}")

    @classmethod
    def of(cls, **given: Any) -> PursuitOptions:
        """Return options from names and values; an unknown name is an error with the nearest match."""
        known = {f.name for f in fields(cls)}
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"The pursuit world has no option '{name}'.{nearest(name, known)} "
                    f"See holdfast.worlds.pursuit.PursuitOptions for all {len(known)}."
                )
        return cls(**given)

    @classmethod
    def from_reference(cls, config: Mapping[str, Any], **more: Any) -> PursuitOptions:
        """Return the options of a recorded configuration with `env` and `reward` parts."""
        return cls.of(**{**config["env"], **config["reward"], **more})

    def turned(self, changes: Mapping[str, Any]) -> PursuitOptions:
        """Return the options with these changes; a number of obstacles ends the range that it would be drawn from."""
        if "n_obstacles" in changes:
            changes = {"n_obstacles_min": None, "n_obstacles_max": None, **changes}
        return replace(self, **changes)

    @property
    def mode(self) -> str:
        """The observation in force: `full`, `masked`, `sensors` or `frame`."""
        if self.observation != "auto":
            return self.observation
        return "masked" if self.partial_obs else "full"

    @property
    def capacity(self) -> int:
        """Rows kept for obstacles."""
        if self.obstacle_capacity is not None:
            return self.obstacle_capacity
        return max(4, self.n_obstacles, self.n_obstacles_max or 0, self.n_obstacle_obs)

    @property
    def speed_bound(self) -> float:
        """Upper speed bound of the action space in m/s."""
        if self.action_v_max is not None:
            return self.action_v_max
        return max(self.pursuer_v_max, self.evader_v_max)

    @property
    def turn_limits(self) -> tuple[float, float]:
        """Turn-rate limits of pursuer and evader in rad/s."""
        both = self.omega_max
        p, e = self.pursuer_omega_max, self.evader_omega_max
        return (both if p is None else p, both if e is None else e)

    @property
    def observation_size(self) -> int:
        """Numbers in one agent's observation."""
        if self.mode == "sensors":
            raw = 7 + self.lidar_rays
            return self.lidar_rays + self.history_length * raw + 7
        if self.mode == "frame":
            return 20 + 4 * self.n_obstacle_obs
        return (14 if self.mode == "full" else 15) + 2 * self.n_obstacle_obs


_LOWER: tuple[tuple[str, float, bool], ...] = (
    *((name, 1, False) for name in ("games", "threads", "max_steps", "lidar_rays")),
    *((name, 1, False) for name in ("history_length", "navigation_steps", "max_goals")),
    *((name, 0, True) for name in ("arena_width", "arena_height", "dt", "capture_radius")),
    *((name, 0, True) for name in ("pursuer_v_max", "evader_v_max", "action_v_max", "omega_max")),
    *((name, 0, True) for name in ("pursuer_omega_max", "evader_omega_max", "sensing_radius")),
    *(
        (name, 0, True)
        for name in ("fov_angle", "sensor_half_angle", "sensor_range", "lidar_range")
    ),
    *(
        (name, 0, True)
        for name in ("obstacle_radius_min", "t_stale", "safety_gamma", "safety_alpha")
    ),
    *((name, 0, True) for name in ("safety_reach", "safety_speed_weight", "goal_radius")),
    *((name, 0, False) for name in ("robot_radius", "prep_steps", "min_init_distance")),
    *((name, 0, False) for name in ("max_init_distance", "n_obstacles", "n_obstacles_min")),
    *((name, 0, False) for name in ("n_obstacles_max", "obstacle_capacity", "obstacle_margin")),
    *((name, 0, False) for name in ("n_obstacle_obs", "p_full", "lidar_noise", "w_collision")),
    *((name, 0, False) for name in ("w_wall", "safety_separation", "flee_probability")),
    *((name, 0, False) for name in ("flee_speed_ratio", "w_occlusion")),
    *((name, -math.inf, False) for name in ("distance_scale", "capture_bonus", "timeout_penalty")),
    *((name, -math.inf, False) for name in ("w_vis_pursuer", "visibility_weight")),
    *((name, -math.inf, False) for name in ("survival_bonus", "w_obs_approach", "w_search")),
    *(
        (name, -math.inf, False)
        for name in ("w_cbf_margin", "w_cbf_condition", "w_cbf_intervention")
    ),
)
"""Name, bound, and whether the bound itself is excluded; also the list of what must be a number."""

_UPPER: tuple[tuple[str, float], ...] = (
    ("p_full", 1.0),
    ("flee_probability", 1.0),
    ("safety_gamma", 1.0),
    ("fov_angle", 2 * math.pi),
    ("sensor_half_angle", math.pi),
)

_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("observation", OBSERVATIONS),
    ("safety", SAFETY_ROLES),
    ("safety_method", SAFETY_METHODS),
    ("task", TASKS),
    ("walls", tuple(LAYOUTS)),
)

INTEGERS = frozenset(f.name for f in fields(PursuitOptions) if str(f.type).startswith("int"))
OPTIONAL = frozenset(f.name for f in fields(PursuitOptions) if str(f.type).endswith("None"))


def _at_least(name: str, value: Any, low: float, strict: bool) -> None:
    if value is None and name in OPTIONAL:
        return
    whole = name in INTEGERS
    allowed = ("a whole number" if whole else "a finite number") + (
        "" if low == -math.inf else f" {'above' if strict else 'of at least'} {low:g}"
    )
    wrong = isinstance(value, bool) or not isinstance(value, int if whole else (int, float))
    if wrong or not math.isfinite(value) or value < low or (strict and value == low):
        raise _bad(name, value, allowed)


def _bad(name: str, value: Any, allowed: str) -> ConfigError:
    return ConfigError(f"Pursuit option '{name}' is {value!r}; allowed: {allowed}.")
