"""Where the rollout of every update comes from: collected in turn, or ahead, while the update before it runs.

With `run.overlap = "on"` a thread plays rollout k+1 while update k is made:

    main thread   take rollout k | learn from it                      | count, probe, decide, record, save
    thread                       | play k+1 with the weights of k-1   | idle

The weights are those of a *shadow* of each learner (learn/learner.py), fixed before the thread begins, and all
that is random in the rollout is drawn before it begins, so nothing depends on which thread is faster. The policy
that learns from a rollout is one update newer than the one that played it: PPO takes its ratio to the recorded
probabilities, V-trace weighs by them. The order of things is this:

- The thread is idle whenever anything but learning goes on. What guards decide after update k holds for the
  learners from update k+1 on, as ever, and for the world from rollout k+2 on, because rollout k+1 is played by then.
- Nothing is played ahead across the beginning of a phase: its first rollout is collected in turn, with lag 0.
- When a role goes back to a pair that was kept, the rollout that its abandoned policy has played is left out of
  learning, its episodes are counted with the next ones, and the next rollout is collected in turn. Undoing the last
  update goes back to the very weights that have played the rollout ahead, which is kept.
- A checkpoint holds the rollout that was played ahead, so a killed run goes on bit for bit.
- What fails in the thread is raised when the rollout is asked for, after the update under way was saved; in a
  world that saves its state it is raised at once, because that state is then in the midst of a rollout.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from typing import Any

from holdfast.collect import Collector, Others, Seat
from holdfast.config import Config
from holdfast.records import Episode, Rollout, pack_episodes, unpack_episodes
from holdfast.worlds import OURS
from holdfast.worlds.contract import World

SAVED = (
    *("frames", "begun", "mask", "actions", "log_probs", "values"),
    *("rewards", "terminations", "truncations", "final_values", "memory", "truth"),
)
"""Arrays of a rollout that a learner reads before it writes them."""


@dataclass(frozen=True)
class Gathered:
    """What is known of a rollout besides its arrays."""

    episodes: list[Episode]
    """Games that ended in it."""
    made: int
    """Updates that had been made when it began: the version of the weights that played it."""
    collect_s: float
    world_s: float
    policy_s: float


class Feed:
    """Gives every update its rollout."""

    def __init__(
        self,
        world: World,
        seats: Sequence[Seat],
        others: Others | None = None,
        overlap: bool = False,
    ) -> None:
        self.seats, self.overlap = list(seats), overlap
        """Learners with the rollout that they learn from."""
        players = self.seats
        if overlap:
            players = [Seat(seat.learner.shadow(), seat.slots) for seat in self.seats]
        self.collector = Collector(world, players, others)
        self.times: dict[str, float] = {}
        """How the last update and the collection beside it shared the time."""
        self._next: Gathered | None = None
        self._left_out: list[Episode] = []
        self._fault: BaseException | None = None
        self._pool = ThreadPoolExecutor(1, "holdfast-collect") if overlap else None

    @property
    def ready(self) -> bool:
        """Whether the coming rollout was played ahead."""
        return self._next is not None or self._fault is not None

    def take(self, made: int) -> Gathered:
        """Put the rollout of the update after `made` into the seats; collect it unless it was played ahead."""
        if self._fault is not None:
            raise self._fault
        self.times = {}
        gathered = self._next
        if gathered is None:
            began = time.perf_counter()
            self.collector.begin()
            gathered = self._play(made, began)
        self._next = None
        if self.overlap:
            for seat, player in zip(self.seats, self.collector.seats, strict=True):
                seat.rollout, player.rollout = player.rollout, seat.rollout
                seat.learner.adopt(player.learner)
        gathered = replace(gathered, episodes=self._left_out + gathered.episodes)
        self._left_out = []
        return gathered

    @contextlib.contextmanager
    def ahead(self, made: int) -> Iterator[None]:
        """Play the next rollout in a thread while the block learns; both are done when this ends."""
        assert self._pool is not None
        began = time.perf_counter()
        self.collector.begin()
        under_way = self._pool.submit(self._play, made, time.perf_counter())
        ended: list[float] = []
        under_way.add_done_callback(lambda _: ended.append(time.perf_counter()))
        try:
            yield
        finally:
            learned = time.perf_counter()
            wait([under_way])
        self._fault = under_way.exception()
        if self._fault is not None:
            if self.collector.world.saves_state:
                raise self._fault
            return
        self._next = under_way.result()
        self.times = shared(began, learned, ended[0], self._next.collect_s)

    def refit(self) -> None:
        """Make rollouts of as many steps as the learners ask for now; the episodes under way go on."""
        for seat, player in zip(self.seats, self.collector.seats, strict=True):
            carried = player.learner.acting_state()
            for one in (seat, player):
                one.rollout = seat.learner.new_rollout(len(seat.slots))
            player.learner.load_acting_state(carried)

    def leave_out(self) -> None:
        """Learn nothing from the rollout that was played ahead: whoever played it is not there any more."""
        if self._next is not None:
            self._left_out += self._next.episodes
            self._next = None

    def _play(self, made: int, began: float) -> Gathered:
        episodes = self.collector.play()
        took = time.perf_counter() - began
        return Gathered(episodes, made, took, self.collector.world_s, self.collector.policy_s)

    def state_dict(self) -> dict[str, Any]:
        """Return the rollout that was played ahead, and what its players carry on."""
        ahead = None
        if self._next is not None:
            ahead = {
                **asdict(replace(self._next, episodes=[])),
                "episodes": pack_episodes(self._next.episodes),
                "rollouts": [rollout_state(seat.rollout) for seat in self.collector.seats],
            }
        return {
            "ahead": ahead,
            "left_out": pack_episodes(self._left_out),
            "players": [seat.learner.acting_state() for seat in self.collector.seats],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have played the same rollout ahead; in a world that cannot be restored new episodes follow it."""
        self._left_out, self._next = unpack_episodes(state["left_out"]), None
        for seat, player in zip(self.collector.seats, state["players"], strict=True):
            seat.learner.load_acting_state(player)
            if not self.collector.world.saves_state:
                seat.learner.restart()
        if state["ahead"] is not None:
            ahead = dict(state["ahead"])
            pairs = list(zip(self.collector.seats, ahead.pop("rollouts"), strict=True))
            self._next = Gathered(**{**ahead, "episodes": unpack_episodes(ahead["episodes"])})
            if any(len(saved["actions"]) != seat.rollout.steps for seat, saved in pairs):
                self.leave_out()  # the memory ladder has made rollouts shorter
                return
            for seat, saved in pairs:
                load_rollout(seat.rollout, saved)


