"""Self-play in a PettingZoo environment: every agent has a learner, and everything that looks at a run knows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import holdfast
from holdfast.config import resolve
from holdfast.learn.roles import RolePolicies
from holdfast.run import RunDirectory, build
from holdfast.view.files import RunFiles
from holdfast.view.plots import make_plots


class Line(ParallelEnv):
    """A prey and a hunter on a line; the hunter is faster. What one wins the other loses."""

    metadata: ClassVar[dict[str, Any]] = {"name": "line", "render_modes": []}
    # Not in the order of the alphabet.
    possible_agents: ClassVar[list[str]] = ["prey", "hunter"]
    render_mode = None

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1, 1, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        self.at = dict(zip(self.agents, self.rng.uniform(-1, 1, 2).tolist(), strict=True))
        return self._rows(), {a: {} for a in self.agents}

    def _rows(self) -> dict[str, Any]:
        prey, hunter = self.at["prey"], self.at["hunter"]
        return {
            "prey": np.array([prey, hunter, 1], np.float32),
            "hunter": np.array([hunter, prey, -1], np.float32),
        }

    def step(self, actions: dict[str, Any]) -> Any:
        self.t += 1
        for agent, pace in (("prey", 0.05), ("hunter", 0.2)):
            moved = self.at[agent] + pace * (2 * int(actions[agent]) - 1)
            self.at[agent] = float(np.clip(moved, -1, 1))
        near = 1.0 - abs(self.at["prey"] - self.at["hunter"])
        over = self.t == 20
        agents = list(self.agents)
        self.agents = [] if over else agents
        rewards = {"prey": -near, "hunter": near}
        no = dict.fromkeys(agents, False)
        return self._rows(), rewards, no, dict.fromkeys(agents, over), {a: {} for a in agents}


class Three(Line):
    possible_agents: ClassVar[list[str]] = ["prey", "hunter", "judge"]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return {a: np.zeros(3, np.float32) for a in self.agents}, {}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    settings: dict[str, Any] = {
        "games": 16,
        "steps": 40,
        "updates": 30,
        "hidden": (16,),
        "lr": 3e-3,
        "minibatch": 160,
        "selfplay__enabled": True,
        "selfplay__history": 0.25,
        "probe__every": 15,
        "probe__episodes": 20,
        "probe__best_by": "return_hunter",
        "guards__adaptive__enabled": True,
        "guards__adaptive__signal": "episode/return_hunter",
        "guards__adaptive__channels": "learner.prey.entropy:0.0..0.01@0.001",
    }
    name = "test_selfplay_foreign:Line"
    holdfast.train(name, runs_dir=folder, run="line", seed=1, say=lambda _: None, **settings)
    return folder / "line"


@pytest.mark.parametrize(
    ("name", "games", "said"),
    [("Line", 2, ""), ("Three", 8, "3 of 3 agents learn"), ("Line", 8, "")],
)
def test_past_opponents_that_would_never_play_are_said(
    name: str, games: int, said: str, tmp_path: Path
) -> None:
    told: list[str] = []
    config = resolve(
        f"test_selfplay_foreign:{name}",
        [
            ("selfplay.enabled", True),
            ("selfplay.history", 0.3),
            ("games", games),
            ("mode", "serial"),
        ],
    )
    loop = build(config, RunDirectory(tmp_path), lambda line: None, told.append)
    loop.recorder.close()
    loop.world.close()
    assert [said in text for text in told] == ([True] if said else [])


def test_each_agent_has_its_own_return_and_both_learn(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    first, last = lines[0], lines[-1]
    for line in (first, last):
        assert line["episode/return_hunter"] == pytest.approx(-line["episode/return_prey"])
        assert line["episode/return_mean"] == pytest.approx(0.0, abs=1e-9)
    # The faster one learns to stay with the other.
    assert last["episode/return_hunter"] > first["episode/return_hunter"] + 3
    assert "train/hunter/entropy_mean" in last and "train/prey/entropy_mean" in last


def test_an_evaluation_repeats_the_probe_of_the_run(run: Path) -> None:
    probe = json.loads((run / "evals.jsonl").read_text().splitlines()[-1])
    report = holdfast.evaluate(run, update=30)
    for name in ("return_hunter", "return_prey", "return_mean"):
        assert report.metrics[name] == probe["metrics"][name]
    assert "return_hunter" in report.intervals


def test_a_loaded_policy_plays_every_agent_by_its_own_learner(run: Path) -> None:
    policy = holdfast.load_policy(run, update=30)
    assert isinstance(policy, RolePolicies) and policy.roles == ("prey", "hunter")
    rows = np.array([[0.5, -0.5, 1], [-0.5, 0.5, -1]], np.float32)
    assert policy.act(rows)[1] == 1, "the hunter runs to the prey"


def test_console_plots_and_report_show_each_agent(run: Path) -> None:
    files = RunFiles(run)
    assert files.headline.beside == ("return_prey", "return_hunter")
    assert {"return_prey", "return_hunter"} <= {*files.headline.columns}
    assert set(files.by_role("train/entropy_mean")) == {"prey", "hunter"}
    assert {path.stem for path in make_plots(run)} >= {"learning", "learner"}
