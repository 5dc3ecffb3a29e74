"""The loop: collect -> learn -> probe -> guards decide -> apply -> record -> save.

One loop serves every world. It owns the clock of the run (`updates`, `env_steps`), asks the guards what
should change, is the only one that changes it, and writes down both the decision and the value that was
read back. Everything that changes is registered by name; a checkpoint is the registry's state after a
whole update, so a run that was killed goes on from there as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from holdfast.account import account
from holdfast.apply import apply
from holdfast.collect import Seat
from holdfast.config import Config
from holdfast.errors import GuardStop
from holdfast.guards import Guard
from holdfast.guards.supply import DeathPlaces
from holdfast.learn.schedule import parse_windows, shape_factor, windowed
from holdfast.overlap import Feed, Gathered
from holdfast.plan import Phase, Plan
from holdfast.probe import probe
from holdfast.probes.clips import shown_again
from holdfast.probes.headlines import headline
from holdfast.probes.rank import parse_rule
from holdfast.probes.runner import ProbeSpec
from holdfast.progress import Progress, start_signals
from holdfast.records import Decision
from holdfast.rng import Streams, derive_seed
from holdfast.selfplay.cast import Cast, policy_state
from holdfast.selfplay.pairs import Pairs
from holdfast.state import Registry
from holdfast.store.checkpoint import Checkpoint, Checkpoints
from holdfast.store.recorder import Recorder
from holdfast.team import Team
from holdfast.worlds import FACTS, OURS, make_world
from holdfast.worlds.contract import World
from holdfast.worlds.events import Record


class Loop:
    """One run from its first update to its last."""

    def __init__(
        self,
        config: Config,
        plan: Plan,
        streams: Streams,
        world: World,
        team: Team,
        cast: Cast,
        guards: list[Guard],
        recorder: Recorder,
        checkpoints: Checkpoints,
        probe_spec: ProbeSpec,
        show: Callable[[dict[str, Any]], None] = lambda line: None,
        events: Record | None = None,
    ) -> None:
        self.config, self.plan, self.streams = config, plan, streams
        self.world, self.team, self.cast = world, team, cast
        self.guards, self.recorder, self.checkpoints = guards, recorder, checkpoints
        self.probe_spec, self.show = probe_spec, show
        self.events = events or Record()
        self.pairs = Pairs(config.selfplay.pairs)
        tails = config.guards.tails
        self.places = DeathPlaces() if tails.enabled and tails.mine else None
        self.total = plan.updates
        self.phase = plan.phase(1)
        self.rule = parse_rule(config.probe.best_by or headline(config.world.name).rule)
        self.progress = Progress()
        self.signals: dict[str, Any] = {}
        self.stopped_by: Decision | None = None
        self.doing = "begin"
        self.probe_steps = 0
        """Steps that probes have made, for the watcher."""
        self.since = time.monotonic()
        self.steps = 0
        """Steps that the last update has learned from."""
        self.seconds: dict[str, float] = {}
        self._starts: dict[str, Any] = {}
        self.messages: list[str] = []
        self.registry = Registry()
        self.registry.register("progress", self.progress)
        self.registry.register("streams", streams)
        for name, part in team.parts.items():
            self.registry.register(name, part)
        self.registry.register("world", world)
        team.configure(self.phase.learner)
        self.seat()
        for guard in guards:
            self.registry.register(f"guard.{guard.name}", guard)
        self.registry.register("recorder", recorder)
        self.registry.register("pairs", self.pairs)
        self.registry.register("cast", cast)
        if self.places is not None:
            self.registry.register("places", self.places)

    def begin(self) -> None:
        """Let the guards set what must hold before the first update of a new run.

        Values are set before the first episodes begin; starts are queued and scripts begun after.
        """
        self.signals = {"update": 0, **self.place(), **self.values()}
        queued: list[tuple[Guard, Decision]] = []
        for guard in self.guards:
            for decision in guard.initial(self.signals):
                if decision.kind in ("inject_starts", "override_actions"):
                    queued.append((guard, decision))
                else:
                    self.take(guard, decision)
            self.merge_status(guard)
        self.remember()
        begin_world(self.world, self.config.run.seed, self.phase)
        self.seat()
        for guard, decision in queued:
            self.take(guard, decision)

    def seat(self) -> None:
        """Seat the learners in the world as it stands now."""
        seats = [Seat(self.team.learners[r], slots) for r, slots in self.cast.seats.items()]
        for seat in seats:
            seat.learner.restart()
        others = self.cast if self.config.selfplay.enabled else None
        self.feed = Feed(self.world, seats, others, self.config.run.overlap == "on")
        self.collector = self.feed.collector
        self.registry.register("collector", self.collector)
        if self.feed.overlap:
            self.registry.register("overlap", self.feed)

    def finish(self) -> None:
        """Let the guards say what is left to say when the last update is made."""
        self.ask(lambda guard: guard.final(self.signals))

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Make updates until the run is done, a guard ends it, or `should_stop` says so."""
        while self.progress.update < self.total:
            self.update()
            if self.stopped_by is not None:
                if self.stopped_by.kind == "finish":
                    return
                raise GuardStop(f"{self.stopped_by.message} [{self.stopped_by.cause}]")
            if should_stop():
                return

    def update(self) -> None:
        """Make one whole update."""
        began = time.perf_counter()
        self.now("enter")
        self.enter(self.plan.phase(self.progress.update + 1))
        self.schedule()
        self.now("collect")
        gathered = self.collect()
        self.now("learn")
        self.learn()
        self.count(gathered)
        self.now("probe")
        probe(self)
        self.now("decide")
        self.decide()
        self.now("record")
        account(self, gathered, began)
        if self.over:
            self.now("finish")
            self.finish()
        self.now("save")
        self.save()

    def now(self, doing: str) -> None:
        """Say what the loop does from now on; a watcher in another thread reads it."""
        self.doing, self.since = doing, time.monotonic()

    def moved(self, done: int, of: int) -> None:
        """Count a step of a probe, for the watcher."""
        self.probe_steps += 1

    @property
    def over(self) -> bool:
        """Whether the last update has been made, or a guard has ended the run."""
        return bool(self.progress.finished) or self.progress.update >= self.total

    def enter(self, phase: Phase, restoring: bool = False) -> None:
        """Change to another phase: its world, if that differs, and its learner settings."""
        if phase == self.phase:
            return
        rebuilt = phase.options != self.phase.options
        if rebuilt:
            before = self.world
            before.close()
            self.world = make_world(
                self.config.world.name, phase.options, record=self.events.at(phase.name)
            )
            self.world.inherit(before)
            own = self.renew(phase)
            self.registry.register("world", self.world)
            self.cast.fit(self.world)
        self.team.configure(phase.learner)
        if rebuilt:
            self.seat()
        else:
            self.feed.refit()
        self.phase = phase
        if rebuilt and not restoring:
            self.rebuilt(own)

    def renew(self, phase: Phase) -> dict[str, float]:
        """Begin the episodes of a new world at the clock of the run, with what guards have set; return its own values."""
        self.world.set_clock(self.progress.env_steps)
        own = self.values()
        self.world.turn(self.progress.turned)
        begin_world(self.world, self.config.run.seed, phase)
        return own

    def rebuilt(self, own: dict[str, float]) -> None:
        """Let the guards give a new world, whose own values these are, what it needs."""
        self.progress.built += 1
        self.signals.update({**self.place(), **own})
        self.ask(lambda guard: guard.requeue(self.signals))

    def place(self) -> dict[str, Any]:
        """Return the signals that say where in the plan and in which world the run stands."""
        phases, labels = self.plan.phases, self.world.start_labels
        coming = phases[min(self.phase.index, len(phases) - 1)]
        return {
            "phase/index": self.phase.index,
            "phase/count": len(phases),
            "phase/first_update": self.phase.first,
            "phase/last_update": self.phase.last,
            "phase/next_last_update": coming.last,
            "world/games": self.world.games,
            "world/slots_per_game": self.world.slots_per_game,
            "world/built": self.progress.built,
            "rollout/steps": self.feed.seats[0].rollout.rewards.size,
            **({"starts/labels": list(labels)} if labels else {}),
        }

    def schedule(self) -> None:
        """Set what the schedules say for the coming update."""
        if self.progress.update + 1 == self.phase.first:
            self.recorder.journal(
                "phase",
                self.progress.update,
                index=self.phase.index,
                name=self.phase.name,
                first=self.phase.first,
                last=self.phase.last,
            )
        config, done = self.phase.learner, self.progress.update / self.total
        factor = shape_factor(
            config.lr_schedule, done, config.lr_warmup, 1 / self.total, config.lr_floor
        )
        self.team.set_value("lr", config.lr * factor)
        windows = parse_windows(config.entropy_windows)
        entropy = windowed(config.entropy, windows, self.progress.update + 1)
        if entropy != self.progress.entropy:  # else it stays as a guard may have turned it
            self.progress.entropy = entropy
            self.team.set_value("entropy", entropy)

    def stagger(self, update: int) -> None:
        """Cut the games whose turn it is before the rollout of an update."""
        groups = self.config.run.stagger // self.phase.learner.steps
        age = update - self.plan.built_at(self.phase)
        if age < groups:
            first = range(age, self.world.games, groups)
            self.world.request_reset([g * self.world.slots_per_game for g in first])

    def collect(self) -> Gathered:
        """Take the rollout of this update: one that was played ahead, or a new one."""
        made = self.progress.update
        if not self.feed.ready:
            self.stagger(made + 1)
        gathered = self.feed.take(made)
        self._starts = {}
        if any(guard.reads_starts for guard in self.guards):
            self._starts = start_signals(self.world, gathered.episodes)
        return gathered

    def learn(self) -> None:
        """Update the learners that train; with overlap the rollout of the next update is played meanwhile."""
        with self.next_rollout():
            began = time.perf_counter()
            self.signals = dict(self.team.learn(self.feed.seats))
            self.seconds["learn"] = time.perf_counter() - began
            parts = [learner.seconds for learner in self.team.learners.values()]
            for name in {name for part in parts for name in part}:
                self.seconds[name] = sum(part.get(name, 0.0) for part in parts)
            if self.feed.overlap:
                self.now("collect")  # what is left of it

    def next_rollout(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which the next rollout is played ahead, if there is one in this phase."""
        made = self.progress.update
        last = made + 1 >= self.total or self.plan.phase(made + 2) != self.phase
        if last or not self.feed.overlap:
            return contextlib.nullcontext()
        self.stagger(made + 2)
        return self.feed.ahead(made)

    def count(self, gathered: Gathered) -> None:
        """Advance the clock and average the facts of recent episodes."""
        progress = self.progress
        self.signals["train/policy_lag"] = progress.update - gathered.made
        progress.update += 1
        before = progress.env_steps
        for role, seat in zip(self.team.learners, self.feed.seats, strict=True):
            if role in self.team.training:
                steps = seat.rollout.rewards.size
                progress.env_steps += steps
                progress.trained[role] = progress.trained.get(role, 0) + steps
        self.steps = progress.env_steps - before
        name = self.config.world.name
        progress.add(gathered.episodes, name if name in OURS else FACTS, self.world.game_roles)
        self.signals.update(self.place())
        self.signals.update(self._starts)
        if self.places is not None:
            labels = self.world.start_labels
            self.signals.update(self.places.take(progress.update, gathered.episodes, labels))
        self.signals["update"] = progress.update
        self.signals["env_steps"] = progress.env_steps
        self.signals["episode/count"] = progress.episodes
        self.signals["episode/uncut_count"] = progress.uncut
        self.signals.update(progress.averages())
        if self.config.selfplay.enabled:
            self.remember()
            self.signals.update(self.sides())
        self.signals.update(self.values())

    def values(self) -> dict[str, float]:
        """Return the values of the world that guards may turn, as they are now."""
        return {f"world/{name}": self.world.value(name) for name in self.world.value_names}

    def decide(self) -> None:
        """Let every guard decide, and apply what it decided."""
        self.messages = []
        self.ask(lambda guard: guard.step(self.signals))

    def ask(self, question: Callable[[Guard], list[Decision]]) -> None:
        """Put a question to every guard in order, apply the answers and record them."""
        for guard in self.guards:
            for decision in question(guard):
                self.take(guard, decision)
            self.merge_status(guard)

    def take(self, guard: Guard, decision: Decision) -> None:
        """Apply one decision and record it with the value read back."""
        applied = apply(self, decision)
        self.recorder.decision(self.progress.update, guard.name, decision, applied)
        if decision.message and decision.kind != "inject_starts":
            self.messages.append(f"{guard.name}: {decision.message}")

    def merge_status(self, guard: Guard) -> None:
        """Let the guards after this one, and the records, see its status."""
        self.signals.update({f"guard/{guard.name}/{k}": v for k, v in guard.status().items()})

    def remember(self) -> None:
        """Offer what the learners are now to the pools of past opponents."""
        if self.progress.update % self.config.selfplay.pool_every == 0:
            for role, learner in self.team.learners.items():
                self.cast.remember(role, policy_state(learner.state_dict()), self.progress.update)

    def sides(self) -> dict[str, Any]:
        """Return the signals of self-play: who trains, how much each has, and what can be gone back to."""
        trained = {f"selfplay/{r}_steps": n for r, n in self.progress.trained.items()}
        return {
            "selfplay/training": list(self.team.training),
            "selfplay/learning": list(self.team.learners),
            "selfplay/pairs": self.pairs.list(),
            **trained,
            **self.cast.signals(),
        }

    def save(self, force: bool = False) -> Checkpoint | None:
        """Write a checkpoint when it is time (or now)."""
        update = self.progress.update
        every = self.config.run.checkpoint_every
        best = self.progress.best_update == update
        probed = int(self.progress.last_probe.get("update", 0))
        shown = shown_again(self.recorder.directory, self.config.probe.clips, probed)
        due = update % every == 0 or self.over or best or update in shown
        due = due or self.stopped_by is not None
        if not due and not force:
            return None
        about = {
            "env_steps": self.progress.env_steps,
            "world": self.config.world.name,
            "run": self.config.run.name,
            "checkpoint_every": every,
            "best_update": self.progress.best_update,
            "learner_threads": self.team.threads,
            "learner_device": self.team.device,
        }
        keep = frozenset({self.progress.best_update, *shown} - {0})
        return self.checkpoints.save(update, self.registry.state_dict(), about, keep)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
        self.enter(self.plan.phase(max(1, int(state["progress"]["update"]))), restoring=True)
        self.registry.load_state_dict(state)

    def resize(self, state: dict[str, Any]) -> dict[str, float]:
        """Begin anew in a world that is larger or smaller than that of the checkpoint; return its own values."""
        self.progress.load_state_dict(state["progress"])
        self.world.inherit_state(state["world"])
        own = self.renew(self.phase)
        self.seat()
        return own

    def replan(self) -> None:
        """Let the guards of a run that goes on see its plan, which may be longer than it was."""
        self.signals = {"update": self.progress.update, **self.place(), **self.values()}
        self.ask(lambda guard: guard.replan(self.signals))


def begin_world(world: World, seed: int, phase: Phase) -> None:
    """Begin the first episodes of a phase; their seeds follow from the run's seed."""
    world.reset(seed=[derive_seed(seed, "world", phase.index, g) for g in range(world.games)])
