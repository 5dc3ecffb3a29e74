"""Collecting ahead: fixed weights, one order of things, and nothing that depends on which thread is faster."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.apply import apply
from holdfast.collect import Collector
from holdfast.config import resolve
from holdfast.errors import ConfigError
from holdfast.guards import Guard
from holdfast.learn.learner import make_learner
from holdfast.loop import Loop
from holdfast.overlap import Feed, settled, shared
from holdfast.records import Cause, Decision, Episode, Start, pack_episodes, unpack_episodes
from holdfast.rng import Streams
from holdfast.run import RunDirectory, build, resume
from holdfast.store.journal import read_lines
from holdfast.team import Team

SMALL: dict[str, Any] = {
    "games": 4,
    "fish": 4,
    "max_steps": 20,
    "learner.steps": 8,
    "hidden": "16,16",
    "minibatch": 32,
    "epochs": 2,
    "threads": 1,
    "updates": 6,
    "probe.every": 0,
    "probe.episodes": 1,
    "tensorboard": False,
    "checkpoint_every": 1,
    "keep_last": 100,
}
PURSUIT: dict[str, Any] = {
    **{k: v for k, v in SMALL.items() if k != "fish"},
    "games": 8,
    "selfplay.enabled": True,
    "selfplay.history": 0.5,
    "selfplay.pool_every": 2,
    "normalise_obs": True,
}


def loop_of(folder: Path, world: str = "shoal", **more: Any) -> Loop:
    """Return the loop of a small run with overlap, ready for its first update."""
    base = PURSUIT if world == "pursuit" else SMALL
    config = resolve(world, list({**base, "overlap": "on", "run": "r", **more}.items()))
    loop = build(config, RunDirectory.create(folder, config), lambda line: None, print)
    loop.recorder.load_state_dict(dict.fromkeys(loop.recorder.lines, 0))
    loop.begin()
    return loop


def hashes(run: Path) -> list[str]:
    lines = read_lines(run / "journal.jsonl")
    return [line["parameters"] for line in lines if line["event"] == "update"]


def untimed(run: Path) -> list[dict[str, Any]]:
    lines = read_lines(run / "metrics.jsonl")
    return [{k: v for k, v in x.items() if not k.startswith("time/")} for x in lines]


@pytest.mark.parametrize("kind", ["fused", "torch", "vtrace"])
def test_the_next_rollout_is_played_with_the_weights_from_before_the_update(
    kind: str, tmp_path: Path
) -> None:
    loop = loop_of(tmp_path, **{"learner.kind": kind, "lr": 0.01})
    loop.update()
    learner = loop.team.learners[""]
    before = learner.parameters()
    loop.update()
    assert loop.feed.ready
    rollout = loop.collector.seats[0].rollout
    old = make_learner(learner.spec, learner.config, Streams(0), rollout.slots)
    old.load_parameters(before)
    new = make_learner(learner.spec, learner.config, Streams(0), rollout.slots)
    new.load_parameters(learner.parameters())
    same, differ = 0, 0
    for t in range(rollout.steps):
        for who in (old, new):
            actions = np.empty_like(rollout.actions[t])
            log_probs, values = np.empty((2, rollout.slots), np.float32)
            who._forward(rollout.obs[t], rollout.noise[t], actions, log_probs, values)
            equal = np.array_equal(log_probs, rollout.log_probs[t])
            same += equal and who is old and np.array_equal(actions, rollout.actions[t])
            differ += not equal and who is new
    assert (same, differ) == (rollout.steps, rollout.steps)
    loop.world.close()


@pytest.mark.parametrize("late", ["neither", "learner", "collector"])
def test_results_do_not_depend_on_who_is_faster(
    late: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast.train("shoal", runs_dir=tmp_path, run="plain", overlap="on", **flat(SMALL))
    learn, play = Team.learn, Collector.play

    def slowly(when: str, call: Any) -> Any:
        def wrapped(*words: Any) -> Any:
            time.sleep(0.05 if late == when else 0)
            return call(*words)

        return wrapped

    monkeypatch.setattr(Team, "learn", slowly("learner", learn))
    monkeypatch.setattr(Collector, "play", slowly("collector", play))
    holdfast.train("shoal", runs_dir=tmp_path, run="other", overlap="on", **flat(SMALL))
    assert len(hashes(tmp_path / "plain")) == 6
    assert hashes(tmp_path / "other") == hashes(tmp_path / "plain")
    assert untimed(tmp_path / "other") == untimed(tmp_path / "plain")


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    return {key.replace(".", "__"): value for key, value in settings.items()}


def test_without_overlap_an_update_is_a_rollout_and_a_step_of_the_learner(tmp_path: Path) -> None:
    one = loop_of(tmp_path / "a", overlap="off")
    two = loop_of(tmp_path / "b", overlap="off")
    for _ in range(3):
        one.update()
        two.schedule()
        two.stagger(two.progress.update + 1)
        two.collector.collect()
        two.team.learn(two.collector.seats)
        two.progress.update += 1
        assert one.team.parameter_hash() == two.team.parameter_hash()
    assert "overlap" not in one.registry.names() and not one.feed.ready
    assert one.signals["train/policy_lag"] == 0 and "time/wait_learn_s" not in one.signals


KINDS = {
    "fused": {"normalise_obs": True, "normalise_rewards": True, "stagger": 32},
    "gru": {"memory": "gru", "noisy": True, "noisy_update": "fresh", "normalise_obs": True},
    "vtrace": {"learner.kind": "vtrace"},
    "selfplay": {},
    "sac": {
        "learner.kind": "sac",
        "learner.sac.warmup": 40,
        "learner.sac.batch": 16,
        "normalise_obs": False,
    },
    "phases": {"plan.curriculum": "4:3,5:3"},
    "phases of one world": {
        "plan.curriculum": "4:3,4:3",
        "memory": "gru",
        "memory_size": 8,
        "normalise_obs": True,
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    world, base = ("pursuit", PURSUIT) if kind in ("selfplay", "sac") else ("shoal", SMALL)
    settings = flat({**base, **KINDS[kind]})
    holdfast.train(world, runs_dir=tmp_path, run="whole", overlap="on", **settings)
    for update in (2, 3):
        run = tmp_path / f"from{update}"
        shutil.copytree(tmp_path / "whole", run)
        for checkpoint in (run / "checkpoints").glob("u*"):
            if int(checkpoint.name[1:]) > update:
                shutil.rmtree(checkpoint)
        resume(run.name, tmp_path)
        assert hashes(run) == hashes(tmp_path / "whole")
        assert untimed(run) == untimed(tmp_path / "whole")
        for name in ("episodes.jsonl", "evals.jsonl"):
            assert (run / name).read_text() == (tmp_path / "whole" / name).read_text()
    lags = [line["train/policy_lag"] for line in untimed(tmp_path / "whole")]
    assert lags == ([0, 1, 1, 0, 1, 1] if kind.startswith("phases") else [0, 1, 1, 1, 1, 1])


@pytest.mark.parametrize(("first", "then"), [("fused", "torch"), ("torch", "fused")])
def test_the_other_learner_goes_on_with_a_rollout_that_was_played_ahead(
    first: str, then: str, tmp_path: Path
) -> None:
    settings = flat({**SMALL, "kind": first, "normalise_obs": True})
    holdfast.train("shoal", runs_dir=tmp_path, run="r", overlap="on", **settings)
    for checkpoint in (tmp_path / "r" / "checkpoints").glob("u*"):
        if int(checkpoint.name[1:]) > 3:
            shutil.rmtree(checkpoint)
    made = resume("r", tmp_path, [("learner", then)])
    assert made.state == "finished"
    assert [line["train/policy_lag"] for line in untimed(tmp_path / "r")] == [0, 1, 1, 1, 1, 1]


class Cutter(Guard):
    """Cuts all games after the second update."""

    name = "cutter"

    def step(self, signals: Any) -> list[Decision]:
        if signals["update"] != 2:
            return []
        return [Decision("force_reset", Cause("update", 2))]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize(("overlap", "update"), [("off", 3), ("on", 4)])
def test_what_is_decided_for_the_world_holds_from_the_next_rollout_that_begins(
    overlap: str, update: int, tmp_path: Path
) -> None:
    more = {"overlap": overlap, "stagger": 0, "max_steps": 1000, "learner.steps": 4}
    loop = loop_of(tmp_path, **more)
    loop.guards.append(Cutter())
    for _ in range(5):
        loop.update()
    forced = [line["update"] for line in lines_of(loop, "episodes") if line["ended"] == "forced"]
    assert forced == [update] * 4
    loop.world.close()


def lines_of(loop: Loop, name: str) -> list[dict[str, Any]]:
    loop.recorder.lines[name].flush()
    return list(read_lines(loop.recorder.directory / f"{name}.jsonl"))


def test_a_role_that_goes_back_learns_nothing_from_what_its_abandoned_policy_played(
    tmp_path: Path,
) -> None:
    loop = loop_of(tmp_path, max_steps=8)
    loop.pairs.keep("start", 0, loop.team.learners, False, 0.0)
    loop.update()
    loop.update()
    steps, episodes = loop.progress.env_steps, loop.progress.episodes
    left_out = len(loop.feed._next.episodes) if loop.feed._next else 0
    apply(loop, Decision("rollback", Cause("x", 1), name="start"))
    assert not loop.feed.ready
    saved = loop.registry.state_dict()["overlap"]
    loop.feed.load_state_dict(saved)
    loop.update()
    assert loop.signals["train/policy_lag"] == 0
    assert loop.progress.env_steps - steps == steps // 2
    assert left_out >= 4 and loop.progress.episodes - episodes >= left_out + 4
    loop.update()
    assert loop.signals["train/policy_lag"] == 1
    loop.world.close()


def test_undoing_an_update_keeps_the_rollout_which_the_same_weights_have_played(
    tmp_path: Path,
) -> None:
    loop = loop_of(tmp_path)
    loop.update()
    loop.update()
    apply(loop, Decision("rollback", Cause("health/nonfinite", 1), name="last_good"))
    assert loop.feed.ready
    loop.update()
    assert loop.signals["health/nonfinite"] == 0
    assert loop.signals["train/approx_kl"] < 0.05
    loop.world.close()


def test_a_learner_that_fails_waits_for_the_collector_and_then_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = loop_of(tmp_path)
    loop.update()
    done = []
    play = loop.collector.play

    def slowly() -> list[Episode]:
        time.sleep(0.1)
        done.append(play())
        return done[0]

    def fail(seats: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(loop.collector, "play", slowly)
    monkeypatch.setattr(loop.team, "learn", fail)
    with pytest.raises(MemoryError, match="no room"):
        loop.update()
    assert len(done) == 1
    loop.world.close()


def test_a_world_that_saves_its_state_is_not_saved_in_the_midst_of_a_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = loop_of(tmp_path)
    loop.update()

    def fail(*_: Any) -> Any:
        raise RuntimeError("on fire")

    monkeypatch.setattr(loop.world, "step_into", fail)
    with pytest.raises(RuntimeError, match="on fire"):
        loop.update()
    assert loop.progress.update == 1
    assert loop.checkpoints.find(None).update == 1


ENVS = """
import gymnasium as gym
import numpy as np

