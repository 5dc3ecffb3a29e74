"""Searches with Optuna: real trials as processes, pruned, interrupted and gone on with."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from study_calls import SHORT, TINY, begin, call, record, refusal
from test_study_seeds import pid_of, update_of, wait_until

from holdfast.store.journal import read_lines
from holdfast.study.child import Followed, Probed
from holdfast.study.folder import Order
from holdfast.study.specs import Dimension
from holdfast.study.sweep import Search, SearchOrder, marks, objective

SPACE = ["--space", "learner.lr=log:1e-4:1e-2", "--space", "learner.steps=choice:8,16"]


def followed(updates: int, values: dict[int, float]) -> Followed:
    seen = Followed(Path("nowhere"))
    seen.beat = {"updates": updates}
    seen.probes = {u: Probed(u, u * 10, {"m": v}) for u, v in values.items()}
    return seen


def test_values_are_compared_at_twentieths_of_a_run() -> None:
    seen = followed(40, {4: 0.3, 10: 0.2, 11: 0.5, 40: 0.4})
    assert marks(seen, "m", "last") == {
        2: 0.3, 3: 0.3, 4: 0.3, 5: 0.2, **dict.fromkeys(range(6, 20), 0.5), 20: 0.4,
    }  # fmt: skip
    assert marks(seen, "m", "best") == {
        **dict.fromkeys(range(2, 6), 0.3), **dict.fromkeys(range(6, 21), 0.5),
    }  # fmt: skip
    assert marks(followed(0, {4: 0.3}), "m", "best") == {}


def test_the_objective_is_the_best_or_the_last_evaluation() -> None:
    seen = followed(40, {10: 0.2, 20: 0.7, 40: 0.4})
    assert objective(seen, "m", "best") == 0.7
    assert objective(seen, "m", "last") == 0.4
    assert objective(seen, "other", "best") is None


def test_a_metric_that_shall_be_low_is_searched_for_its_lowest(tmp_path: Path) -> None:
    seen = followed(40, {10: 0.2, 20: 0.7, 40: 0.4})
    assert objective(seen, "m", "best", -1.0) == 0.2
    assert marks(seen, "m", "best", -1.0) == dict.fromkeys(range(5, 21), 0.2)
    order = Order("shoal", (("probe.best_by", "-ed100"),), tmp_path, "", "s", 1)
    search = Search(SearchOrder(order, 2, (Dimension("learner.lr", "log", 1e-4, 1e-2),)))
    assert (search.folder.goal, search.folder.sign) == ("ed100", -1.0)
    search.folder.path.mkdir()
    assert search._open().direction.name == "MINIMIZE"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("searched")
    call("study", "shoal", "--optuna", "2", "--name", "s", "--no-prune", *SPACE, *SHORT, cwd=where)
    return where


def test_trials_are_runs_with_drawn_settings_and_the_best_is_named(searched: Path) -> None:
    study = searched / "runs" / "s"
    found = record(study)
    assert sorted(r["run"] for r in found["runs"]) == ["t0000", "t0001"]
    for row in found["runs"]:
        evals = [
            e["metrics"]["return_mean"] for e in read_lines(study / row["run"] / "evals.jsonl")
        ]
        assert row["value"] == max(evals)
        drawn = dict(row["settings"])
        assert 1e-4 <= float(drawn["learner.lr"]) <= 1e-2
        text = (study / row["run"] / "run.toml").read_text()
        assert f"lr = {drawn['learner.lr']}\n" in text
        assert f"\nsteps = {drawn['learner.steps']}\n" in text
    assert found["best"]["value"] == max(r["value"] for r in found["runs"])
    page = (study / "table.md").read_text()
    assert "holdfast study shoal --seeds 2,3,4,5,6" in page
    assert (study / "plot.png").is_file()


def test_a_second_call_goes_on_to_the_new_number_of_trials(searched: Path) -> None:
    study = searched / "runs" / "s"
    before = {r["run"]: r for r in record(study)["runs"]}
    words = ["study", "shoal", "--name", "s", "--no-prune", *SPACE, *SHORT]
    _, said = call(*words, "--optuna", "3", cwd=searched)
    assert "2 trials are there already; 1 are new" in said
    after = {r["run"]: r for r in record(study)["runs"]}
    assert sorted(after) == ["t0000", "t0001", "t0002"]
    assert {name: after[name]["settings"] for name in before} == {
        name: row["settings"] for name, row in before.items()
    }
    assert len({tuple(dict(r["settings"]).items()) for r in after.values()}) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--space", "learner.lr=log:1e-4:1e-3"], "the search was begun with space ="),
        ([*SPACE, "--objective", "last"], "the search was begun with objective = best, not last"),
        ([*SPACE, "--seeds", "5"], "the search was begun with seed = 1, not 5"),
        ([*SPACE, "--learner.epochs", "2"], "learner.epochs: 1 -> 2"),
    ],
)
def test_another_search_under_the_same_name_is_refused(
    words: list[str], said: str, searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ["study", "shoal", "--optuna", "4", "--name", "s", *SHORT, *words]
    text = refusal(*typed, cwd=searched, capsys=capsys)
    assert said in text and "--name" in text
    assert "Traceback" not in text


def test_a_study_of_seeds_does_not_go_into_a_search(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ["study", "shoal", "--seeds", "1", "--name", "s", *SHORT]
    text = refusal(*typed, cwd=searched, capsys=capsys)
    assert "is a study of search, not of seeds" in text


def test_an_interrupted_trial_is_resumed_with_its_settings(tmp_path: Path) -> None:
    long = [*TINY, "--updates", "200", "--probe.every", "100"]
    words = ["study", "shoal", "--optuna", "1", "--name", "i", *SPACE, *long]
    study = tmp_path / "runs" / "i"
    process = begin(*words, cwd=tmp_path)
    wait_until(lambda: update_of(study / "t0000") >= 1, process)
    process.send_signal(signal.SIGTERM)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 143, printed + said
    (row,) = record(study)["runs"]
    assert (row["state"], row["value"]) == ("interrupted", None)
    call(*words, cwd=tmp_path)
    (after,) = record(study)["runs"]
    assert (after["state"], after["settings"]) == ("finished", row["settings"])
    assert after["value"] is not None
    begun = [s for s in read_lines(study / "t0000" / "sessions.jsonl") if s["event"] == "begin"]
    assert [s["resumed"] for s in begun] == [False, True]


def test_a_killed_trial_is_a_failed_one(tmp_path: Path) -> None:
    long = [*TINY, "--updates", "100000", "--probe.every", "0"]
    words = ["study", "shoal", "--optuna", "1", "--name", "k", *SPACE, *long]
    run = tmp_path / "runs" / "k" / "t0000"
    process = begin(*words, cwd=tmp_path)
    wait_until(lambda: update_of(run) >= 1, process)
    os.kill(pid_of(run), signal.SIGKILL)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 1, printed + said
    assert "killed by SIGKILL" in said


BANDIT = """
import pathlib, time
import gymnasium as gym, numpy as np

