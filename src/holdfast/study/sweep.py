"""A search for settings with Optuna: each trial is one run, bad ones are stopped early, all of it can go on later.

Trials live in `optuna.db` (SQLite) in the study's directory. A trial whose run was interrupted stays open there;
the next call resumes the run and the trial with it. While a run trains, its evaluations are reported in
twentieths of its length, because runs of other rollout lengths evaluate at other updates; between two
evaluations the older one holds. The median rule prunes: a trial is stopped when its best value so far is below
the median of the others at the same twentieth.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from holdfast.errors import ConfigError
from holdfast.study.child import ENDED, Child, Followed
from holdfast.study.crew import Crew
from holdfast.study.folder import SEARCH, Order, StudyFolder
from holdfast.study.plot import draw_search
from holdfast.study.results import FORMAT, Result, exit_code_of, read_result, run_record
from holdfast.study.search_page import search_markdown
from holdfast.study.show import Board
from holdfast.study.specs import Dimension, Pair, check_space, number_text

if TYPE_CHECKING:
    import optuna

MARKS = 20
"""Parts of a run at which trials are compared."""
WARMUP_MARKS = 5
"""No trial is pruned in the first quarter of its run."""
STARTUP_TRIALS = 4
"""No trial is pruned before so many have trained to their end."""
Objective = Literal["best", "last"]


@dataclass(frozen=True)
class SearchOrder:
    """What a search is asked for."""

    study: Order
    trials: int
    space: tuple[Dimension, ...]
    seed: int = 1
    objective: Objective = "best"
    prune: bool = True


class Search:
    """A search and its trials."""

    def __init__(self, order: SearchOrder) -> None:
        """Check everything that was asked for, before any run begins."""
        study = order.study
        if order.trials < 1:
            raise ConfigError(f"--optuna {order.trials} is not allowed. It takes 1 or more trials.")
        if not order.space:
            raise ConfigError(
                "--optuna needs a space to search. Add for example: --space learner.lr=log:1e-4:1e-2"
            )
        check_space(study.target, study.settings, order.space)
        self.order = order
        self.optuna = load_optuna()
        self.folder = StudyFolder(study, SEARCH, order.trials)
        self.trials: dict[str, optuna.Trial] = {}
        """Open trials by the name of their run."""
        self.reported: dict[str, set[int]] = {}
        """Marks that each open trial has reported."""
        self.children: list[Child] = []

    def run(self, board: Board) -> tuple[dict[str, Any], int]:
        """Go on to the number of trials; return the record and the exit code."""
        with self.folder.held():
            study = self._open()
            self._settled(study)
            before = len(self.children)
            board.children, board.total = self.children, self.order.trials
            if study.trials:
                left = max(0, self.order.trials - len(study.trials))
                board.say(f"{len(study.trials)} trials are there already; {left} are new")
            open_trials = study.get_trials(states=[self.optuna.trial.TrialState.RUNNING])

            def following() -> Child | None:
                while open_trials or len(study.trials) < self.order.trials:
                    trial = self._again(study, open_trials.pop(0)) if open_trials else study.ask()
                    try:
                        return self._child(trial)
                    except ConfigError as error:
                        study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
                        board.say(f"trial {trial.number} is no valid config: {error}")
                return None

            def ended(child: Child) -> None:
                self._close(study, child)
                board.ended(child)
                self.write(study)

            crew = Crew(self.folder.jobs, board)
            stopped_by = crew.run(following, self._watch, ended)
            record, results = self.write(study)
            best = record["best"]["run"] if record["best"] else ""
            path = self.folder.path / "plot.png"
            draw_search(path, results, self.folder.goal, self.folder.name, best)
        # A run that a guard ended is an ordinary trial here: it has a value.
        new = [child.state.replace("stopped", "finished") for child in self.children[before:]]
        if not stopped_by and record["best"] is None:
            return record, 1
        return record, exit_code_of(new, stopped_by)

    def _open(self) -> optuna.Study:
        package = self.optuna
        package.logging.set_verbosity(package.logging.WARNING)
        pruner: Any = package.pruners.NopPruner()
        if self.order.prune:
            pruner = package.pruners.MedianPruner(STARTUP_TRIALS, WARMUP_MARKS)
        study: optuna.Study = package.create_study(
            storage=f"sqlite:///{self.folder.path / 'optuna.db'}",
            study_name="search",
            direction="maximize" if self.folder.sign > 0 else "minimize",
            load_if_exists=True,
            pruner=pruner,
        )
        with warnings.catch_warnings():
            # Trials that are under way count as bad ones, so that the next is drawn elsewhere; Optuna 4 calls
            # this experimental. Called again, the sampler must not draw the first trials once more.
            warnings.simplefilter("ignore", package.exceptions.ExperimentalWarning)
            study.sampler = package.samplers.TPESampler(
                seed=self.order.seed + len(study.trials), constant_liar=True
            )
        asked = {
            "space": sorted(dimension.text for dimension in self.order.space),
            "objective": self.order.objective,
            "seed": self.order.seed,
            "metric": self.folder.goal,
        }
        # A search that does not say what it raises raised the main metric.
        began = {"metric": self.folder.main, **study.user_attrs.get("asked", asked)}
        for key, value in asked.items():
            if began.get(key) != value:
                raise ConfigError(
                    f"{self.folder.path}: the search was begun with {key} = {_words(began.get(key))}, not "
                    f"{_words(value)}. Give the same again, or choose another name with --name."
                )
        study.set_user_attr("asked", asked)
        return study

    def _settled(self, study: optuna.Study) -> None:
        """Take the trials that ended in earlier calls into the display and the tables."""
        for trial in study.trials:
            if not trial.state.is_finished():
                continue
            with contextlib.suppress(ConfigError):  # a trial that was no valid config has no run
                child = self._child_of(trial.number, trial.user_attrs.get("settings", []))
                states = {"COMPLETE": "finished", "PRUNED": "pruned"}
                child.state = states.get(trial.state.name, "failed")
                child.followed.read()
                self.children.append(child)

    def _again(self, study: optuna.Study, frozen: optuna.trial.FrozenTrial) -> optuna.Trial:
        """Return an open trial of an earlier call, so that its run can go on."""
        self.reported[run_name(frozen.number)] = set(frozen.intermediate_values)
        trial: optuna.Trial = self.optuna.Trial(study, frozen._trial_id)
        return trial

    def _child(self, trial: optuna.Trial) -> Child:
        pairs = [(d.key, suggest(trial, d)) for d in self.order.space]
        trial.set_user_attr("settings", [list(pair) for pair in pairs])
        child = self._child_of(trial.number, pairs)
        self.trials[child.name] = trial
        self.children.append(child)
        return child

    def _child_of(self, number: int, settings: Sequence[Sequence[str]]) -> Child:
        pairs: list[Pair] = [(key, value) for key, value in settings]
        run = run_name(number)
        member = self.folder.member(pairs, run, run, self.order.seed)
        return Child(member, self.order.study.target, self.folder.path)

    def _watch(self, child: Child) -> None:
        """Report what is new of a child, and stop it if it does badly."""
        trial = self.trials[child.name]
        known = self.reported.setdefault(child.name, set())
        folder = self.folder
        found = marks(child.followed, folder.goal, self.order.objective, folder.sign)
        new = sorted(found.keys() - known)
        for mark in new:
            trial.report(found[mark], mark)
        known.update(new)
        if new and child.state == "running" and not child.asked and trial.should_prune():
            child.pruned = True
            child.stop()

    def _close(self, study: optuna.Study, child: Child) -> None:
        """Tell how a trial ended; an interrupted one stays open."""
        trial = self.trials.pop(child.name)
        states = self.optuna.trial.TrialState
        folder = self.folder
        value = objective(child.followed, folder.goal, self.order.objective, folder.sign)
        if child.state in ENDED and value is not None:
            study.tell(trial, value)
        elif child.state == "pruned":
            study.tell(trial, state=states.PRUNED)
        elif child.state != "interrupted":
            child.state = "failed" if child.state in ENDED else child.state
            study.tell(trial, state=states.FAIL)

    def write(self, study: optuna.Study) -> tuple[dict[str, Any], list[Result]]:
        """Write study.json and table.md; return the record and the results."""
        results = [read_result(child, self.folder.rule) for child in self.children]
        record = self.record(study, results)
        self.folder.write(record, search_markdown(record))
        return record, results

    def record(self, study: optuna.Study, results: Sequence[Result]) -> dict[str, Any]:
        """Return everything that study.json holds, the trials from best to worst."""
        order = self.order
        by_run = {run_name(trial.number): trial for trial in study.trials}
        rows: list[dict[str, Any]] = []
        for result in results:
            trial = by_run[result.run]
            value = trial.value if trial.state.name == "COMPLETE" else None
            settings = trial.user_attrs.get("settings", [])
            rows.append({**run_record(result), "value": value, "settings": settings})
        sign = self.folder.sign
        rows.sort(key=lambda row: (row["value"] is None, -sign * (row["value"] or 0.0), row["run"]))
        best = rows[0] if rows and rows[0]["value"] is not None else None
        return {
            "format": FORMAT,
            "kind": SEARCH,
            "name": self.folder.name,
            "command": order.study.command,
            "target": order.study.target,
            "settings": [list(pair) for pair in order.study.settings],
            "world": self.folder.base.world.name,
            "main": self.folder.goal,
            "objective": order.objective,
            "seed": order.seed,
            "trials": order.trials,
            "jobs": self.folder.jobs,
            "threads": self.folder.threads,
            "space": [dimension.text for dimension in order.space],
            "best": best,
            "runs": rows,
        }


def suggest(trial: optuna.Trial, dimension: Dimension) -> str:
    """Return the trial's value of a dimension as a setting."""
    if dimension.kind == "choice":
        return str(trial.suggest_categorical(dimension.key, list(dimension.choices)))
    if dimension.kind == "int":
        return str(trial.suggest_int(dimension.key, int(dimension.low), int(dimension.high)))
    log = dimension.kind == "log"
    value = trial.suggest_float(dimension.key, dimension.low, dimension.high, log=log)
    return number_text(dimension.kind, value)


