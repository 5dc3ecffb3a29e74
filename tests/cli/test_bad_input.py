"""Bad input gives one clear message, the right exit code, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import VERBS, main


def call(*words: str, cwd: Path) -> tuple[int, str]:
    """Run a command as a user does."""
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)
    return done.returncode, done.stdout + done.stderr


ENVS = """
import gymnasium as gym
import numpy as np

class Nan(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.array([np.nan, 0], np.float32), 0.0, False, False, {}

class Fine(Nan):
    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}

class Shape(Nan):
    def step(self, action):
        return np.zeros(5, np.float32), 0.0, False, False, {}

class Crash(Nan):
    def step(self, action):
        raise RuntimeError("the simulator is on fire")

class Buttons(Nan):
    action_space = gym.spaces.Dict(jump=gym.spaces.Discrete(2))

def number():
    return 3
"""


CASES: list[tuple[list[str], int, str]] = [
    (["tarin"], 2, "Did you mean 'train'"),
    (["train"], 2, "What shall be trained"),
    (["train", "shaol"], 2, "Did you mean 'shoal'?"),
    (["train", "nowhere.toml"], 2, "is not there"),
    (["train", "shoal", "--updatse", "3"], 2, "Did you mean 'updates'"),
    (["train", "shoal", "--updates", "-5"], 2, "run.updates = '-5'"),
    (["train", "shoal", "--updates", "many"], 2, "whole number"),
    (["train", "shoal", "--games", "-1"], 2, "games"),
    (["train", "shoal", "--fish", "0"], 2, "fish"),
    (["train", "shoal", "--heading-bias", "north"], 2, "heading_bias"),
    (["train", "shoal", "--run", "../evil"], 2, "run name '../evil' is not allowed"),
    (["train", "shoal", "--run", "a/b"], 2, "is not allowed"),
    (["train", "shoal", "oops"], 2, "'oops' is not understood"),
    (["train", "shoal", "--learner", "jax"], 2, "one of auto, torch, fused"),
    (["train", "CartPole-v1", "--learner", "sac", "--normalise-obs", "false"], 2, "continuous"),
    (["train", "pursuit", "--learner", "sac", "--memory", "gru"], 2, "kind = 'sac' has no memory"),
    (["train", "pursuit", "--learner.net", "sensors"], 2, "--observation sensors"),
    (["train", "shoal", "--runs-dir", "/proc/none"], 5, "Cannot write"),
    (["train", "envs:Nan", "--updates", "1"], 6, "NaN or infinity"),
    (["train", "envs:Shape", "--updates", "1"], 6, "shape (5,)"),
    (["train", "envs:Crash", "--updates", "1"], 6, "the simulator is on fire"),
    (["train", "envs:number", "--updates", "1"], 2, "returned a int"),
    (["train", "envs:missing"], 2, "has no function 'missing'"),
    (["resume", "nothing"], 5, "There is no run 'nothing'"),
    (["resume", "../nothing"], 2, "is not allowed"),
    (["eval", "nothing"], 5, "There is no run"),
    (["eval", "nothing", "--episodes", "-3"], 2, "--episodes -3"),
    (["eval", "nothing", "--episodes", "x"], 2, "invalid int value"),
    (["ckpt", "show", "nothing"], 5, "There is no run"),
    (["ckpt", "dance", "nothing"], 2, "invalid choice"),
    (["report", "nothing"], 5, "There is no run"),
    (["bench", "mood"], 2, "invalid choice"),
    (["train", "shoal", "--min-sps", "-1"], 2, "run.min_sps = '-1'"),
    (["train", "shoal", "--env-progress", "loud"], 2, "one of quiet, summary, verbose"),
    (["train", "shoal", "--prewarm", "twice"], 2, "one of none, once, per-stage"),
    (["train", "shoal", "--memory-restarts", "9"], 2, "a whole number >= 0 and <= 4"),
    (["train", "shoal", "--heartbeat.stall-s", "never"], 2, "heartbeat.stall_s = 'never'"),
    (["train", "shoal", "--heartbeat.stal-s", "3"], 2, "Did you mean 'stall_s'"),
    (["train", "shoal", "--guards.adaptive.enabled", "true"], 2, "channels is empty"),
    (
        ["train", "shoal", "--guards.adaptive.channels", "learner.lr:1..0@1"],
        2,
        "MIN must be below MAX",
    ),
    (["train", "shoal", "--guards.hints.cooldown", "0"], 2, "guards.hints.cooldown"),
    (["train", "shoal", "--dry-run", "--plan.curriculum", "15:x"], 2, "is not a phase"),
    (["train", "shoal", "--dry-run", "--fish", "none"], 2, "fish"),
    (["train", "shoal", "--dry-run", "--guards.gate.enabled", "true"], 2, "both are off"),
    (["starts", "draw", "shoal", "--out", "x.json", "--type", "fresh"], 2, "not replayed"),
    (["starts", "draw", "shoal", "--out", "x.json", "--min-speed", "nan"], 2, "No speed is from"),
    (
        ["starts", "draw", "shoal", "--out", "x.json", "--min-speed", "2", "--max-speed", "1"],
        2,
        "Swap or widen",
    ),
    (["train", "pursuit", "--dry-run", "--guards.balance.enabled", "true"], 2, "selfplay.enabled"),
    (["train", "shoal", "--dry-run", "--guards.plateau.signal", "pobe/x"], 2, "no signal of this"),
    (["train", "shoal", "--dry-run", "--guards.tails.stages", "gone.json:1"], 2, "gone.json"),
    (["train", "broken.toml"], 2, "not valid TOML"),
    (["train", "nameless.toml"], 2, "needs a name"),
    (["train", "envs:Nan", "--run", "n", "--updates", "1"], 6, "runs/n/env_fault_"),
    (
        ["train", "envs:Crash", "--run", "c", "--updates", "1", "--prewarm", "once"],
        6,
        "on fire",
    ),
    (["resume", "nothing", "--updates", "3"], 5, "There is no run 'nothing'"),
    (["doctor", "shaol"], 2, "neither a world"),
    (["doctor", "--steps", "1"], 2, "--steps 1 is not allowed"),
    (["doctor", "--updates", "3"], 2, "is neither a world"),
    (["doctor", "envs:Nan"], 6, "NaN or infinity"),
    (["envcheck", "shoal"], 2, "holdfast doctor shoal"),
    (["envcheck", "CartPole-v1", "--modes", "fast"], 2, "there is no mode 'fast'"),
    (["train", "shoal", "--selfplay.pool", "best"], 2, "one of fifo, reservoir, pfsp"),
    (["train", "pursuit", "--selfplay.enabled", "--selfplay.pursuer", "gredy"], 2, "Did you mean"),
    (["train", "pursuit", "--selfplay.enabled", "--selfplay.evader", "run:no"], 2, "no run 'no'"),
    (["train", "pursuit", "--selfplay.history", "2"], 2, "selfplay.history = '2'"),
    (["train", "shoal", "--sinks", "wandbb", "--updates", "1"], 2, "wandbb"),
    (["train", "shoal", "--sinks", "envs:nothing", "--updates", "1"], 2, "nothing"),
    (["train", "shoal", "--init-from", "nothing", "--updates", "1"], 5, "There is no run"),
    (["train", "shoal", "--init-from", "trap.pt", "--updates", "1"], 5, "not a PyTorch file"),
    (["train", "shoal", "--init-scope", "half"], 2, "one of"),
    (
        ["train", "shoal", "--init-from", "made", "--hidden", "7,7", "--updates", "1"],
        5,
        "do not fit the network",
    ),
    (["train", "phase.toml", "--dry-run"], 2, "'hidden' cannot change during a run"),
    (["train", "unknown.toml", "--dry-run"], 2, "Did you mean"),
    (["train", "both.toml", "--dry-run"], 2, "not both"),
    (["train", "short.toml", "--dry-run"], 2, "updates"),
    (["train", "mario", "--rom", "nowhere.nes", "--updates", "1"], 3, "nowhere.nes"),
    (["train", "CartPole-v1", "--mode", "fast"], 2, "one of auto, serial, threads, process"),
    (["train", "CartPole-v1", "--games", "5000"], 2, "<= 4096"),
    (["train", "NoSuchEnv-v0"], 2, "NoSuchEnv"),
    (["resume", "made", "--fish", "9"], 2, "fish"),
    (["resume", "made", "--hidden", "9"], 2, "hidden"),
    (["eval", "made", "--seed", "-5"], 2, "--seed -5"),
    (["eval", "made", "--update", "77"], 5, "77"),
    (["eval", "made", "--update", "2", "--latest"], 2, "Leave one of them out"),
    (["eval", "made", "--protocol", "v99"], 2, "v99"),
    (["report"], 2, "required: run"),
    (["runs", "extra"], 2, "'extra' is not understood"),
    (["ckpt", "show"], 2, "takes 1 place, and there are 0"),
    (["ckpt", "show", "made@99"], 5, "99"),
    (["ckpt", "show", "trap.pt"], 5, "not a PyTorch file"),
    (["ckpt", "verify", "made", "--update", "99"], 5, "99"),
    (["ckpt", "find", "nowhere"], 5, "nowhere"),
    (["ckpt", "find", "runs", "--limit", "0"], 2, "--limit 0"),
    (["ckpt", "find", "runs", "--like", "nothing"], 5, "There is no run 'nothing'"),
    (["ckpt", "diff", "made"], 2, "takes 2 places"),
    (["ckpt", "diff", "made@2", "made@99"], 5, "99"),
    (["ckpt", "export", "made", "--part", "learner.evader"], 2, "holds no"),
    (["ckpt", "export", "made", "--out", "full"], 2, "--force"),
    (["ckpt", "migrate", "runs"], 2, "--fix-steps"),
    (["ckpt", "migrate", "nowhere", "--fix-steps"], 2, "nowhere"),
    (["ckpt", "migrate", "runs", "--fix-steps", "--assume-rollout-steps", "0"], 2, "0"),
    (["metrics", "tail"], 2, "Which run?"),
    (["metrics", "tail", "nothing"], 5, "There is no run"),
    (["metrics", "tail", "made", "--kind", "moods"], 2, "moods"),
    (["metrics", "tail", "made", "-n", "-1"], 2, "--lines -1"),
    (["metrics", "summary", "made", "--match", "moon/*"], 2, "moon/*"),
    (["metrics", "plot", "made"], 2, "What shall be drawn?"),
    (["metrics", "plot", "made", "train/entropi_mean"], 2, "Did you mean"),
    (["metrics", "plot", "made", "update", "--out", "/proc/none/x.png"], 5, "/proc/none"),
    (["metrics", "query", "made"], 2, "one argument in quotes"),
    (["metrics", "query", "made", "SELEKT 1"], 2, "SELEKT"),
    (["metrics", "query", "made", "SELECT * FROM moods"], 2, "moods"),
    (["exploit"], 2, "required: run"),
    (["exploit", "nothing"], 5, "There is no run"),
    (["exploit", "made"], 2, "pursuit"),
    (["exploit", "made", "--games", "0"], 2, "--games"),
    (["exploit", "made", "--checkpoints", "-1"], 2, "--checkpoints"),
    (["exploit", "made", "--seed", "-1"], 2, "--seed"),
    (["study"], 2, "What shall be studied?"),
    (["study", "shoal"], 2, "Which seeds?"),
    (["study", "shoal", "--seeds", "8-1"], 2, "8-1"),
    (["study", "shoal", "--seeds", "one"], 2, "one"),
    (["study", "shoal", "--seeds", "1", "--vary", "lr"], 2, "--vary"),
    (["study", "shoal", "--seeds", "1", "--vary", "learner.lrr=1,2"], 2, "lrr"),
    (["study", "shoal", "--seeds", "1", "--jobs", "0"], 2, "--jobs 0"),
    (["study", "shoal", "--seeds", "1", "--space", "lr=log:1:2"], 2, "add --optuna N"),
    (["study", "shoal", "--optuna", "3"], 2, "--space"),
    (["study", "shoal", "--optuna", "0", "--space", "learner.lr=log:1e-4:1e-2"], 2, "0"),
    (["study", "shoal", "--optuna", "3", "--space", "learner.lr=log:0:1"], 2, "log"),
    (["study", "shoal", "--seeds", "1", "--name", "../x"], 2, "../x"),
    (["watch"], 2, "required: run"),
    (["watch", "nothing"], 5, "There is no run"),
    (["watch", "made", "--checkpoint", "newest"], 2, "best, latest, or the number"),
    (["watch", "made", "--checkpoint", "99"], 5, "99"),
    (["watch", "made", "--out", "film.txt"], 2, "film.txt"),
    (["watch", "made", "--live", "--checkpoint", "1"], 2, "Leave one of them out"),
    (["whatif", "made"], 2, "What shall differ?"),
    (["whatif", "made", "--set", "learner.lr=1"], 2, "not a change of a guard"),
    (["whatif", "made", "--set", "guards.plateau.patience=x"], 2, "patience"),
    (["starts", "show", "nowhere.json"], 3, "nowhere.json"),
    (["starts", "mine", "made"], 2, "Where shall the starts go?"),
    (["starts", "mine", "made", "--sector", "up", "--out", "x.json"], 2, "up"),
    (["bench", "world", "shaol"], 2, "neither a world"),
    (["bench", "world", "shoal", "--repeats", "0"], 2, "--repeats 0"),
    (["bench", "world", "shoal", "--seconds", "-1"], 2, "--seconds -1"),
    (["bench", "learner", "--learners", "jax"], 2, "one of auto, torch, fused"),
    (["bench", "learner", "--hidden", "wide"], 2, "hidden"),
    (["envcheck"], 2, "required: env"),
    (["envcheck", "NoSuchEnv-v0"], 2, "NoSuchEnv"),
    (["envcheck", "envs:Nan", "--trials", "0"], 2, "--trials"),
    (["envcheck", "envs:Fine", "--modes", ","], 2, "names no mode"),
    (["envcheck", "diag"], 2, "Which diagnostics?"),
    (["envcheck", "diag", "nowhere"], 5, "nowhere"),
    (
        [*"envcheck envs:Fine --modes serial --trials 1".split(), "--report", "/proc/none/r.md"],
        5,
        "/proc/none",
    ),
    (["doctor", "envs:Shape"], 6, "shape (5,)"),
    (["doctor", "shoal", "--fish", "0"], 2, "fish"),
    (["envcheck", "envs:Fine", "--timeout", "nan"], 2, "--timeout nan"),
    (["envcheck", "envs:Fine", "--seed", "-1"], 2, "--seed -1"),
    (["bench", "world", "shoal", "--seconds", "nan"], 2, "--seconds nan"),
    (["bench", "world", "shoal", "--seconds", "0"], 2, "--seconds 0"),
    (["train", "syntax:make", "--dry-run"], 2, "SyntaxError"),
    (["train", "leaves:make", "--dry-run"], 2, "SystemExit: 3"),
    (["train", ":make", "--dry-run"], 2, "my_module:make_env"),
    (["train", "./envs:Fine", "--dry-run"], 2, "my_module:make_env"),
    (
        ["doctor", "envs:Buttons", "--mode", "serial"],
        2,
        "Dict('jump': Discrete(2)) is not supported",
    ),
    (["metrics", "query", "made", " -- nothing"], 2, "asks for nothing"),
    (["train", "single.toml"], 2, "[[phase]]"),
    (["train", "flat.toml"], 2, "Write [run]"),
    (["resume", "emptied"], 2, "run.toml: [world] needs a name"),
    (["train", "envs:Fine", "--dry-run", "--sinks", "wandd"], 2, "Did you mean 'wandb'"),
    (["train", "envs:Fine", "--dry-run", "--init-from", "nobody"], 5, "There is no run 'nobody'"),
    (
        "train pursuit --selfplay.enabled true --selfplay.pursuer run:nobody --dry-run".split(),
        2,
        "There is no run 'nobody'",
    ),
    (["train", "shoal", "--hidden", "0"], 2, "It takes whole numbers joined by commas, each >= 1"),
    (
        ["train", "size.toml"],
        2,
        "phase 1 learner.steps = 0 is not allowed. It takes a whole number >= 1.",
    ),
]


FILES = {
    "envs.py": ENVS,
    "broken.toml": "[run",
    "nameless.toml": "[run]\nupdates = 3",
    "phase.toml": '[world]\nname = "shoal"\n[[phase]]\nupdates = 2\nlearner = {hidden = "9"}\n',
    "unknown.toml": '[world]\nname = "shoal"\n[[phase]]\nupdatse = 2\n',
    "short.toml": '[world]\nname = "shoal"\n[[phase]]\nupdates = 0\n',
    "both.toml": '[world]\nname = "shoal"\n[plan]\ncurriculum = "5:1"\n[[phase]]\nupdates = 2\n',
    "single.toml": '[world]\nname = "shoal"\n[phase]\nupdates = 2\n',
    "size.toml": '[world]\nname = "shoal"\n[[phase]]\nupdates = 2\nlearner = {steps = 0}\n',
    "flat.toml": 'run = 5\n[world]\nname = "shoal"\n',
    "syntax.py": "def make(:",
    "leaves.py": "raise SystemExit(3)",
    "full/file": "precious",
    "trap.pt": "cos\nsystem\n(S'echo'\ntR.",
}
SMALL = {
    "games": 2,
    "fish": 4,
    "updates": 2,
    "learner.steps": 8,
    "learner.hidden": "8",
    "learner.minibatch": 16,
    "probe.episodes": 2,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the run `made` and some files that should not be used."""
    folder = tmp_path_factory.mktemp("bad")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    holdfast.train("shoal", run="made", runs_dir=folder / "runs", **SMALL)
    (folder / "runs" / "emptied").mkdir()
    (folder / "runs" / "emptied" / "run.toml").write_text("")
    return folder


@pytest.mark.parametrize(
    ("words", "code", "said"), CASES, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_bad_input_is_explained(
    words: list[str],
    code: int,
    said: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In this process, where anything but a deliberate error would come out of `main`."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    before = set(os.listdir(place / "runs"))
    try:
        got = main(words)
    except SystemExit as leaving:
        got = int(leaving.code or 0)
    text = "".join(capfd.readouterr())
    assert got == code, text
    assert said in text
    assert "Traceback" not in text
    left = set(os.listdir(place / "runs")) - before
    assert not left or got == 6, "nothing half-begun is left, but reports of faults are"


@pytest.mark.parametrize("k", range(0, len(CASES), 24))
def test_a_real_process_says_the_same(k: int, tmp_path: Path, place: Path) -> None:
    words, code, said = CASES[k]
    got, text = call(*words, cwd=place)
    assert (got, said in text, "Traceback" in text) == (code, True, False), text


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 130
    verbs = {words[0] for words, _, _ in CASES}
    assert verbs >= set(VERBS)


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "precious").write_text("x")
    code, text = call("train", "shoal", "--run", "a", cwd=tmp_path)
    assert code == 2
    assert "holdfast resume a" in text
    assert os.listdir(tmp_path / "runs" / "a") == ["precious"]
