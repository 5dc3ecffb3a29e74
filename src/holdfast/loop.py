"""The loop: collect -> learn -> probe -> guards decide -> apply -> record -> save.

One loop serves every world. It owns the clock of the run (`updates`, `env_steps`), asks the guards what
should change, is the only one that changes it, and writes down both the decision and the value that was
read back. Everything that changes is registered by name; a checkpoint is the registry's state after a
whole update, so a run that was killed goes on from there as if nothing had happened.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.collect import whole
from holdfast.config import Config
from holdfast.errors import GuardStop, StorageError
from holdfast.guards import Guard
from holdfast.learn.learner import Learner
from holdfast.learn.schedule import parse_windows, shape_factor, windowed
from holdfast.plan import Phase, Plan
from holdfast.probes.clips import film_probe
from holdfast.probes.pairs import kept, paired
from holdfast.probes.runner import ProbeSpec, draw_lot, main_metric, run_probe
from holdfast.probes.worst import write_worst
from holdfast.records import Decision, Episode, EvalReport
from holdfast.rng import Streams, derive_seed
from holdfast.state import Registry
from holdfast.store.checkpoint import Checkpoint, Checkpoints
from holdfast.store.recorder import Recorder
from holdfast.worlds import make_world
from holdfast.worlds.contract import World

WINDOW = 100
"""Finished episodes over which the episode signals are averaged."""


@dataclass
class Progress:
    """The clock of a run and its best probe so far."""

    update: int = 0
    env_steps: int = 0
    episodes: int = 0
    best_value: float = -math.inf
    best_update: int = 0
    probes: int = 0
    last_probe: dict[str, Any] = field(default_factory=dict)
    """Seeds and per-episode values of the last probe, with which the next one is paired."""
    built: int = 1
    """How many times the world was built."""
    turned: dict[str, float] = field(default_factory=dict)
    """World values that guards have set; they hold across phases and in probes."""
    recent: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Facts of the last finished episodes."""

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self), "recent": list(self.recent)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "turned": dict(state["turned"])})
        self.recent = deque(state["recent"], maxlen=WINDOW)


