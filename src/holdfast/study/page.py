"""table.md: the record of a study as tables that people read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.view.numbers import brackets, figure, number, short

Record = Mapping[str, Any]
NONE = "–"
HEADS = {"final": "Final checkpoint", "best": "Best checkpoint"}


def markdown(record: Record) -> str:
    """Return the whole page."""
    many = len(record["variants"]) > 1
    parts = [f"# Study {record['name']}", about(record), runs_table(record)]
    if many:
        parts.append(variants_table(record))
    if record.get("effects"):
        parts.append(effects_table(record))
    if record.get("pursuit"):
        parts += pursuit_tables(record, many)
    for variant in record["variants"]:
        for end, head in HEADS.items():
            title = f"{head}: {variant['name']}" if many else head
            parts.append(f"## {title}\n\n{metrics_table(record, variant['name'], end)}")
    parts.append(NOTE)
    return "\n\n".join(part for part in parts if part) + "\n"


NOTE = (
    "Brackets are 95 % bootstrap intervals over training seeds: of the interquartile mean in the tables of metrics, "
    "of the mean in differences, which are paired by seed; where seeds agree, they know of no spread, which is no proof that "
    "there is none. The best checkpoint was chosen by the very evaluations "
    "that are shown, so it flatters; the final one does not."
)


def about(record: Record) -> str:
    """Return what was studied, and how to do it again."""
    runs = record["runs"]
    counted = [run for run in runs if run["counts"]]
    states: dict[str, int] = {}
    for run in runs:
        states[run["state"]] = states.get(run["state"], 0) + 1
    told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in states.items())
    steps = sorted(run["env_steps"] for run in counted)
    length = ""
    if steps:
        length = f"{short(steps[0])} environment steps each. "
        if steps[-1] != steps[0]:
            length = f"{short(steps[0])} to {short(steps[-1])} environment steps each. "
    return (
        f"`{record['command']}`\n\n"
        f"{plural(len(record['seeds']), 'seed')}, {plural(len(record['variants']), 'variant')}; "
        f"runs: {told}. {length}"
        f"Main metric: `{record['main']}`."
    )


def runs_table(record: Record) -> str:
    """Return one row a run."""
    main = record["main"]
    rows = [
        [
            run["run"],
            run["state"].replace("_", " "),
            f"{run['update']}/{run['updates'] or '?'}",
            short(run["env_steps"]),
            value((run["final"] or {}).get("metrics", {}).get(main)),
            value((run["best"] or {}).get("metrics", {}).get(main)),
            str(run["best"]["update"]) if run["best"] else NONE,
            (run["best"] or {}).get("checkpoint") or NONE,
        ]
        for run in record["runs"]
    ]
    heads = ["run", "state", "updates", "steps", f"final {main}", "best", "at", "best checkpoint"]
    text = "## Runs\n\n" + table(heads, rows)
    for run in record["runs"]:
        if run["error"]:
            text += f"\n\n`{run['run']}` {run['state']}:\n\n"
            text += "\n".join(f"    {line}" for line in run["error"].splitlines())
    return text


def metrics_table(record: Record, variant: str, end: str) -> str:
    """Return every metric of a variant: spread over seeds, then the value of each seed."""
    spreads = record["summary"][variant][end]
    if not spreads:
        return "No run of this variant is finished."
    own = [run for run in record["runs"] if run["variant"] == variant and run["counts"]]
    rows = [
        [
            f"`{metric}`",
            value(found["median"]),
            value(found["iqm"]) + bracket(found),
            value(found["mean"]),
            value(found["min"]),
            value(found["max"]),
            *(value((run[end] or {}).get("metrics", {}).get(metric)) for run in own),
        ]
        for metric, found in spreads.items()
    ]
    seeds = [f"seed {run['seed']}" for run in own]
    return table(["metric", "median", "IQM", "mean", "min", "max", *seeds], rows)


def variants_table(record: Record) -> str:
    """Return the main metric of every variant and its change against the first."""
    main, first = record["main"], record["variants"][0]["name"]
    changes = {
        (row["variant"], row["end"]): row for row in record["differences"] if row["metric"] == main
    }
    rows = []
    for variant in record["variants"]:
        name = variant["name"]
        cells = [name]
        for end in HEADS:
            found = record["summary"][name][end].get(main)
            cells.append(value(found["iqm"]) + bracket(found) if found else NONE)
            cells.append(change(changes.get((name, end))) if name != first else "")
        rows.append(cells)
    heads = ["variant", f"final {main}", f"against {first}", f"best {main}", f"against {first}"]
    settings = ", ".join(f"`{key}={v}`" for key, v in record["variants"][0]["settings"])
    return f"## Variants\n\n{first}: {settings}\n\n{table(heads, rows)}"


def effects_table(record: Record) -> str:
    """Return what each value of a key does over the whole grid."""
    found: dict[str, dict[str, Any]] = {}
    for row in record["effects"]:
        found.setdefault(f"{row['key']}={row['value']}", {})[row["end"]] = row
    rows = [[name, *(change(ends.get(end)) for end in HEADS)] for name, ends in found.items()]
    main = record["main"]
    return "## Effect of each value over the grid\n\n" + table(
        ["value", f"final {main}", f"best {main}"], rows
    )


def pursuit_tables(record: Record, many: bool) -> list[str]:
    """Return the seed-variance table and the one of stability over time."""
    found = record["pursuit"]
    parts = []
    label = "run" if many else "seed"
    if found["seed_variance"]:
        phases = list(dict.fromkeys(p for row in found["seed_variance"] for p in row["phases"]))
        rows = [
            [
                str(row[label]),
                *(value(row[k]) for k in ("cold_start_escape", "s1_capture", "s1_gap")),
                str(row["rollbacks"]),
                *(value(row["phases"].get(phase)) for phase in phases[1:]),
            ]
            for row in found["seed_variance"]
        ]
        heads = [label, "cold-start escape", "S1 capture", "gap", "rollbacks"]
        heads += [f"{phase} capture" for phase in phases[1:]]
        parts.append("## Seed variance\n\n" + table(heads, rows))
    if not found["stability"]:
        return parts
    rows = [
        [
            str(row[label]),
            f"{row['inside']:.0%} of {row['evaluations']}" if row["evaluations"] else NONE,
            value(row["lowest"]),
            value(row["highest"]),
            short(row["first_outside"]) if row["first_outside"] is not None else NONE,
            value(row["final"]),
            {True: "yes", False: "no", None: NONE}[row["full_level"]],
            str(row["rollbacks"]),
            value(row["exploitability"]),
        ]
        for row in found["stability"]
    ]
    heads = [label, "inside [0.10, 0.90]", "lowest", "highest", "first outside at", "final capture"]
    heads += ["full level", "rollbacks", "exploitability"]
    judged = [row for row in found["stability"] if row["evaluations"]]
    held = sum(row["inside"] == 1.0 for row in judged)
    parts.append(
        f"## Stability after {short(record['stable_after'])} environment steps\n\n"
        f"{table(heads, rows)}\n\nNo evaluation outside in {held} of {len(judged)} runs."
    )
    return parts


def change(row: Mapping[str, Any] | None) -> str:
    """Return a paired difference with its interval and in how many pairs it is above."""
    if row is None:
        return NONE
    low, high = number(row["low"]), number(row["high"])
    ends = ""
    if low is not None and high is not None:
        ends = " " + brackets(low, high, "{:+.4g}".format)
    return f"{row['mean']:+.4g}{ends}, above in {row['above']} of {row['count']}"


def plural(count: int, word: str) -> str:
    """Return `1 seed` or `3 seeds`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def value(found: Any) -> str:
    """Return a number, or a dash for none."""
    plain = number(found)
    return NONE if plain is None else figure(plain)


def bracket(found: Mapping[str, Any]) -> str:
    """Return the interval of a spread; nothing for a single seed."""
    low, high = number(found["low"]), number(found["high"])
    return f" {brackets(low, high)}" if low is not None and high is not None else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
