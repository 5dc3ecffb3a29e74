"""The directory of a study.

runs/pursuit-best-study/
  study.json   what was asked and what came out
  table.md     the same for people
  plot.png     curves of every run
  base.toml    the resolved config that all runs share
  logs/        what each child said
  s1/ s2/ ...  the runs: `holdfast report s1 --runs-dir runs/pursuit-best-study`
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.config import Config, differences, from_tables, read_toml, resolve, to_toml
from holdfast.errors import ConfigError
from holdfast.ladder import EVENT
from holdfast.overlap import as_begun
from holdfast.parallel import cores
from holdfast.probes.headlines import headline
from holdfast.probes.rank import parse_rule
from holdfast.run import RunDirectory, checked_name
from holdfast.store.files import read_json, storage_errors, write_atomic, write_json
from holdfast.store.journal import plain, read_lines
from holdfast.study.crew import threads_each
from holdfast.study.specs import Member, Pair, check_settings, make_member

SEEDS, SEARCH = "seeds", "search"


@dataclass(frozen=True)
class Order:
    """What every study is asked for."""

    target: str
    settings: tuple[Pair, ...]
    runs_dir: Path
    command: str
    """The words that were typed."""
    name: str = ""
    jobs: int = 0
    """Runs at a time; 0: one a core, and no more than there are runs."""


class StudyFolder:
    """The directory of one study, checked against what is asked for."""

    def __init__(self, order: Order, kind: str, runs: int) -> None:
        """Make or open the directory; `runs` is how many runs are planned."""
        check_settings(order.settings)
        if order.jobs < 0:
            raise ConfigError(f"--jobs {order.jobs} is not allowed. It takes 1 or more.")
        base = resolve(order.target, order.settings)
        self.order, self.kind = order, kind
        self.name = checked_name(order.name or default_name(order.target, base, kind))
        self.path = order.runs_dir / self.name
        self.jobs = order.jobs or max(1, min(cores(), runs))
        own = headline(base.world.name)
        self.rule = parse_rule(base.probe.best_by or own.rule)
        self.main = self.rule.main
        self.goal = self.main if base.probe.best_by else own.goal or self.main
        self.sign = self.rule.sign if self.goal == self.main else 1.0
        """1 where the goal shall be high, -1 where it shall be low."""
        self.base = self._adopt(base)

    @property
    def threads(self) -> int:
        """Learner threads of every run."""
        return self.base.learner.threads

    def _adopt(self, base: Config) -> Config:
        """Return the base of the study, which must be the one that it was begun with."""
        path = self.path / "base.toml"
        if not path.is_file():
            if self.path.exists() and any(self.path.iterdir()):
                raise ConfigError(
                    f"{self.path} exists and is no study. Choose another name with --name."
                )
            return _threaded(base, base.learner.threads or threads_each(self.jobs))
        began = from_tables(read_toml(path))
        # Threads stay as they were: runs that differ in them would not be compared fairly.
        base = _threaded(base, base.learner.threads or began.learner.threads)
        self._refuse(differences(began, base), "the study was begun with other settings")
        kind = self._kind()
        if kind not in ("", self.kind):
            raise ConfigError(
                f"{self.path} is a study of {kind}, not of {self.kind}. Choose another name with --name."
            )
        return base

    def _kind(self) -> str:
        path = self.path / "study.json"
        return str(read_json(path).get("kind", "")) if path.is_file() else ""

    def _refuse(self, unlike: Sequence[str], why: str) -> None:
        if unlike:
            raise ConfigError(
                f"{self.path}: {why}:\n  "
                + "\n  ".join(unlike)
                + "\nChoose another name with --name, or give the same settings again."
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the study for this process and keep its base; a second process is refused."""
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with RunDirectory(self.path).lock():
            write_atomic(self.path / "base.toml", to_toml(self.base))
            yield

    def member(self, settings: Sequence[Pair], run: str, variant: str, seed: int) -> Member:
        """Return one run of the study; a run of this name that is there already must be the same."""
        order = self.order
        pairs = [*order.settings, *settings]
        made = make_member(
            order.target, pairs, checked_name(run), variant, seed, self.threads, order.runs_dir
        )
        if (self.path / run / "run.toml").is_file() and not shrunk(self.path / run):
            old = RunDirectory(self.path / run).config()
            self._refuse(
                differences(old, as_begun(made.config, old)),
                f"the run {run} was begun with other settings",
            )
        return made

    def write(self, record: dict[str, Any], page: str) -> None:
        """Replace study.json and table.md."""
        write_json(self.path / "study.json", plain(record))
        write_atomic(self.path / "table.md", page)


def shrunk(run: Path) -> list[str]:
    """Return what a run has changed of its own config because it was out of memory; mostly nothing."""
    events = read_lines(run / "sessions.jsonl", strict=False)
    return [str(line) for e in events if e.get("event") == EVENT for line in e.get("changed") or ()]


def _threaded(config: Config, threads: int) -> Config:
    return replace(config, learner=replace(config.learner, threads=threads))


def default_name(target: str, base: Config, kind: str) -> str:
    """Return the name of a study that was given none: `pursuit-best-study`."""
    stem = Path(target).stem if target.endswith(".toml") else ""
    words = [base.world.name, stem, "study" if kind == SEEDS else "search"]
    text = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(word for word in words if word))
    return text.strip("-").lower()