class Loop:
    """One run from its first update to its last."""

    def __init__(
        self,
        config: Config,
        plan: Plan,
        streams: Streams,
        world: World,
        learner: Learner,
        guards: list[Guard],
        recorder: Recorder,
        checkpoints: Checkpoints,
        probe: ProbeSpec,
        show: Callable[[dict[str, Any]], None] = lambda line: None,
    ) -> None:
        self.config, self.plan, self.streams = config, plan, streams
        self.world, self.learner = world, learner
        self.guards, self.recorder, self.checkpoints = guards, recorder, checkpoints
        self.probe_spec, self.show = probe, show
        self.total = plan.updates
        self.phase = plan.phase(1)
        self.windows = parse_windows(config.learner.entropy_windows)
        self.best_by = config.probe.best_by or main_metric(config.world.name)
        self.collector = whole(world, learner)
        self.progress = Progress()
        self.signals: dict[str, Any] = {}
        self.stopped_by: Decision | None = None
        self._last_good: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        self._messages: list[str] = []
        self.registry = Registry()
        self.registry.register("progress", self.progress)
        self.registry.register("streams", streams)
        self.registry.register("learner", learner)
        self.registry.register("world", world)
        self.registry.register("collector", self.collector)
        for guard in guards:
            self.registry.register(f"guard.{guard.name}", guard)
        self.registry.register("recorder", recorder)

    def begin(self) -> None:
        """Let the guards set what must hold before the first update of a new run.

        Values are set before the first episodes begin, starts are queued after.
        """
        self.signals = {"update": 0, **self.place()}
        queued: list[tuple[Guard, Decision]] = []
        for guard in self.guards:
            for decision in guard.initial(self.signals):
                if decision.kind == "inject_starts":
                    queued.append((guard, decision))
                else:
                    self.take(guard, decision)
            self.merge_status(guard)
        begin_world(self.world, self.config.run.seed, self.phase)
        self.seat()
        for guard, decision in queued:
            self.take(guard, decision)

    def seat(self) -> None:
        """Seat the learner in the world as it stands now."""
        self.collector = whole(self.world, self.learner)
        self.registry.register("collector", self.collector)

    def finish(self) -> None:
        """Let the guards say what is left to say when the last update is made."""
        self.ask(lambda guard: guard.final(self.signals))

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Make updates until the run is done, a guard stops it, or `should_stop` says so."""
        while self.progress.update < self.total:
            self.update()
            if self.stopped_by is not None:
                raise GuardStop(f"{self.stopped_by.message} [{self.stopped_by.cause}]")
            if should_stop():
                return

    def update(self) -> None:
        """Make one whole update."""
        began = time.perf_counter()
        self.enter(self.plan.phase(self.progress.update + 1))
        self.schedule()
        episodes = self.collect()
        self.learn()
        self.count(episodes)
        self.probe()
        self.decide()
        self.record(episodes, began)
        if self.progress.update == self.total:
            self.finish()
        self.save()

    def enter(self, phase: Phase, restoring: bool = False) -> None:
        """Change to another phase: its world, if that differs, and its learner settings."""
        if phase == self.phase:
            return
        rebuilt = phase.options != self.phase.options
        if rebuilt:
            self.world.close()
            self.world = make_world(self.config.world.name, phase.options)
            for name, value in self.progress.turned.items():
                self.world.set_value(name, value)
            begin_world(self.world, self.config.run.seed, phase)
            self.registry.register("world", self.world)
        self.learner.config = phase.learner
        self.learner.set_value("clip", phase.learner.clip)
        self.seat()
        self.phase = phase
        if rebuilt and not restoring:
            self.progress.built += 1
            self.signals.update(self.place())
            self.ask(lambda guard: guard.requeue(self.signals))

    def place(self) -> dict[str, Any]:
        """Return the signals that say where in the plan and in which world the run stands."""
        phases = self.plan.phases
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
        factor = shape_factor(config.lr_schedule, done, config.lr_warmup)
        self.learner.set_value("lr", config.lr * factor)
        self.learner.set_value(
            "entropy", windowed(config.entropy, self.windows, self.progress.update + 1)
        )
        groups = self.config.run.stagger // config.steps
        age = self.progress.update + 1 - self.phase.first
        if age < groups:
            first = range(age, self.world.games, groups)
            self.world.request_reset([g * self.world.slots_per_game for g in first])

    def collect(self) -> list[Episode]:
        """Fill the rollout."""
        began = time.perf_counter()
        episodes = self.collector.collect()
        self._seconds["collect"] = time.perf_counter() - began
        return episodes

    def learn(self) -> None:
        """Update the learner; count what is not finite."""
        began = time.perf_counter()
        self._last_good = self.learner.state_dict()
        metrics = self.learner.update(self.collector.seats[0].rollout)
        bad = sum(not math.isfinite(v) for v in metrics.values())
        bad += sum(int((~np.isfinite(p)).sum()) for p in self.learner.parameters().values())
        self.signals = {f"train/{name}": value for name, value in metrics.items()}
        self.signals["health/nonfinite"] = bad
        self._seconds["learn"] = time.perf_counter() - began

    def count(self, episodes: list[Episode]) -> None:
        """Advance the clock and average the facts of recent episodes."""
        progress = self.progress
        progress.update += 1
        progress.env_steps += self.collector.env_steps
        progress.episodes += len(episodes)
        for episode in episodes:
            facts = {
                "episode/return_mean": float(episode.returns.mean()),
                "episode/length_steps": float(episode.steps),
            }
            name = self.config.world.name if ":" not in self.config.world.name else "world"
            facts.update({f"{name}/{k}": float(v) for k, v in episode.facts.items()})
            progress.recent.append(facts)
        self.signals.update(self.place())
        if any(guard.reads_starts for guard in self.guards):
            self.signals.update(start_signals(self.world, episodes))
        self.signals["update"] = progress.update
        self.signals["env_steps"] = progress.env_steps
        self.signals["episode/count"] = progress.episodes
        for key in sorted({key for facts in progress.recent for key in facts}):
            values = [facts[key] for facts in progress.recent if key in facts]
            self.signals[key] = sum(values) / len(values)
            if key.endswith("/first_death_step"):
                # -1 means that nobody died: such an episode has no first death.
                deaths = [v for v in values if v >= 0]
                self.signals[key] = sum(deaths) / len(deaths) if deaths else -1.0
                if deaths:
                    name = key.removesuffix("step") + "p10"
                    self.signals[name] = float(np.percentile(deaths, 10))
        for name in self.world.value_names:
            self.signals[f"world/{name}"] = self.world.value(name)

    def probe(self) -> None:
        """Evaluate on the fixed seeds when it is time; remember the best."""
        every, update = self.config.probe.every, self.progress.update
        due = (every > 0 and update % every == 0) or update == self.total
        self._seconds["probe"] = 0.0
        if not due or self.signals["health/nonfinite"]:
            return
        began = time.perf_counter()
        progress, policy = self.progress, self.learner.policy()
        spec = self.next_probe()
        report = run_probe(spec, policy, update, progress.env_steps)
        report = paired(report, progress.last_probe)
        progress.last_probe, progress.probes = kept(report), progress.probes + 1
        self.recorder.report(report)
        write_worst(report, self.recorder.directory)
        if self.config.probe.clips:
            film_probe(report, spec, policy, self.recorder.directory, self.recorder.warn)
        self.signals.update({f"probe/{k}": v for k, v in report.metrics.items()})
        self._rank(report)
        self._seconds["probe"] = time.perf_counter() - began

    def next_probe(self) -> ProbeSpec:
        """Return the coming probe: with the world values in use, and with new seeds if so configured."""
        config = self.config.probe
        spec = replace(self.probe_spec, values=tuple(sorted(self.progress.turned.items())))
        if config.seeds == "fixed":
            return spec
        return replace(spec, seeds=draw_lot(config.seed, config.episodes, self.progress.probes))

    def _rank(self, report: EvalReport) -> None:
        value = report.metrics.get(self.best_by)
        if value is None:
            known = ", ".join(sorted(report.metrics))
            raise StorageError(
                f"probe.best_by = '{self.best_by}' is not measured. There are: {known}."
            )
        if value > self.progress.best_value:
            self.progress.best_value, self.progress.best_update = value, report.update

    def decide(self) -> None:
        """Let every guard decide, and apply what it decided."""
        self._messages = []
        self.ask(lambda guard: guard.step(self.signals))

    def ask(self, question: Callable[[Guard], list[Decision]]) -> None:
        """Put a question to every guard in order, apply the answers and record them."""
        for guard in self.guards:
            for decision in question(guard):
                self.take(guard, decision)
            self.merge_status(guard)

    def take(self, guard: Guard, decision: Decision) -> None:
        """Apply one decision and record it with the value read back."""
        applied = self.apply(decision)
        self.recorder.decision(self.progress.update, guard.name, decision, applied)
        if decision.message and decision.kind != "inject_starts":
            self._messages.append(f"{guard.name}: {decision.message}")

    def merge_status(self, guard: Guard) -> None:
        """Let the guards after this one, and the records, see its status."""
        self.signals.update({f"guard/{guard.name}/{k}": v for k, v in guard.status().items()})

    def apply(self, decision: Decision) -> Any:
        """Make one change to the run; return the value read back."""
        kind = decision.kind
        if kind == "set_learner":
            self.learner.set_value(decision.name, decision.value)
            return self.learner.value(decision.name)
        if kind == "set_world":
            self.world.set_value(decision.name, decision.value)
            value = self.world.value(decision.name)
            self.progress.turned[decision.name] = value
            return value
        if kind == "inject_starts":
            self.world.queue_starts(decision.slots, decision.value)
            return len(decision.value)
        if kind == "force_reset":
            self.world.request_reset(decision.slots or range(self.world.num_envs))
            return len(decision.slots) or self.world.num_envs
        if kind == "rollback":
            settings = dict(self.learner.settings)
            self.learner.load_state_dict(self._last_good)
            self.learner.settings = settings
            return "last_good"
        if kind == "stop":
            self.stopped_by = decision
        return None

    def record(self, episodes: list[Episode], began: float) -> None:
        """Write the update's line, its episodes and a heartbeat."""
        update = self.progress.update
        for episode in episodes:
            self.recorder.episode(update, episode)
        wall = time.perf_counter() - began
        steps = self.collector.env_steps
        self.signals["time/update_s"] = wall
        self.signals["time/env_steps_per_s"] = steps / wall
        self.signals["time/world_s"] = self.collector.world_s
        self.signals["time/policy_s"] = self.collector.policy_s
        for name, seconds in self._seconds.items():
            self.signals[f"time/{name}_s"] = seconds
        self.recorder.update(self.signals)
        self.recorder.journal(
            "update", update, env_steps=self.progress.env_steps, parameters=self.parameter_hash()
        )
        lights = {guard.name: guard.light() for guard in self.guards}
        self.recorder.heartbeat(
            state="running",
            update=update,
            updates=self.total,
            env_steps=self.progress.env_steps,
            env_steps_per_s=steps / wall,
            lights=lights,
        )
        self.show(
            {
                **self.signals,
                "updates": self.total,
                "lights": lights,
                "messages": self._messages,
                "best_value": self.progress.best_value,
                "best_update": self.progress.best_update,
            }
        )

    def parameter_hash(self) -> str:
        """Return a short hash of all parameters: two runs that agree here took the same steps."""
        digest = hashlib.blake2b(digest_size=8)
        for name, value in sorted(self.learner.parameters().items()):
            digest.update(name.encode())
            digest.update(value.tobytes())
        return digest.hexdigest()

    def save(self, force: bool = False) -> Checkpoint | None:
        """Write a checkpoint when it is time (or now)."""
        update = self.progress.update
        every = self.config.run.checkpoint_every
        best = self.progress.best_update == update
        due = update % every == 0 or update == self.total or best or self.stopped_by is not None
        if not due and not force:
            return None
        about = {
            "env_steps": self.progress.env_steps,
            "world": self.config.world.name,
            "run": self.config.run.name,
            "checkpoint_every": every,
            "best_update": self.progress.best_update,
            "learner_threads": self.learner.threads,
        }
        keep = frozenset({self.progress.best_update} - {0})
        return self.checkpoints.save(update, self.registry.state_dict(), about, keep)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
        self.enter(self.plan.phase(max(1, int(state["progress"]["update"]))), restoring=True)
        self.registry.load_state_dict(state)


