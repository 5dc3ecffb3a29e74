"""From the adapters' JSON lines to a table, ratios, and the bars in words. No measuring happens here.

A *record* is one JSON line plus `key` (the contender), `case_name` ("64x64/1024/2": hidden widths, minibatch,
threads) and `turns` (the number of the turn of every update), or `{"key", "case_name", "failed": reason}`.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]

FUSED, TORCH = "fused", "torch"
TORCH_PEERS = ("sb3", "skrl", "cleanrl", "puffer", "torchrl", "sf")
JAX_PEERS = ("jax", "jax-one", "jax-host")
SPLIT = ("env", "inference", "advantages", "update")


@dataclass
class Row:
    """One contender in one case."""

    key: str
    peer: str = ""
    version: str = ""
    rates: list[float] = field(default_factory=list)
    """Transitions/s of every timed update."""
    turns: list[int] = field(default_factory=list)
    """The turn in which each of them was made."""
    cpu_rates: list[float] = field(default_factory=list)
    """Transitions a processor second, all threads counted."""
    limits: list[float] = field(default_factory=list)
    """FLOP/s of multiply-adds that the machine gave before and after each timed update."""
    split: dict[str, float] | None = None
    gradient_steps: int = 0
    rss_mb: float = 0.0
    settings: list[str] = field(default_factory=list)
    failed: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.rates)


def parse(name: str) -> tuple[tuple[int, ...], int, int]:
    """Return the hidden widths, the minibatch and the threads of a case name."""
    hidden, minibatch, threads = name.split("/")
    return tuple(int(w) for w in hidden.split("x")), int(minibatch), int(threads)


def case_names(records: list[Record]) -> list[str]:
    """Return the cases, in order of threads (most first), widths and minibatch, whenever each was played."""

    def place(name: str) -> tuple[int, tuple[int, ...], int]:
        hidden, minibatch, threads = parse(name)
        return -threads, hidden, minibatch

    return sorted({record["case_name"] for record in records}, key=place)


def rows_of(records: list[Record], case_name: str) -> dict[str, Row]:
    """Return one row a contender of this case, in their order."""
    rows: dict[str, Row] = {}
    for record in records:
        if record["case_name"] != case_name:
            continue
        key = record["key"]
        if "failed" in record:
            rows[key] = Row(key, failed=record["failed"])
            continue
        rows[key] = Row(
            key,
            peer=record["peer"],
            version=record["version"],
            rates=record["transitions_per_s"],
            turns=record["turns"],
            cpu_rates=[record["transitions"] / max(s, 1e-9) for s in record["cpu_s"]],
            limits=[1e9 * limit for limit in record["limit_gflops"]],
            split=record["split"],
            gradient_steps=record["gradient_steps"],
            rss_mb=record["rss_mb"],
            settings=record["settings"],
        )
    return rows


def ratio(rows: dict[str, Row], key: str) -> float | None:
    """Return how many times faster ours fused is than `key`; None without both figures.

    It is the median over the updates of `key`, each compared with ours fused in the turns beside it.
    """
    if FUSED not in rows or key not in rows or not rows[FUSED].rates or not rows[key].rates:
        return None
    ours: dict[int, list[float]] = {}
    for turn, rate in zip(rows[FUSED].turns, rows[FUSED].rates, strict=True):
        ours.setdefault(turn, []).append(rate)
    found = [
        statistics.mean([*ours.get(turn - 1, ()), *ours.get(turn + 1, ())]) / rate
        for turn, rate in zip(rows[key].turns, rows[key].rates, strict=True)
    ]
    return statistics.median(found)


def share(row: Row, work: float) -> float | None:
    """Return the median share of the limit beside each update that its rate needs at `work` FLOPs a transition."""
    if not row.rates:
        return None
    return statistics.median(
        rate * work / limit for rate, limit in zip(row.rates, row.limits, strict=True)
    )


def fastest(rows: dict[str, Row], keys: tuple[str, ...]) -> tuple[float, Row] | None:
    """Return which of these contenders ours fused beats by least, and how many times faster it is."""
    ran = [(times, rows[k]) for k in keys if (times := ratio(rows, k)) is not None]
    return min(ran, key=lambda one: one[0], default=None)


def thousands(rate: float) -> str:
    return f"{rate / 1000:,.1f}k" if rate < 100_000 else f"{rate / 1000:,.0f}k"


def markdown(rows: dict[str, Row], work: float) -> list[str]:
    """Return the lines of one case's table, fastest first, failures last."""
    lines = [
        "| | version | transitions/s | spread | ours fused is | of the limit | a CPU second | env | inference "
        "| advantages | update | gradient steps | memory MB |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    ran = sorted((r for r in rows.values() if r.rates), key=lambda r: -r.median)
    for row in ran:
        times = None if row.key == FUSED else ratio(rows, row.key)
        part = share(row, work)
        cells = ["", "", "", ""]
        if row.split:
            whole = sum(row.split.values())
            cells = [f"{row.split[p] / whole:.0%}" for p in SPLIT]
        masked = row.key == "fused-masked"
        lines.append(
            f"| {row.peer} | {row.version} | {thousands(row.median)} "
            f"| {thousands(min(row.rates))} to {thousands(max(row.rates))} "
            f"| {f'{times:.1f}x' if times else ''} "
            f"| {f'{part:.0%}' if part and not masked else ''} "
            f"| {thousands(statistics.median(row.cpu_rates))} | {' | '.join(cells)} "
            f"| {'fewer' if masked else row.gradient_steps} | {row.rss_mb:,.0f} |"
        )
    lines += [
        f"| {row.key} | did not run: {row.failed} " + "| " * 11 + "|"
        for row in rows.values()
        if not row.rates
    ]
    return lines


@dataclass
class Bar:
    """One promise and what was measured."""

    text: str
    bound: float
    value: float | None
    detail: str = ""

    @property
    def words(self) -> str:
        if self.value is None:
            return f"- not measured: {self.text} (bar {self.bound:g})"
        met = "met" if self.value >= self.bound else "NOT MET"
        return f"- {met}: {self.text}: {self.value:.2f} (bar {self.bound:g}){self.detail}"


def bars(cases: dict[str, dict[str, Row]], shares: dict[str, float | None]) -> list[Bar]:
    """Return the bars that this bench can judge; `shares` are ours fused's by case name."""
    found: list[Bar] = []

    def against(case_name: str, keys: tuple[str, ...], bound: float, text: str) -> None:
        times, best = fastest(cases.get(case_name, {}), keys) or (None, None)
        found.append(
            Bar(f"{case_name}: fused / {text}", bound, times, f", {best.peer}" if best else "")
        )

    against("64x64/1024/2", TORCH_PEERS, 6.0, "fastest PyTorch peer")
    against("64x64/1024/2", JAX_PEERS, 3.0, "faster JAX loop")
    against("64x64/1024/2", (TORCH,), 3.0, "our torch path")
    against("64x64/8192/2", TORCH_PEERS, 4.0, "fastest PyTorch peer")
    against("64x64/8192/2", JAX_PEERS, 2.5, "faster JAX loop")
    for minibatch in (1024, 8192):
        everybody = (*TORCH_PEERS, *JAX_PEERS, TORCH)
        against(f"256x256/{minibatch}/2", everybody, 1.5, "fastest of all")
    for name, part in shares.items():
        bound = 0.5 if name.startswith("64x64") else 0.6
        found.append(Bar(f"{name}: share of the multiply-add limit, world included", bound, part))
    return found
