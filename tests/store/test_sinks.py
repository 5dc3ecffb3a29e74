"""Sinks that hang, raise, crawl or greet: training goes on, and what was lost is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.store.recorder import Recorder
from holdfast.store.sink_kinds import KINDS, make_sinks
from holdfast.store.sinks import STATUS, Limits, QueuedSink, RunInfo, SinkSet

QUICK = Limits(queue=5, start_s=0.2, log_s=0.2, close_s=0.3)


class Box:
    """A sink that keeps what it gets, and can be told to misbehave."""

    def __init__(self) -> None:
        self.got: list[tuple[int, dict[str, float]]] = []
        self.run: RunInfo | None = None
        self.closed = False
        self.hang_in = ""
        self.raise_in = ""
        self.release = threading.Event()

    def _behave(self, where: str) -> None:
        if self.hang_in == where:
            self.release.wait()
        if self.raise_in == where:
            raise RuntimeError(f"no {where} today")

    def start(self, run: RunInfo) -> None:
        self._behave("start")
        self.run = run

    def log(self, values: Mapping[str, float], update: int) -> None:
        self._behave("log")
        self.got.append((update, dict(values)))

    def close(self) -> None:
        self._behave("close")
        self.closed = True


def begun(box: Box, directory: Path, limits: Limits = QUICK) -> SinkSet:
    sinks = SinkSet([QueuedSink("box", lambda: box, limits)], directory)
    sinks.start({"run.seed": 1}, None)
    return sinks


def status(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / STATUS).read_text())["sinks"]["box"]
    return found


def until(true: Any) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_sink_gets_every_number_in_order(tmp_path: Path) -> None:
    box = Box()
    sinks = begun(box, tmp_path, Limits())
    for update in range(1, 200):
        assert (
            sinks.offer({"update": update, "train/lr": 0.5, "name": "x", "flag": True}, update)
            == []
        )
    assert sinks.close() == []
    assert box.got == [(u, {"update": float(u), "train/lr": 0.5}) for u in range(1, 200)]
    assert box.closed
    assert box.run is not None and box.run.settings == {"run.seed": 1}
    assert status(tmp_path) == {
        "state": "closed",
        "sent": 199,
        "dropped": 0,
        "errors": 0,
        "problem": "",
    }


@pytest.mark.parametrize("where", ["start", "log", "close"])
def test_a_sink_that_hangs_is_cut_off_and_offers_return_at_once(tmp_path: Path, where: str) -> None:
    box = Box()
    box.hang_in = where
    sinks = begun(box, tmp_path)
    told: list[str] = []
    for update in range(1, 61):
        told += sinks.offer({"a": 1.0}, update)
        # Many at once at first: they do not fit into the queue.
        time.sleep(0.01 if update > 20 else 0.0)
    told += sinks.close()
    assert not box.release.is_set(), "nothing above waited for the sink, which hangs for ever"
    box.release.set()
    assert sum("was cut off" in text for text in told) == 1
    assert status(tmp_path)["state"] == "cut_off"
    if where != "close":
        assert any(f"{where} did not return within 0.2 s" in text for text in told)
        assert status(tmp_path)["dropped"] > 0
        assert any("dropped" in text for text in told)


def test_a_sink_that_cannot_start_is_cut_off_with_its_reason(tmp_path: Path) -> None:
    box = Box()
    box.raise_in = "start"
    sinks = begun(box, tmp_path)
    until(lambda: sinks.sinks[0].status.state == "cut_off")
    told = sinks.offer({"a": 1.0}, 1)
    assert "could not start: RuntimeError: no start today" in told[0]
    assert sinks.offer({"a": 1.0}, 2) == []
    assert sinks.close() == []


def test_three_errors_in_a_row_cut_a_sink_off_and_two_do_not(tmp_path: Path) -> None:
    box = Box()
    sinks = begun(box, tmp_path, Limits())
    told: list[str] = []
    for update, bad in enumerate([1, 1, 0, 1, 1, 0, 1, 1, 1, 0], 1):
        before = sinks.sinks[0].status
        seen = before.sent + before.errors
        box.raise_in = "log" if bad else ""
        told += sinks.offer({"a": 1.0}, update)
        if update < 10:
            until(lambda: before.sent + before.errors == seen + 1)  # noqa: B023
    until(lambda: sinks.sinks[0].status.state == "cut_off")
    told += sinks.close()
    assert "raised 3 times in a row" in told[0]
    assert [update for update, _ in box.got] == [3, 6]
    assert status(tmp_path)["errors"] == 7


def test_a_sink_that_is_too_slow_loses_numbers_that_are_counted(tmp_path: Path) -> None:
    box = Box()
    box.hang_in = "log"
    sinks = begun(box, tmp_path, Limits(queue=3, close_s=20))
    told: list[str] = []
    for update in range(1, 21):
        told += sinks.offer({"a": 1.0}, update)
    box.hang_in = ""
    box.release.set()
    assert sum("too slow" in text for text in told) == 1
    told = sinks.close()
    found = status(tmp_path)
    assert found["state"] == "closed"
    assert found["sent"] + found["dropped"] == 20 and found["dropped"] >= 16
    assert f"{found['dropped']} were dropped" in told[-1]
    assert len(box.got) == found["sent"]


def test_a_resumed_run_keeps_its_name_at_the_sinks(tmp_path: Path) -> None:
    seen = []
    for resumed in (None, 10, None):
        box = Box()
        sinks = SinkSet([QueuedSink("box", lambda box=box: box, QUICK)], tmp_path)
        sinks.start({}, resumed)
        sinks.close()
        assert box.run is not None
        seen.append(box.run.id)
    assert seen[0] == seen[1] != seen[2]


OWN = """
import sys, time
class Own:
    def start(self, run):
        print("hello from the sink")
        self.file = open("seen.txt", "w")
    def log(self, values, update):
        self.file.write(f"{update} {values['train/lr']}\\n")
        self.file.flush()
        if len(sys.argv) > 1 and sys.argv[1] == "hang":
            time.sleep(600)
    def close(self):
        self.file.close()