class Dies(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.t += 1
        if self.t > 40:
            raise RuntimeError("the simulator is on fire")
        return np.zeros(2, np.float32), 1.0, False, False, {}

class Lives(Dies):
    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t >= 10, False, {}
"""


def train(folder: Path, world: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "some.py").write_text(ENVS)
    fixed = (
        f"{world} --run r --updates 6 --learner.steps 16 --games 2 --minibatch 16 --checkpoint-every 1 "
        "--keep-last 9 --probe.every 0 --probe.episodes 1 --plain --no-report"
    )
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "train", *fixed.split(), *words],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
    )


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_an_environment_that_fails_ahead_stops_the_run_after_the_update_was_saved(
    mode: str, tmp_path: Path
) -> None:
    done = train(tmp_path, "some:Dies", "--mode", mode, "--max-restarts", "0", "--overlap")
    assert done.returncode == 6, done.stderr
    assert "Traceback" not in done.stderr and "the simulator is on fire" in done.stderr
    run = tmp_path / "runs" / "r"
    # Step 41 lies in the third rollout, which is played during the second update.
    assert len(hashes(run)) == 2
    assert max(p.name for p in (run / "checkpoints").glob("u*")) == "u00000002"
    ends = [e["reason"] for e in read_lines(run / "sessions.jsonl") if e["event"] == "end"]
    assert ends == ["PoolFault"]


def test_a_foreign_environment_resumes_with_the_rollout_that_was_played_ahead(
    tmp_path: Path,
) -> None:
    done = train(tmp_path, "some:Lives", "--mode", "process", "--max-minutes", "0.0001")
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "r"
    assert 'overlap = "on"' in (run / "run.toml").read_text(), "chosen for worker processes"
    made = len(hashes(run))
    again = subprocess.run(
        [sys.executable, "-m", "holdfast", "resume", "r", "--max-minutes", "0", "--plain"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert again.returncode == 0, again.stderr
    lags = [line["train/policy_lag"] for line in untimed(run)]
    assert made == 1 and lags == [0, 1, 1, 1, 1, 1]


def test_auto_is_decided_once_and_stored() -> None:
    assert settled(resolve("shoal")).run.overlap == "off"
    assert settled(resolve("mario", [("observation", "pixels")])).run.overlap == "on"
    assert settled(resolve("CartPole-v1", [("mode", "process")])).run.overlap == "on"
    assert settled(resolve("CartPole-v1", [("mode", "serial")])).run.overlap == "off"
    assert settled(resolve("shoal", [("overlap", "true")])).run.overlap == "on"
    assert settled(resolve("shoal", [("overlap", False)])).run.overlap == "off"
    with pytest.raises(ConfigError, match="one of auto, on, off"):
        resolve("shoal", [("overlap", "sometimes")])


def test_shares_of_the_time() -> None:
    # Learning took 4 s, collecting 6 s of the same 6 s: the shorter one cost nothing.
    found = shared(began=10.0, learned=14.0, collected=16.0, collect_s=6.0)
    assert found == {"wait_collect_s": 2.0, "wait_learn_s": 0.0, "overlap_efficiency": 1.0}
    # One after the other: nothing was won.
    found = shared(began=10.0, learned=16.0, collected=16.0, collect_s=2.0)
    assert found["overlap_efficiency"] == 1.0
    found = shared(began=0.0, learned=4.0, collected=6.0, collect_s=2.0)
    assert found["overlap_efficiency"] == 0.0 and found["wait_collect_s"] == 2.0


def test_episodes_come_back_as_they_were() -> None:
    before = Start(seed=7, snapshot={"x": np.arange(3.0)}, id="p")
    one = Episode(
        3, Start(seed=1), 9, np.array([1.5, 2.0]), "forced", {"a": 0.1}, {"before": before}
    )
    (other,) = unpack_episodes(pack_episodes([one]))
    assert other.start == one.start and other.facts == one.facts and other.ended == "forced"
    assert np.array_equal(other.returns, one.returns)
    assert other.detail["before"].id == "p"
    assert np.array_equal(other.detail["before"].snapshot["x"], np.arange(3.0))


def test_a_feed_without_overlap_has_no_thread(tmp_path: Path) -> None:
    loop = loop_of(tmp_path, overlap="off")
    assert isinstance(loop.feed, Feed) and loop.feed._pool is None
    assert loop.feed.seats is not loop.collector.seats
    assert all(a is b for a, b in zip(loop.feed.seats, loop.collector.seats, strict=True))
