"""Super Mario Bros as a world: one slot a game, each on a console of its own.

An episode is one life on one stage. It terminates with a clear, a death, time up, a warp, or stagnation (no new
ground for `stagnation_steps`: standing still is losing, so nothing is bootstrapped there); it is cut (truncated) at
`max_steps`, by `request_reset`, and when the game hangs. `books.ENDS` is the closed list of reasons.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from holdfast.errors import EnvironmentFault
from holdfast.parallel import Threads
from holdfast.records import F64, Array, Bools, Start
from holdfast.worlds.contract import State, World
from holdfast.worlds.mario import books as b
from holdfast.worlds.mario import play, tiles
from holdfast.worlds.mario.actions import ACTION_SETS, pads_of
from holdfast.worlds.mario.books import Rules, make_books
from holdfast.worlds.mario.episodes import check_snapshot, episode_seed, make_episode
from holdfast.worlds.mario.frames import SIDE
from holdfast.worlds.mario.machine import JAM, Bytes, Canvas, make_canvas
from holdfast.worlds.mario.nes import STATUS_LINES, Machines
from holdfast.worlds.mario.options import RANGES, REWARDS, MarioOptions, stage_name
from holdfast.worlds.mario.palette import GREY
from holdfast.worlds.mario.rewards import COMPONENTS, Weights
from holdfast.worlds.mario.script import Script, parse_script
from holdfast.worlds.mario.stages import NOOP_DRAW, Schedule, booted, cartridge_at, mix
from holdfast.worlds.mario.trail import Trail
from holdfast.worlds.queues import StartQueues
from holdfast.worlds.ranges import clipped

_BOOKS = tuple(name for name in b.Books._fields if name != "script")
_LIMITS = ("max_steps", "stagnation_steps")
_STAGING = {"stage_unlock": "unlock", "stage_floor": "floor"}


class MarioWorld(World):
    """A batch of consoles that play Super Mario Bros."""

    value_names = (*REWARDS, *_LIMITS, *_STAGING)
    value_ranges = RANGES
    game_roles = ("mario",)

    def __init__(self, options: MarioOptions | None = None, *, seed: int | None = None) -> None:
        """Boot the stages and begin the first episodes from `seed` (from the system without one)."""
        self.options = options if options is not None else MarioOptions()
        o = self.options
        pixels = o.observation == "pixels"
        super().__init__(
            games=o.games,
            slots_per_game=1,
            roles=self.game_roles,
            observation_space=gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
            if pixels
            else gym.spaces.Box(-np.inf, np.inf, (tiles.SIZE,), np.float32),
            action_space=gym.spaces.Discrete(len(ACTION_SETS[o.actions])),
        )
        self._threads = Threads(o.threads)
        self._machines = Machines(cartridge_at(o.rom, o.any_rom), o.games, self._threads)
        self._canvases: dict[int, Canvas] = {}
        self._books = make_books(o.games, len(ACTION_SETS[o.actions]), len(COMPONENTS))
        self._greys = np.zeros((o.games if pixels else 0, SIDE, SIDE), np.uint8)
        self._tiles = np.zeros((0 if pixels else o.games, tiles.SIZE), np.float32)
        self._obs: Array = self._greys if pixels else self._tiles
        self._parts = np.zeros((o.games, len(COMPONENTS)))
        self._weights = Weights(o)
        self._limits = {name: int(getattr(o, name)) for name in _LIMITS}
        self._rules = self._make_rules()
        self._schedule = Schedule(o)
        self.start_labels = tuple(stage_name(stage) for stage in self._schedule.stages)
        self._trail = Trail(self._machines.bank, self._greys, o.trail, o.trail_every)
        self._starts = StartQueues(o.games)
        self._seeds = np.zeros(o.games, np.int64)
        self._episodes = np.zeros(o.games, np.int64)
        self._ready: dict[tuple[tuple[int, int], int], dict[str, Array]] = {}
        self.env_steps = 0
        """Env steps of the run so far: the clock of annealing."""
        self._ticks = True
        self.reset(seed=secrets.randbits(62) if seed is None else seed)

    @property
    def frame_stack(self) -> int:
        """How many frames of one episode a learner stacks by index; the world gives each once."""
        return self.options.stack if self._rules.pixels else 1

    @property
    def action_names(self) -> tuple[str, ...]:
        """The buttons of each action."""
        return ACTION_SETS[self.options.actions]

    @property
    def pads(self) -> Bytes:
        """The pad byte of each action."""
        return self._rules.pads

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin a new episode in every game; see the contract for what `seed` means. Scripts are dropped."""
        if seed is not None:
            self._seeds[:] = self.game_seeds(seed)
            self._episodes[:] = 0
        self._books.script_at[:] = self._books.script_end
        self._books.forced[:] = False
        self._begin(list(range(self.games)))
        obs, mask = self.observe()
        return obs, {"mask": mask}

    def step_into(
        self,
        actions: Array,
        obs: Array,
        rewards: F64,
        terminations: Bools,
        truncations: Bools,
        mask: Bools,
    ) -> dict[str, Any]:
        """Step all games once into the given rows; games that end begin anew."""
        chosen = self._checked_actions(actions)
        machines, books, rules = self._machines, self._books, self._rules
        weights = self._weights.at(self.env_steps)

        def work(lo: int, hi: int) -> None:
            play.step_games(
                machines.bank, machines.board, self._canvas(lo), books, rules, weights, chosen,
                self._parts, self._greys, self._tiles, rewards, terminations, truncations, mask, lo, hi,
            )  # fmt: skip

        self._threads.over(self.games, work)
        self.env_steps += self.games * self._ticks
        if machines.bank.regs[:, JAM].any():
            machines.run(0, 0)  # runs nothing, and says which console jammed
        info: dict[str, Any] = {}
        if books.ended.any():
            info = self._renew(truncations)
        self._trail.keep(books.counts, books.area_best)
        obs[...] = self._obs
        return info

    def observe(self) -> tuple[Array, Bools]:
        """Return the current `(obs, mask)`."""
        return self._obs.copy(), ~self._books.forced

    def override(self, slots: Sequence[int], script: str | Script) -> int:
        """Let a script play these slots after their next step, and return its length in steps.

        The action that is already being chosen still counts; the observation after it is masked, and then the
        script's buttons are held instead of the policy's, without reward. A script ends with its episode, if that
        ends first; a new one replaces it.
        """
        parsed = parse_script(script) if isinstance(script, str) else script
        pads, games = parsed.pads(), self.games_of(slots)
        books = self._books
        if len(pads) > books.script.shape[1]:
            longer = np.zeros((self.games, len(pads)), np.uint8)
            longer[:, : books.script.shape[1]] = books.script
            self._books = books = books._replace(script=longer)
        books.script[games, : len(pads)] = pads
        books.script_at[games] = 0
        books.script_end[games] = len(pads)
        return len(pads)

    def queue_starts(self, slots: Sequence[int], starts: Sequence[Start]) -> None:
        """Append `starts[k]` to what the next resets of the game of `slots[k]` begin from."""
        for start in starts:
            if start.snapshot is not None:
                check_snapshot(start.snapshot, self._machines.bank)
        self._starts.add(self.games_of(slots), starts)

    def queued(self) -> list[int]:
        """Return how many starts wait in each game."""
        return self._starts.waiting()

    def current_starts(self) -> list[Start]:
        """Return the start of the episode that each game plays now."""
        return list(self._starts.running)

    def request_reset(self, slots: Sequence[int]) -> None:
        """Cut the games of these slots at their next step."""
        self._books.pending[self.games_of(slots)] = True

    def set_value(self, name: str, value: float) -> None:
        """Set one of `value_names`, clipped to the option's range, from the next step or reset on."""
        if name not in self.value_names:
            raise self._unknown_value(name)
        near = clipped(f"mario value '{name}'", value, RANGES[name])
        if name in REWARDS:
            self._weights.set(name, near)
        elif name in _STAGING:
            setattr(self._schedule, _STAGING[name], near)
        else:
            self._limits[name] = int(near)
            self._rules = self._make_rules()

    def value(self, name: str) -> float:
        """Return what the world uses now for `name`; for an annealed weight, its value at this env step."""
        if name in REWARDS:
            return float(self._weights.at(self.env_steps)[REWARDS.index(name)])
        if name in _STAGING:
            return float(getattr(self._schedule, _STAGING[name]))
        if name in _LIMITS:
            return float(getattr(self._rules, name))
        raise self._unknown_value(name)

    def unset_value(self, name: str) -> None:
        """Let the option of this name hold again; a weight is annealed again if its option says so."""
        if name in REWARDS:
            self._weights.unset(name)
        else:
            super().unset_value(name)

    def set_clock(self, env_steps: int, ticks: bool = True) -> None:
        """Let the clock of annealing stand at `env_steps`; without `ticks` it stays there."""
        self.env_steps, self._ticks = env_steps, ticks

    def inherit(self, before: World) -> None:
        """Take over the clear rates and unlocked stages of another mario world."""
        if isinstance(before, MarioWorld):
            self._schedule.inherit(before._schedule)

    def inherit_state(self, state: State) -> None:
        """Take over the clear rates and unlocked stages from the state of a world of as many stages."""
        self._schedule.load(np.asarray(state["schedule"]))

    def records(self) -> dict[str, Array]:
        """Return where every game stands now, one array `[N]` a name: `books.COLUMNS`, and the reward so far"""
        rows: dict[str, Array] = {
            name: self._books.counts[:, k].copy() for k, name in enumerate(b.COLUMNS)
        }
        return {**rows, "reward": self._books.sums.sum(axis=1)}

    def stage_rates(self) -> dict[str, tuple[float, int]]:
        """Return the clear rate and the number of episodes of each stage of the schedule."""
        s = self._schedule
        rows = zip(s.stages, s.rates.tolist(), s.episodes.tolist(), strict=True)
        return {stage_name(stage): (rate, count) for stage, rate, count in rows}

    def snapshot(self, game: int) -> dict[str, Array]:
        """Return the present moment of a game as the snapshot of a `Start`."""
        moment: dict[str, Array] = dict(self._machines.save_machine(game))
        moment["area_best"] = self._books.area_best[game].copy()
        if self._rules.pixels:
            moment["frame"] = self._greys[game].copy()
        return moment

    def machine(self, game: int) -> dict[str, Array]:
        """Return a copy of the console of a game, for pictures."""
        return dict(self._machines.save_machine(game))

    def get_state(self) -> State:
        """Return a copy of everything from which stepping goes on bit for bit."""
        clocks = [self.env_steps, *self._limits.values()]
        return {
            **{f"nes_{name}": rows for name, rows in self._machines.get_state().items()},
            **{name: getattr(self._books, name).copy() for name in _BOOKS},
            **{f"trail_{name}": rows for name, rows in self._trail.state().items()},
            "script": self._books.script.copy(),
            "obs": self._obs.copy(),
            "seeds": self._seeds.copy(),
            "episodes": self._episodes.copy(),
            "clocks": np.array(clocks, np.int64),
            "weights": self._weights.state(),
            "schedule": self._schedule.state(),
            **self._starts.state(),
        }

    def set_state(self, state: State) -> None:
        """Go on from `state`, which a world with the same options gave."""
        books = self._books
        targets: dict[str, Array] = {
            **{f"nes_{name}": rows for name, rows in self._machines.bank._asdict().items()},
            **{name: getattr(books, name) for name in _BOOKS},
            **{f"trail_{name}": rows for name, rows in self._trail.arrays().items()},
            "obs": self._obs,
            "seeds": self._seeds,
            "episodes": self._episodes,
        }
        shapes = {name: target.shape for name, target in targets.items()}
        shapes["weights"] = self._weights.state().shape
        shapes["schedule"] = self._schedule.state().shape
        for name, shape in shapes.items():
            if name not in state or np.shape(state[name]) != shape:
                found = f"shape {np.shape(state[name])}" if name in state else "nothing"
                raise EnvironmentFault(
                    f"The state of a mario world has '{name}' with {found}. Allowed: shape {shape}, for "
                    f"{self.games} games. Make the world with the options that the state was saved under."
                )
        for name, target in targets.items():
            target[...] = state[name]
        script = np.array(state["script"], np.uint8, order="C")
        self._books = books._replace(script=script)
        self.env_steps, *limits = (int(n) for n in state["clocks"])
        self._limits = dict(zip(_LIMITS, limits, strict=True))
        self._rules = self._make_rules()
        self._weights.load(state["weights"])
        self._schedule.load(state["schedule"])
        self._starts.load(state)

    def close_extras(self, **kwargs: Any) -> None:
        """Let the threads go."""
        self._threads.close()

    def _make_rules(self) -> Rules:
        o = self.options
        return Rules(
            pads=pads_of(o.actions),
            skip=o.skip,
            pixels=o.observation == "pixels",
            brightest=o.brightest,
            top=STATUS_LINES if o.crop else 0,
            max_steps=self._limits["max_steps"],
            stagnation_steps=self._limits["stagnation_steps"],
            milestone_pixels=o.milestone_pixels,
        )

    def _canvas(self, lo: int) -> Canvas:
        """Return the scratch of the thread whose range begins at `lo`."""
        canvas = self._canvases.get(lo)
        if canvas is None:
            canvas = self._canvases[lo] = make_canvas(GREY)
        return canvas

    def _checked_actions(self, actions: Array) -> Array:
        chosen = np.ascontiguousarray(actions, np.int64)
        count = len(self._rules.pads)
        if chosen.shape != (self.games,) or chosen.min() < 0 or chosen.max() >= count:
            raise EnvironmentFault(
                f"The mario world got actions of shape {chosen.shape} with values {chosen.ravel()[:8]}. Allowed: "
                f"({self.games},), each from 0 to {count - 1} ({', '.join(self.action_names)})."
            )
        return chosen

    def _begin(self, games: list[int]) -> None:
        """Load the next start of these games and open their books."""
        bank, books = self._machines.bank, self._books
        for g in games:
            seed = episode_seed(int(self._seeds[g]), int(self._episodes[g]))
            start = self._starts.take(g, seed)
            moment = (
                start.snapshot if start.snapshot is not None else self._fresh(g, start.seed or 0)
            )
            self._machines.load_machine(g, moment)
            play.open_books(bank.ram[g], books.counts[g], books.area_best[g])
            if "area_best" in moment:
                books.area_best[g] = moment["area_best"]
                books.counts[g, b.BEST_X] = max(moment["area_best"].max(), books.counts[g, b.X])
            if self._rules.pixels:
                self._greys[g] = moment["frame"] if "frame" in moment else self._peek(g)
            else:
                tiles.write_tiles(bank.ram[g], self._tiles[g])
            stage = (int(books.counts[g, b.WORLD]), int(books.counts[g, b.STAGE]))
            if not start.label:
                self._starts.running[g] = replace(start, label=stage_name(stage))
        self._episodes[games] += 1
        for rows in (books.sums, books.chosen, books.ended, books.pending):
            rows[games] = 0
        self._trail.forget(games)

    def _fresh(self, g: int, seed: int) -> Mapping[str, Array]:
        """Return the start of the stage that the schedule chooses, after the seed's frames of standing still."""
        o = self.options
        stage = self._schedule.choose(seed, g, int(self._episodes[g]))
        frames = 1 + mix(seed, NOOP_DRAW) % (o.noops + 1)
        found = self._ready.get((stage, frames))
        if found is None:
            self._machines.load_machine(g, booted(o.rom, o.any_rom, stage))
            grey = np.zeros((SIDE, SIDE), np.uint8)
            self._stand_still(g, frames, grey)
            found = self._ready[stage, frames] = {**self._machines.save_machine(g), "frame": grey}
        return found

    def _peek(self, g: int) -> Array:
        """Return what the next frames of a game will look like, which stays where it is."""
        grey = np.zeros((SIDE, SIDE), np.uint8)
        now = self._machines.save_machine(g)
        self._stand_still(g, 2, grey)
        self._machines.load_machine(g, now)
        return grey

    def _stand_still(self, g: int, frames: int, grey: Array) -> None:
        machines = self._machines
        play.begin_game(
            machines.bank, machines.board, self._canvas(0), self._rules, g, frames, grey
        )

    def _renew(self, truncations: Bools) -> dict[str, Any]:
        """Record the games that ended and begin them anew."""
        games = np.flatnonzero(self._books.ended).tolist()
        episodes = [
            make_episode(self._books, g, self._starts.running[g], self.action_names, self._trail)
            for g in games
        ]
        for episode in episodes:
            fresh = episode.start.snapshot is None and not episode.facts["scripted"]
            if fresh and not episode.cut:
                stage = (int(episode.facts["world"]), int(episode.facts["stage"]))
                self._schedule.count(stage, episode.ended == "clear")
        info = {
            "final_obs": self._obs.copy(),
            "_final_obs": truncations.copy(),
            "episodes": episodes,
        }
        self._begin(games)
        return info