def make_plan(config: Config, slots: int) -> Plan:
    """Return the phases of a run; `env_steps` is turned into updates."""
    updates = config.run.updates
    if config.run.env_steps > 0:
        updates = max(1, math.ceil(config.run.env_steps / (slots * config.learner.steps)))
    return Plan(config.phases, config.plan, updates, config.world.options, config.learner)


def begin_world(world: World, seed: int, phase: Phase) -> None:
    """Begin the first episodes of a phase; their seeds follow from the run's seed."""
    world.reset(seed=[derive_seed(seed, "world", phase.index, g) for g in range(world.games)])


def start_signals(world: World, episodes: list[Episode]) -> dict[str, Any]:
    """Return which starts began and ended in this update, and how many wait in each game."""
    begun = [{"game": e.game, **e.start.brief()} for e in episodes]
    seen = set()
    now = world.current_starts()
    for i, episode in enumerate(episodes):
        # The first end in a game belongs to an episode that began in an earlier update.
        if episode.game not in seen:
            seen.add(episode.game)
            begun[i] = {"game": episode.game, **now[episode.game].brief()}
    ended = [
        {"game": e.game, **e.start.brief(), "steps": e.steps, "ended": e.ended, **e.facts}
        for e in episodes
    ]
    by_type: dict[str, Any] = {}
    for kind in sorted({e.start.type for e in episodes}):
        own = [e for e in episodes if e.start.type == kind]
        by_type[f"starts/{kind}/episodes"] = len(own)
        for fact in own[0].facts:
            by_type[f"starts/{kind}/{fact}"] = sum(float(e.facts[fact]) for e in own) / len(own)
    return {
        **by_type,
        "starts/begun": begun,
        "starts/ended": ended,
        "starts/waiting": world.queued(),
        "starts/forced": sum(e.ended == "forced" for e in episodes),
    }