"""
TRAINER = """
import json, sys
from pathlib import Path
from holdfast.store.recorder import Recorder
from holdfast.store.sinks import Limits
recorder = Recorder(Path("."), False, lambda text: print(text, file=sys.stderr), ["own:Own"])
for sink in recorder.sinks.sinks:
    sink.limits = Limits(log_s=0.3, close_s=0.5)
recorder.start(None)
import time
for update in range(1, 21):
    recorder.update({"update": update, "env_steps": update, "train/lr": 0.25})
    time.sleep(0.04)
recorder.close()
print(json.dumps({"done": 20}))
"""


@pytest.mark.parametrize("mode", ["good", "hang"])
def test_a_process_with_a_sink_of_its_own_ends_and_keeps_its_output(
    tmp_path: Path, mode: str
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    done = subprocess.run(
        [sys.executable, "-c", TRAINER, mode],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"done": 20}
    assert "hello from the sink" in done.stderr
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 20
    lines = (tmp_path / "seen.txt").read_text().splitlines()
    if mode == "good":
        assert lines == [f"{update} 0.25" for update in range(1, 21)]
    else:
        assert lines == ["1 0.25"]
        assert "cut off: its log did not return within 0.3 s" in done.stderr


def test_a_run_sends_its_metrics_to_the_sink_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    words = (
        "train shoal --run r --games 4 --fish 6 --steps 16 --hidden 8 --minibatch 64 --epochs 1 --updates 3 "
        "--probe.every 0 --probe.episodes 1 --sinks own:Own --plain --no-report --json"
    ).split()
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "finished"
    assert len((tmp_path / "seen.txt").read_text().splitlines()) == 3
    found = json.loads((tmp_path / "runs" / "r" / STATUS).read_text())["sinks"]
    assert found["own:Own"]["state"] == "closed" and found["own:Own"]["sent"] == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wandbb", "Did you mean 'wandb'"),
        ("no_such_module:thing", "cannot be made"),
        ("json:nothing", "cannot be made"),
        ("json:__name__", "'__name__' is a str, no function"),
        ("broken_sinks:make", "not yet written"),
    ],
)
def test_a_bad_name_says_what_to_write(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_sinks.py").write_text("raise RuntimeError('not yet written')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=said):
        make_sinks([name], tmp_path)


BAD = """
import sys, time

def raises():
    raise RuntimeError("no licence")

def needs(where):
    return None

def nothing():
    return None

def leaves():
    sys.exit("no server")