def shared(began: float, learned: float, collected: float, collect_s: float) -> dict[str, float]:
    """Return who waited for whom, and which part of the shorter one of both cost no time of its own."""
    learn_s, whole_s = learned - began, max(learned, collected) - began
    return {
        "wait_collect_s": max(0.0, collected - learned),
        "wait_learn_s": max(0.0, learned - collected),
        "overlap_efficiency": (collect_s + learn_s - whole_s) / max(min(collect_s, learn_s), 1e-9),
    }


def rollout_state(rollout: Rollout) -> dict[str, Any]:
    """Return what a learner needs of a rollout."""
    arrays = {name: getattr(rollout, name).copy() for name in SAVED}
    return {**arrays, "noise_seed": rollout.noise_seed}


def load_rollout(rollout: Rollout, state: dict[str, Any]) -> None:
    """Write what `rollout_state` returned into a rollout of the same size."""
    for name in SAVED:
        if name in state or name != "truth":  # runs that were begun without it have none
            getattr(rollout, name)[...] = state[name]
    rollout.noise_seed = int(state["noise_seed"])


def settled(config: Config) -> Config:
    """Return the config of a new run with `run.overlap` decided.

    Worker processes leave the trainer idle while they step, so collecting beside an update pays. So it does with
    pictures, from which torch learns without ever using all cores. Else the worlds of our own and the compiled
    learner compete for the same cores, and the lag would buy nothing. `bench/overlap.py` measures it.
    """
    if config.run.overlap != "auto":
        return config
    pays = pictures(config) if config.world.name in OURS else in_processes(config)
    return replace(config, run=replace(config.run, overlap="on" if pays else "off"))


def as_begun(config: Config, begun: Config) -> Config:
    """Return the config with what was decided for a run that was begun with it."""
    if config.run.overlap != "auto":
        return config
    return replace(config, run=replace(config.run, overlap=begun.run.overlap))


def pictures(config: Config) -> bool:
    """Return whether a run in a world of our own learns from pictures."""
    return getattr(config.world.options, "observation", "") == "pixels"


def in_processes(config: Config) -> bool:
    """Return whether the games of a run in a foreign world are stepped by other processes."""
    name = config.world.name
    from holdfast.worlds.pool_games import make_game
    from holdfast.worlds.pool_modes import choose_mode

    options = config.world.options
    return choose_mode(name, options, make_game(name, options.kwargs)) == "process"