def objective(followed: Followed, main: str, kind: Objective, sign: float = 1.0) -> float | None:
    """Return the value of a run: its best (with sign -1 the lowest) or its last evaluation; None without one."""
    values = [value for _, value in followed.values(main)]
    if not values:
        return None
    return sign * max(sign * value for value in values) if kind == "best" else values[-1]


def marks(followed: Followed, main: str, kind: Objective, sign: float = 1.0) -> dict[int, float]:
    """Return the value of a run at each twentieth of its length, from its first evaluation on.

    Of several evaluations in one twentieth the first counts there; in one without any the last before holds.
    """
    found: dict[int, float] = {}
    if not followed.updates:
        return found
    held, place = -sign * math.inf, 0
    for probed, value in followed.values(main):
        mark = min(MARKS, probed.update * MARKS // followed.updates)
        if found:
            found.update(dict.fromkeys(range(place + 1, mark), held))
        held = sign * max(sign * held, sign * value) if kind == "best" else value
        found.setdefault(mark, held)
        place = mark
    return found


def run_name(number: int) -> str:
    """Return the name of a trial's run."""
    return f"t{number:04d}"


def load_optuna() -> Any:
    """Return the package optuna, or say how to get it."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "--optuna needs Optuna, which is not installed. Type: pip install 'holdfast[study]'"
        ) from None
    return optuna


def _words(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