def hangs():
    time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "could not start: RuntimeError: no licence"),
        ("needs", "could not start: TypeError: needs() missing 1 required"),
        ("nothing", "has no start, log, close. A sink has start(run), log(values, update)"),
        ("leaves", "could not start: SystemExit: no server"),
        ("hangs", "its start did not return within 0.2 s"),
    ],
)
def test_a_sink_that_cannot_be_made_costs_only_the_sink(
    function: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_sinks.py").write_text(BAD)
    monkeypatch.syspath_prepend(tmp_path)
    sinks = make_sinks([f"bad_sinks:{function}"], tmp_path, Limits(queue=10**6, start_s=0.2))
    sinks.start({}, None)
    told: list[str] = []
    until(lambda: told.extend(sinks.offer({"a": 1.0}, 1)) or told)
    assert said in told[0] and "Training goes on" in told[0]
    assert sinks.offer({"a": 1.0}, 2) == []


def test_a_sink_whose_package_is_missing_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in KINDS:
        if name not in sys.modules:
            with pytest.raises(ConfigError, match=rf"pip install 'holdfast\[{name}\]'"):
                make_sinks([name], tmp_path)


class FakeRun:
    """What W&B and trackio return from `init`."""

    def __init__(self, **options: Any) -> None:
        self.options, self.logged, self.finished = options, [], False

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished = True


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_runs_of_wandb_and_trackio_get_name_settings_and_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FakeRun] = []

    def init(**options: Any) -> FakeRun:
        made.append(FakeRun(**options))
        return made[-1]

    module = types.ModuleType(name)
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    sinks = make_sinks([name], tmp_path)
    sinks.start({"run.seed": 1}, None)
    sinks.offer({"train/lr": 0.5}, 3)
    assert sinks.close() == []
    (run,) = made
    assert run.options["project"] == "holdfast" and run.options["resume"] == "allow"
    assert run.options["config"] == {"run.seed": 1}
    assert run.logged == [(3, {"train/lr": 0.5})] and run.finished


def mlflow_fake(store: dict[str, Any]) -> dict[str, types.ModuleType]:
    """Return modules with the part of MLflow's interface that is used, over a dict."""

    class Client:
        def get_experiment_by_name(self, name: str) -> Any:
            return store.get(name)

        def create_experiment(self, name: str) -> str:
            store[name] = types.SimpleNamespace(experiment_id=name)
            return name

        def search_runs(self, experiments: list[str], condition: str) -> list[Any]:
            tag = condition.split("'")[1]
            return [r for r in store.get("runs", []) if r.tags["holdfast.run"] == tag]

        def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
            info = types.SimpleNamespace(run_id=f"r{len(store.get('runs', []))}")
            run = types.SimpleNamespace(
                info=info, tags=tags, metrics=[], params={}, status="RUNNING"
            )
            store.setdefault("runs", []).append(run)
            return run

        def _run(self, run_id: str) -> Any:
            return next(r for r in store["runs"] if r.info.run_id == run_id)

        def update_run(self, run_id: str, status: str) -> None:
            self._run(run_id).status = status

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
            assert len(params) <= 100 and len(metrics) <= 1000
            self._run(run_id).metrics += [(m[3], m[0], m[1]) for m in metrics]
            self._run(run_id).params.update(dict(params))

        def set_terminated(self, run_id: str) -> None:
            self._run(run_id).status = "FINISHED"

    module, entities = types.ModuleType("mlflow"), types.ModuleType("mlflow.entities")
    module.MlflowClient = Client  # type: ignore[attr-defined]
    entities.Metric = lambda *fields: fields  # type: ignore[attr-defined]
    entities.Param = lambda *fields: fields  # type: ignore[attr-defined]
    return {"mlflow": module, "mlflow.entities": entities}


def test_mlflow_finds_its_run_again_when_ours_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: dict[str, Any] = {}
    for name, module in mlflow_fake(store).items():
        monkeypatch.setitem(sys.modules, name, module)
    many = {f"key{i}": i for i in range(250)}
    for resumed, update in ((None, 1), (1, 2)):
        sinks = make_sinks(["mlflow"], tmp_path)
        sinks.start(many, resumed)
        sinks.offer({"train/lr": 0.5}, update)
        assert sinks.close() == []
    (run,) = store["runs"]
    assert run.metrics == [(1, "train/lr", 0.5), (2, "train/lr", 0.5)]
    assert run.status == "FINISHED" and len(run.params) == 250


REAL = """
import sys
from pathlib import Path
from holdfast.store.sink_kinds import make_sinks
for resumed, update in ((None, 1), (1, 2)):
    sinks = make_sinks(["mlflow"], Path("."))
    sinks.start({"run.seed": 1}, resumed)
    told = sinks.offer({"train/lr": update / 2}, update) + sinks.close()
    assert told == [], told
from mlflow import MlflowClient
client = MlflowClient()
(run,) = client.search_runs([client.get_experiment_by_name("holdfast").experiment_id])
seen = client.get_metric_history(run.info.run_id, "train/lr")
assert [(m.step, m.value) for m in seen] == [(1, 0.5), (2, 1.0)], seen
assert run.data.params == {"run.seed": "1"} and run.info.status == "FINISHED"
"""


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
def test_the_real_mlflow_takes_it_in_a_local_store(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "MLFLOW_TRACKING_URI": f"file://{tmp_path}/store",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REAL],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_recorder_without_sinks_writes_no_status(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, False, print)
    recorder.start(None)
    recorder.update({"update": 1, "env_steps": 2})
    recorder.close()
    assert not (tmp_path / STATUS).exists()
