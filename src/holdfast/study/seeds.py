"""A study of seeds: one run for each seed and variant, side by side, then tables and a plot.

Seeds are the outer loop, so that an interrupted study has whole pairs. Everything is found again by name:
called again, finished runs are read, others go on from their checkpoints, missing ones begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import ConfigError
from holdfast.study.child import Child
from holdfast.study.crew import Crew
from holdfast.study.folder import SEEDS, Order, StudyFolder
from holdfast.study.page import markdown
from holdfast.study.plot import draw_study
from holdfast.study.pursuit import pursuit_parts
from holdfast.study.results import (
    FORMAT,
    Result,
    differences,
    effects,
    exit_code_of,
    read_result,
    run_record,
    summarise,
)
from holdfast.study.show import Board
from holdfast.study.specs import Vary, check_variants, make_variants


@dataclass(frozen=True)
class SeedOrder:
    """What a study of seeds is asked for."""

    study: Order
    seeds: tuple[int, ...]
    varies: tuple[Vary, ...] = ()
    grid: bool = False
    stable_after: int = 1_000_000
    """Environment steps after which the stability of pursuit is judged."""


class SeedStudy:
    """A study of seeds and variants."""

    def __init__(self, order: SeedOrder) -> None:
        """Check everything that was asked for, before any run begins."""
        study = order.study
        if order.grid and not order.varies:
            raise ConfigError(
                "--grid needs keys to vary. Add for example: --vary learner.lr=1e-3,3e-4"
            )
        if order.stable_after < 0:
            raise ConfigError(
                f"--stable-after {order.stable_after} is not allowed. It takes 0 or more."
            )
        self.order = order
        self.variants = make_variants(order.varies, order.grid)
        check_variants(study.target, study.settings, self.variants)
        self.folder = StudyFolder(study, SEEDS, len(self.variants) * len(order.seeds))
        self.children = [
            Child(
                self.folder.member(variant.settings, variant.run(seed), variant.name, seed),
                study.target,
                self.folder.path,
            )
            for seed in order.seeds
            for variant in self.variants
        ]

    def run(self, board: Board) -> tuple[dict[str, Any], int]:
        """Train what is missing; return the record and the exit code."""
        board.children, board.total = self.children, len(self.children)
        with self.folder.held():
            waiting = [child for child in self.children if not child.settled()]
            for child in self.children:
                child.followed.read()
            if len(waiting) < len(self.children):
                done = len(self.children) - len(waiting)
                board.say(f"{done} of {len(self.children)} runs are done already")
            queue = iter(waiting)

            def ended(child: Child) -> None:
                board.ended(child)
                self.write()

            self.write()
            crew = Crew(self.folder.jobs, board)
            stopped_by = crew.run(lambda: next(queue, None), lambda child: None, ended)
            record, results = self.write()
            draw_study(self.folder.path / "plot.png", results, self.folder.main, self.folder.name)
        return record, exit_code_of([child.state for child in self.children], stopped_by)

    def write(self) -> tuple[dict[str, Any], list[Result]]:
        """Write study.json and table.md from what the runs say now; return the record and the results."""
        results = [read_result(child, self.folder.rule) for child in self.children]
        record = self.record(results)
        self.folder.write(record, markdown(record))
        return record, results

    def record(self, results: Sequence[Result]) -> dict[str, Any]:
        """Return everything that study.json holds."""
        order, main = self.order, self.folder.main
        found: dict[str, Any] = {
            "format": FORMAT,
            "kind": SEEDS,
            "name": self.folder.name,
            "command": order.study.command,
            "target": order.study.target,
            "settings": [list(pair) for pair in order.study.settings],
            "world": self.folder.base.world.name,
            "main": main,
            "seeds": list(order.seeds),
            "jobs": self.folder.jobs,
            "threads": self.folder.threads,
            "stable_after": order.stable_after,
            "variants": [
                {"name": v.name, "settings": [list(pair) for pair in v.settings]}
                for v in self.variants
            ],
            "runs": [run_record(result) for result in results],
            "summary": {v.name: summarise(results, v.name, main) for v in self.variants},
            "differences": differences(results, self.variants, main),
            "effects": effects(results, self.variants, order.varies, main) if order.grid else [],
        }
        if found["world"] == "pursuit":
            found["pursuit"] = pursuit_parts(results, self.folder.path, order.stable_after)
        return found
