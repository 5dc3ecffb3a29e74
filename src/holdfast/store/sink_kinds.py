"""The sinks that `run.sinks` can name: W&B, MLflow, trackio, or `module:function` of one's own.

    run.sinks = ["wandb"]            holdfast train shoal --sinks wandb,mlflow

They are set up as their own documents say: `WANDB_PROJECT`, `WANDB_MODE`; `MLFLOW_TRACKING_URI`,
`MLFLOW_EXPERIMENT_NAME`; `TRACKIO_DIR`, `TRACKIO_PROJECT`. Without a project the name is `holdfast`. A
resumed run goes on in the same place: updates that were sent before are sent again, the same. A sink of
one's own is a function without arguments that returns an object with `start`, `log` and `close` (see
`sinks.Sink`).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, nearest
from holdfast.store.sinks import Limits, QueuedSink, RunInfo, Sink, SinkSet

PROJECT = "holdfast"


class WandbSink:
    """Weights & Biases: one run of theirs a run of ours."""

    def start(self, run: RunInfo) -> None:
        wandb = importlib.import_module("wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            id=run.id,
            resume="allow",
            config=dict(run.settings),
            dir=str(run.directory),
        )

    def log(self, values: Mapping[str, float], update: int) -> None:
        self._run.log(dict(values), step=update)

    def close(self) -> None:
        self._run.finish()


class MlflowSink:
    """MLflow: found again by a tag when a run is resumed."""

    TAG = "holdfast.run"

    def start(self, run: RunInfo) -> None:
        mlflow = importlib.import_module("mlflow")
        self._entities = importlib.import_module("mlflow.entities")
        self._client = mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = (
            found.experiment_id if found is not None else self._client.create_experiment(name)
        )
        known = self._client.search_runs([experiment], f"tags.`{self.TAG}` = '{run.id}'")
        if known and run.resumed_at is not None:
            self._id = known[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        made = self._client.create_run(experiment, run_name=run.name, tags={self.TAG: run.id})
        self._id = made.info.run_id
        rows = [self._entities.Param(key, str(value)) for key, value in run.settings.items()]
        for first in range(0, len(rows), 100):  # MLflow takes 100 parameters at a time
            self._client.log_batch(self._id, params=rows[first : first + 100])

    def log(self, values: Mapping[str, float], update: int) -> None:
        now = int(time.time() * 1000)
        rows = [self._entities.Metric(key, value, now, update) for key, value in values.items()]
        for first in range(0, len(rows), 1000):  # and 1000 metrics
            self._client.log_batch(self._id, metrics=rows[first : first + 1000])

    def close(self) -> None:
        self._client.set_terminated(self._id)


class TrackioSink:
    """Trackio: a local database, or a Space."""

    def start(self, run: RunInfo) -> None:
        trackio = importlib.import_module("trackio")
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=run.id,
            config=dict(run.settings),
            resume="allow",
        )

    def log(self, values: Mapping[str, float], update: int) -> None:
        self._run.log(dict(values), step=update)

    def close(self) -> None:
        self._run.finish()


KINDS: dict[str, Callable[[], Sink]] = {
    "wandb": WandbSink,
    "mlflow": MlflowSink,
    "trackio": TrackioSink,
}


def check_sinks(names: Sequence[str]) -> None:
    """Raise if one of the names is unknown, or its package is not installed."""
    for name in names:
        if ":" in name:
            continue
        if name not in KINDS:
            raise ConfigError(
                f"run.sinks names '{name}', which is not a sink.{nearest(name, KINDS)} "
                f"There are: {', '.join(KINDS)}, or 'module:function' of your own."
            )
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"run.sinks names '{name}', which is not installed. "
                f"Type: pip install 'holdfast[{name}]', or leave it out of run.sinks."
            )


def make_sinks(names: Sequence[str], directory: Path, limits: Limits | None = None) -> SinkSet:
    """Return the sinks of a run, not yet made or started; a bad name is a ConfigError."""
    check_sinks(names)
    queued = [QueuedSink(name, _maker(name), limits) for name in dict.fromkeys(names)]
    return SinkSet(queued, directory)


def _maker(name: str) -> Callable[[], Sink]:
    """Return what makes the sink, later and in its own thread: what fails or hangs there costs only the sink."""
    if name in KINDS:
        return KINDS[name]
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), function)
        if not callable(make):
            raise TypeError(f"'{function}' is a {type(make).__name__}, no function")
    except Exception as error:  # a module may raise anything when it is imported
        raise ConfigError(
            f"run.sinks names '{name}', which cannot be made: {error}. It takes 'module:function', a "
            "function without arguments that returns an object with start, log and close."
        ) from None
    return lambda: _whole(make())


def _whole(made: Any) -> Sink:
    """Return what a function made, if it is a sink."""
    missing = [
        part for part in ("start", "log", "close") if not callable(getattr(made, part, None))
    ]
    if missing:
        raise TypeError(
            f"what it returns has no {', '.join(missing)}. A sink has start(run), log(values, update) "
            "and close()"
        )
    sink: Sink = made
    return sink
