"""`holdfast ckpt`: find, check, compare, export and mend checkpoints.

holdfast ckpt show first                       # a run, first@60, a checkpoint directory, or a .pt file
holdfast ckpt list first
holdfast ckpt find runs --like first --relaxed # what could be used instead, and why the rest could not
holdfast ckpt verify first                     # hashes, and that all numbers are finite
holdfast ckpt diff first@20 first@60
holdfast ckpt export first --out policy --program
holdfast ckpt migrate OLD --fix-steps --dry-run
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.cli.answer import answer
from holdfast.cli.settings import no_settings
from holdfast.errors import ConfigError, StorageError, nearest

ACTIONS = ("show", "list", "find", "verify", "diff", "export", "migrate")
PLACES = {"diff": 2, "find": 1, "migrate": 1}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("places", nargs="*", help="RUN, RUN@UPDATE, or a path; find: a directory")
    parser.add_argument("--update", type=int, default=None, help="checkpoint (default: the newest)")
    parser.add_argument("--params", action="store_true", help="show: every parameter")
    parser.add_argument("--like", default="", help="find: a run or checkpoint that it must fit")
    parser.add_argument("--world", default="", help="find: name of the world")
    parser.add_argument("--relaxed", action="store_true", help="find: settings may differ")
    parser.add_argument("--limit", type=int, default=10_000, help="find: most that are looked at")
    parser.add_argument("--part", default="", help="export: learner, learner.ROLE")
    parser.add_argument("--out", default="", help="export: directory (default: NAME-policy)")
    parser.add_argument(
        "--program", action="store_true", help="export: also a torch.export program"
    )
    parser.add_argument("--force", action="store_true", help="export: replace the directory")
    parser.add_argument("--fix-steps", action="store_true", help="migrate: compute missing steps")
    parser.add_argument("--dry-run", action="store_true", help="migrate: say it, write nothing")
    parser.add_argument("--no-backup", action="store_true", help="migrate: keep no .bak files")
    parser.add_argument("--json-only", action="store_true", help="migrate: leave .pt files alone")
    parser.add_argument(
        "--update-if-lower", action="store_true", help="migrate: also raise steps that are too low"
    )
    parser.add_argument(
        "--assume-rollout-steps",
        type=int,
        default=64,
        help="migrate: steps a rollout (default: 64)",
    )
    parser.epilog = __doc__


def run(args: argparse.Namespace, rest: list[str]) -> int:
    no_settings(rest)
    takes = PLACES.get(args.action, 1)
    if args.action == "find" and not args.places:
        args.places = [args.runs_dir]
    if len(args.places) != takes:
        example = next(row for row in (__doc__ or "").splitlines() if f"ckpt {args.action}" in row)
        raise ConfigError(
            f"'holdfast ckpt {args.action}' takes {takes} place{'s' if takes > 1 else ''}, and there "
            f"{'is 1' if len(args.places) == 1 else f'are {len(args.places)}'}. "
            f"Type for example: {example.partition('#')[0].strip()}"
        )
    if args.update is not None:
        if args.action not in ("show", "list", "verify", "export"):
            raise ConfigError(
                "--update belongs to show, list, verify and export. Write RUN@UPDATE."
            )
        args.places = [f"{place}@{args.update}" for place in args.places]
    return {
        "show": _show,
        "list": _list,
        "find": _find,
        "verify": _verify,
        "diff": _diff,
        "export": _export,
        "migrate": _migrate,
    }[args.action](args)


def _show(args: argparse.Namespace) -> int:
    from holdfast.store.weights import locate

    path = locate(args.places[0], Path(args.runs_dir))
    record = _record(path, Path(args.runs_dir))
    if args.params:
        record["params"] = _tensors(path, Path(args.runs_dir))
    if args.json:
        answer(record)
        return 0
    for key, value in record.items():
        if key == "files":
            for name, entry in value.items():
                print(f"{name:<19} {entry['bytes']:,} bytes, sha256 {entry['sha256'][:16]}...")
        elif key == "params":
            for row in value:
                shape = "x".join(map(str, row["shape"])) or "one"
                print(f"  {row['name']:<32} {shape:>14}  {row['dtype']:<8} norm {row['norm']:.6g}")
        elif key != "sha256":
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            print(f"{key:<19} {shown}")
    return 0


def _record(path: Path, runs_dir: Path) -> dict[str, Any]:
    """Return what there is to say about a checkpoint of either system, or about exported parameters."""
    from holdfast.store.checkpoint import MANIFEST
    from holdfast.store.original import open_original, summary
    from holdfast.store.weights import intact_at, read_source

    if (path / MANIFEST).is_file() or (path.is_dir() and path.name[1:].isdigit()):
        manifest = intact_at(path).manifest()
        return {"run": path.parent.parent.name, "checkpoint": path.name, **manifest}
    if path.is_dir() or path.suffix == ".safetensors":
        source = read_source(str(path), runs_dir)
        weights = source.learners["learner"]
        numbers = sum(int(value.size) for value in weights.parameters.values())
        return {
            "path": str(path),
            **source.counters,
            "tensors": len(weights.parameters),
            "parameters": numbers,
            "parameters_sha256": weights.sha256,
            "spec": weights.spec,
        }
    return summary(open_original(path))


def _tensors(path: Path, runs_dir: Path) -> list[dict[str, Any]]:
    import numpy as np

    from holdfast.store.weights import read_source

    return [
        {
            "name": f"{part}/{name}",
            "shape": list(value.shape),
            "dtype": str(value.dtype),
            "norm": float(np.linalg.norm(np.asarray(value, np.float64))),
            "finite": bool(np.isfinite(value).all()),
        }
        for part, weights in read_source(str(path), runs_dir).learners.items()
        for name, value in weights.parameters.items()
    ]


def _list(args: argparse.Namespace) -> int:
    rows = _rows(args)
    _print_rows(args, rows)
    return 0


def _verify(args: argparse.Namespace) -> int:
    from holdfast.store.weights import finite_problems, read_source
    from holdfast.view.progress import Progress

    with Progress("verifying", off=args.json) as progress:
        rows = _rows(args, progress.show)
        for k, row in enumerate(rows, 1):
            if not row["problems"] and row["kind"] == "holdfast":
                row["problems"] = finite_problems(read_source(row["path"], Path(args.runs_dir)))
            progress.show(k, len(rows), "numbers")
    _print_rows(args, rows)
    broken = [row for row in rows if row["problems"]]
    if broken or not rows:
        raise StorageError(
            f"{len(broken)} of {len(rows)} checkpoints of '{args.places[0]}' are broken. For intact ones "
            f"elsewhere, type: holdfast ckpt find {args.runs_dir}"
        )
    return 0


def _rows(
    args: argparse.Namespace, show: Callable[[int, int, str], None] = lambda *_: None
) -> list[dict[str, Any]]:
    """Return the checkpoints that a place names: all of a run, or the one that it is; `show` is told how far it is."""
    from holdfast.run import RunDirectory
    from holdfast.store.checkpoint import Checkpoints
    from holdfast.store.original import open_original, problems
    from holdfast.store.weights import checkpoint_at, locate

    place, runs_dir = args.places[0], Path(args.runs_dir)
    one = "@" in place or (Path(place) / "manifest.json").is_file()
    if Path(place).suffix in (".pt", ".json"):
        original = open_original(Path(place))
        found = [
            ("original", original.path.name, original.update, original.path, problems(original))
        ]
    else:
        if one:
            checkpoints = [checkpoint_at(locate(place, runs_dir))]
        else:
            run = Path(place) if (Path(place) / "run.toml").is_file() else None
            run = run or RunDirectory.open(runs_dir, place).path
            checkpoints = Checkpoints(run / "checkpoints").all()
        found = []
        for k, c in enumerate(checkpoints, 1):
            found.append(("holdfast", c.name, c.update, c.path, c.problems()))
            show(k, len(checkpoints), "hashes")
    names = ("kind", "checkpoint", "update", "path", "problems")
    return [dict(zip(names, (k, n, u, str(p), x), strict=True)) for k, n, u, p, x in found]


def _print_rows(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if args.json:
        answer({"run": args.places[0], "checkpoints": rows})
        return
    for row in rows:
        print(f"{row['checkpoint']}  {'; '.join(row['problems']) or 'intact'}")


def _find(args: argparse.Namespace) -> int:
    from holdfast.store.search import Wanted, find, wanted_like

    if args.limit < 1:
        raise ConfigError(f"--limit {args.limit} is not allowed. It takes 1 or more.")
    wanted = wanted_like(args.like, Path(args.runs_dir)) if args.like else Wanted()
    if args.world:
        wanted = Wanted(wanted.kind, {**wanted.facts, "world": {"world": args.world}})
    found = find(Path(args.places[0]), wanted, args.relaxed, args.limit)
    matches = sum(not c.reasons for c in found.candidates)
    if args.json:
        records = [c.record() for c in found.candidates]
        answer({"matches": matches, "cut": found.cut, "candidates": records})
    else:
        for c in found.candidates:
            mark = "no   " if c.reasons else "match"
            print(f"{mark}  update {c.update:>8}  steps {c.env_steps:>12,}  {c.path}")
            for reason in c.reasons:
                print(f"         {reason.kind}: {reason.text}")
        if found.cut:
            print(
                f"more than {args.limit} were there; look at more with --limit, or at a smaller tree"
            )
    if not found.candidates:
        raise StorageError(
            f"There is no checkpoint below {args.places[0]}. Give another directory."
        )
    if not matches:
        relax = "" if args.relaxed else ", or let settings differ with --relaxed"
        raise StorageError(
            f"None of {len(found.candidates)} checkpoints fits; the reasons stand with each. "
            f"Search elsewhere{relax}."
        )
    return 0


def _diff(args: argparse.Namespace) -> int:
    from holdfast.store.compare import compare_sources
    from holdfast.store.weights import read_source

    a, b = (read_source(place, Path(args.runs_dir)) for place in args.places)
    found = compare_sources(a, b)
    if args.json:
        answer(found.record())
        return 0
    print(f"a  {found.paths[0]}\nb  {found.paths[1]}")
    for title in ("counters", "settings", "specs", "versions"):
        changed = getattr(found, title)
        print(f"\n{title}{'' if changed else ': the same'}")
        for key, (x, y) in changed.items():
            print(f"  {key:<32} {x if x == y else f'{x} -> {y}'}")
    same = sum(tensor.same for tensor in found.tensors)
    print(f"\nparameters: {same} of {len(found.tensors)} the same")
    for tensor in found.tensors:
        if tensor.same:
            continue
        if tensor.max_change is None:
            print(f"  {tensor.name:<32} {_shape(tensor.shapes[0])} -> {_shape(tensor.shapes[1])}")
            continue
        share = "" if tensor.relative is None else f"  ({tensor.relative:.1%})"
        print(
            f"  {tensor.name:<32} norm {tensor.norms[0]:.5g} -> {tensor.norms[1]:.5g}  "
            f"most {tensor.max_change:.3g}{share}"
        )
    return 0


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else "x".join(map(str, shape)) or "one"


def _export(args: argparse.Namespace) -> int:
    from holdfast.store.export import export
    from holdfast.store.weights import read_source

    source = read_source(args.places[0], Path(args.runs_dir))
    name = Path(args.places[0].replace("@", "-")).stem
    target = Path(args.out or f"{name}-policy")
    if args.part and args.part not in source.learners:
        raise ConfigError(
            f"{source.path} holds no '{args.part}'.{nearest(args.part, source.learners)} "
            f"It holds: {', '.join(source.learners)}."
        )
    files = export(source, args.part or "learner", target, args.program, args.force)
    if args.json:
        answer({"source": str(source.path), "files": [str(file) for file in files]})
        return 0
    for file in files:
        print(f"{file.stat().st_size:>12,} bytes  {file}")
    return 0


def _migrate(args: argparse.Namespace) -> int:
    from holdfast.store.backfill import FixOptions, fix_steps, report

    if not args.fix_steps:
        raise ConfigError(
            "What shall be mended? Type: holdfast ckpt migrate "
            f"{args.places[0]} --fix-steps --dry-run, and without --dry-run to do it."
        )
    options = FixOptions(
        rollout_steps=args.assume_rollout_steps,
        update_if_lower=args.update_if_lower,
        dry_run=args.dry_run,
        backup=not args.no_backup,
        json_only=args.json_only,
    )
    root = Path(args.places[0])
    fixes = fix_steps(root, options)
    told = report(root, fixes, options)
    if args.out:
        from holdfast.store.files import write_json

        write_json(Path(args.out), told)
    if args.json:
        answer(told)
    else:
        for fix in fixes:
            more = "".join(f"  {text}" for text in (fix.pt and f".pt {fix.pt}", fix.note) if text)
            print(f"{fix.status:<24} {fix.path}{more}")
        counts = ", ".join(f"{count} {status}" for status, count in told["counts"].items())
        print(f"{len(fixes)} files: {counts or 'none begin with a3c_world'}")
    return 7 if "unsafe_checkpoint" in told["counts"] else 0
