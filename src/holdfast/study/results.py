"""What the runs of a study came to: one result a run, and the record that study.json holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.probes.rank import Rule
from holdfast.study.child import ENDED, Child, Probed
from holdfast.study.folder import shrunk
from holdfast.study.specs import Variant, Vary
from holdfast.study.table import Difference, paired, spread

FORMAT = 1
ENDS = ("final", "best")
"""The last evaluation of a run, and the one that is ranked first."""


@dataclass(frozen=True)
class Result:
    """How one run ended and what its evaluations say."""

    run: str
    variant: str
    seed: int
    state: str
    update: int
    updates: int
    env_steps: int
    probes: tuple[Probed, ...]
    best: Probed | None
    """Evaluation that is ranked first, the earliest of equals."""
    checkpoint: str
    """Checkpoint of the best evaluation, relative to the study; empty if it is not kept."""
    error: str = ""
    """Why it failed or was stopped, or that it trained with less than was asked for."""

    @property
    def final(self) -> Probed | None:
        """The last evaluation."""
        return self.probes[-1] if self.probes else None

    @property
    def counts(self) -> bool:
        """Whether the run enters the tables: it trained as far as it was meant to, or a guard ended it."""
        return self.state in ENDED and bool(self.probes)

    def at(self, end: str) -> Probed | None:
        """Return the final or the best evaluation."""
        return self.final if end == "final" else self.best


def read_result(child: Child, rule: Rule) -> Result:
    """Return what the files of a child's run say now."""
    seen = child.followed
    seen.read()
    ordered = tuple(sorted(seen.probes.values(), key=lambda probed: probed.update))
    ranked = [p for p in ordered if all(name in p.metrics for name in rule.names)]
    best = max(ranked, key=lambda p: (rule.key(p.metrics), p.update), default=None)
    checkpoint = ""
    if best is not None:
        place = child.directory.path / "checkpoints" / f"u{best.update:08d}"
        checkpoint = str(place.relative_to(child.study)) if place.is_dir() else ""
    error = child.last_words() if child.state in ("failed", "killed", "stopped") else ""
    less = shrunk(child.directory.path)
    if less:
        error = "\n".join([f"out of memory, went on with less: {', '.join(less)}", error]).rstrip()
    return Result(
        run=child.name,
        variant=child.member.variant,
        seed=child.member.seed,
        state=child.state,
        update=seen.update,
        updates=seen.updates,
        env_steps=seen.env_steps,
        probes=ordered,
        best=best,
        checkpoint=checkpoint,
        error=error,
    )


def metric_names(results: Sequence[Result], main: str) -> list[str]:
    """Return every metric that a counted run measured, the main one first."""
    found = {name: None for r in results if r.final for name in r.final.metrics}
    return [name for name in dict.fromkeys([main, *found]) if name in found]


def by_seed(results: Sequence[Result], variant: str, metric: str, end: str) -> dict[int, float]:
    """Return a metric of the counted runs of a variant by seed."""
    own = [r for r in results if r.variant == variant and r.counts]
    return {
        r.seed: probed.metrics[metric]
        for r in own
        if (probed := r.at(end)) is not None and metric in probed.metrics
    }


def summarise(results: Sequence[Result], variant: str, main: str) -> dict[str, Any]:
    """Return for both ends the spread of every metric over the seeds of a variant."""
    names = metric_names([r for r in results if r.variant == variant and r.counts], main)
    return {
        end: {
            name: asdict(spread(list(values.values())))
            for name in names
            if (values := by_seed(results, variant, name, end))
        }
        for end in ENDS
    }


def differences(
    results: Sequence[Result], variants: Sequence[Variant], main: str
) -> list[dict[str, Any]]:
    """Return how much each variant is above the first, metric by metric, paired by seed."""
    rows = []
    names = metric_names([r for r in results if r.counts], main)
    for variant in variants[1:]:
        for end in ENDS:
            for name in names:
                first = by_seed(results, variants[0].name, name, end)
                found = paired([first], [by_seed(results, variant.name, name, end)])
                if found is not None:
                    rows.append(_row(found, variant=variant.name, end=end, metric=name))
    return rows


def effects(
    results: Sequence[Result], variants: Sequence[Variant], varies: Sequence[Vary], main: str
) -> list[dict[str, Any]]:
    """Return what each value of a key does in a grid, over all settings of the other keys (the strata)."""
    rows = []
    for vary in varies:
        for value in vary.values[1:]:
            groups = [
                (_holding(variants, v, vary.key, vary.values[0]), v)
                for v in variants
                if (vary.key, value) in v.settings
            ]
            for end in ENDS:
                first = [by_seed(results, a.name, main, end) for a, _ in groups]
                other = [by_seed(results, b.name, main, end) for _, b in groups]
                found = paired(first, other)
                if found is not None:
                    rows.append(_row(found, key=vary.key, value=value, end=end, metric=main))
    return rows


def _holding(variants: Sequence[Variant], like: Variant, key: str, value: str) -> Variant:
    """Return the variant that has `value` for `key` and is else like another."""
    wanted = tuple((k, value if k == key else v) for k, v in like.settings)
    return next(v for v in variants if v.settings == wanted)


def _row(found: Difference, **about: str) -> dict[str, Any]:
    return {**about, **asdict(found)}


def run_record(result: Result) -> dict[str, Any]:
    """Return one run as study.json holds it, its curve left out."""
    ends = {end: asdict(probed) if (probed := result.at(end)) else None for end in ENDS}
    if ends["best"] is not None:
        ends["best"]["checkpoint"] = result.checkpoint
    return {
        "run": result.run,
        "variant": result.variant,
        "seed": result.seed,
        "state": result.state,
        "counts": result.counts,
        "update": result.update,
        "updates": result.updates,
        "env_steps": result.env_steps,
        **ends,
        "error": result.error,
    }


def exit_code_of(states: Sequence[str], stopped_by: int) -> int:
    """Return 0 when all ended, 128 + signal when stopped, 1 when some failed, 4 when guards ended some."""
    if stopped_by:
        return 128 + stopped_by
    if any(state not in (*ENDED, "pruned") for state in states):
        return 1
    return 4 if "stopped" in states else 0