class Env(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    slow = pathlib.Path("slow").exists()

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(0.01 * self.slow)
        return np.zeros(1, np.float32), 1.0, False, False, {}

def make():
    return Env()
"""


def test_a_bad_trial_is_stopped_early_and_cleanly(tmp_path: Path) -> None:
    import optuna

    (tmp_path / "bandit.py").write_text(BANDIT)
    words = ["study", "bandit:make", "--name", "p", "--space", "learner.lr=log:1e-4:1e-2"]
    words += (
        "--max-steps 5 --games 2 --mode serial --steps 16 --probe.every 5 --updates 100".split()
    )
    words += "--probe.episodes 1 --hidden 8,8 --epochs 1 --no-tensorboard".split()
    call(*words, "--optuna", "1", cwd=tmp_path)
    # Four whole trials that were far better at every part of the run.
    path = tmp_path / "runs" / "p"
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{path / 'optuna.db'}")
    (first,) = study.trials
    assert first.state == optuna.trial.TrialState.COMPLETE
    assert sorted(first.intermediate_values) == list(range(1, 21))
    for _ in range(4):
        better = optuna.trial.create_trial(
            params=first.params,
            distributions=first.distributions,
            value=1000.0,
            intermediate_values=dict.fromkeys(range(1, 21), 1000.0),
            user_attrs=first.user_attrs,
        )
        study.add_trial(better)
    (tmp_path / "slow").touch()
    _, said = call(*words, "--optuna", "6", cwd=tmp_path)
    row = next(r for r in record(path)["runs"] if r["run"] == "t0005")
    assert row["state"] == "pruned", said
    assert 25 <= row["update"] < 100
    newest = max(p.name for p in (path / "t0005" / "checkpoints").glob("u*"))
    assert int(newest[1:]) == row["update"]
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{path / 'optuna.db'}")
    assert study.trials[5].state == optuna.trial.TrialState.PRUNED


def test_without_optuna_the_way_to_get_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "optuna.py").write_text("raise ImportError('not here')\n")
    _, text = call("study", "shoal", "--optuna", "1", *SPACE, *SHORT, cwd=tmp_path, code=2)
    assert "pip install 'holdfast[study]'" in text
    assert sys.executable not in text
