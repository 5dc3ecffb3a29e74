"""The picture of the bench: what every contender reaches in every case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import table


def draw(lines: list[dict[str, Any]], path: Path, busy: bool) -> None:
    """Draw the medians of all cases as bars, ours in colour."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    records = [line for line in lines if "key" in line]
    names = table.case_names(records)
    if not names:
        return
    columns = min(2, len(names))
    height = -(-len(names) // columns)
    figure, axes = pyplot.subplots(
        height, columns, figsize=(6.5 * columns, 3.6 * height), squeeze=False
    )
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    for axis, name in zip(axes.flat, names, strict=False):
        rows = [row for row in table.rows_of(records, name).values() if row.rates]
        rows.sort(key=lambda row: row.median)
        medians = [row.median / 1000 for row in rows]
        low = [m - min(row.rates) / 1000 for m, row in zip(medians, rows, strict=True)]
        high = [max(row.rates) / 1000 - m for m, row in zip(medians, rows, strict=True)]
        colours = [
            "#d1495b"
            if row.key.startswith(("fused", "torch")) and row.peer.startswith("ours")
            else "#8d99ae"
            for row in rows
        ]
        axis.barh(
            [row.peer for row in rows], medians, xerr=[low, high], color=colours, ecolor="#444"
        )
        for k, m in enumerate(medians):
            axis.annotate(f" {m:,.0f}k", (m + high[k], k), va="center", fontsize=8)
        hidden, minibatch, threads = name.split("/")
        axis.set_title(f"{hidden}, minibatch {minibatch}, {threads} thread(s)", fontsize=10)
        axis.set_xlabel("thousand transitions/s (median, slowest to fastest)", fontsize=8)
        axis.margins(x=0.15)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    about = lines[0]["about"]
    note = ", busy machine" if busy else ""
    figure.suptitle(f"PPO on the shoal world, {about['cpu']}{note}", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
