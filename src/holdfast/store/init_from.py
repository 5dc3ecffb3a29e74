"""The first parameters of a new run, taken from another one: `--init-from first --init-scope policy`.

This is not resuming: counters, optimiser, schedules and worlds begin anew, and only parameters (with the
statistics that normalise observations) are taken over. In self-play every role takes its own; `pursuer=first@60,
evader=second` gives each a source, and one that is not named begins anew.

    scope    trunk    the hidden layers and the memory
             policy   these without the value's own, and the action head
             all      everything
    mode     strict   every parameter of the scope must be there in the same shape, and no other
             shape    those of equal shape are taken; at least 95 % of the scope's numbers must be
             report   nothing is taken; only the table is made

Names are compared without `_orig_mod.` and `module.`, which torch's wrappers put before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from holdfast.errors import StorageError
from holdfast.records import Array
from holdfast.store.original import unwrapped
from holdfast.store.recorder import Recorder
from holdfast.store.weights import Weights, read_source

Scope = Literal["trunk", "policy", "all"]
Mode = Literal["strict", "shape", "report"]
SHARE = 0.95
HEADS = (
    *("pi_out.", "vf_out.", "log_std", "log_alpha"),
    *("q1_out.", "q2_out.", "q1_target_out.", "q2_target_out."),
)
CRITICS = ("vf.", "vf_out.", "q1", "q2", "q_trunk", "log_alpha")
"""What has no part in how the policy plays."""
SHAPING = (
    *("trunk", "activation", "picture", "pixel", "stack", "memory", "memory_window"),
    *("sensors", "encoder", "metres"),
)
"""What must agree in the specs although the shapes of parameters may not show it."""
ACTING = ("action", "nvec", "low", "high")
"""The same, when the action head is taken over."""


@dataclass(frozen=True)
class Row:
    """What became of one parameter."""

    name: str
    shape: tuple[int, ...] | None
    """In the new network; None if it has no such parameter."""
    theirs: tuple[int, ...] | None
    """In the source; None if it has none."""
    loaded: bool
    why: str = ""

    @property
    def size(self) -> int:
        """How many numbers it has in the new network."""
        return int(np.prod(self.shape)) if self.shape is not None else 0


class Learning(Protocol):
    """What `initialise` needs of a learner."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the learner of that state."""
        ...


def initialise(
    learners: Mapping[str, Learning],
    recorder: Recorder,
    source: str,
    runs_dir: Path,
    scope: Scope = "all",
    mode: Mode = "strict",
    say: Callable[[str], None] = print,
) -> None:
    """Give learners (by part) the parameters of a source, and write down in the journal what was taken."""
    roles = [part.removeprefix("learner.") for part in learners]
    named = by_role(source)
    if not named.keys() <= set(roles):  # an equals sign in the name of a run
        named = dict.fromkeys(roles, source)
    places = {text: read_source(text, runs_dir) for text in dict.fromkeys(named.values())}
    for role, (part, learner) in zip(roles, learners.items(), strict=True):
        if role not in named:
            continue
        place = places[named[role]]
        weights = place.learner(part)
        state, rows = init_parameters(learner.state_dict(), weights, scope, mode)
        learner.load_state_dict(state)
        taken = [row for row in rows if row.loaded]
        say(
            f"{part}: {len(taken)} of {sum(row.shape is not None for row in rows)} parameters from "
            f"{place.path} (scope {scope}, {mode})"
        )
        for row in rows:
            if not row.loaded and row.why != outside(scope):
                say(f"  not taken: {row.name}: {row.why}")
        recorder.journal(
            "init",
            0,
            part=part,
            source=str(place.path),
            source_update=place.counters.get("update"),
            parameters_sha256=weights.sha256,
            scope=scope,
            mode=mode,
            loaded=[row.name for row in taken],
            skipped={row.name: row.why for row in rows if not row.loaded},
        )


def by_role(source: str) -> dict[str, str]:
    """Return the source of every role that `role=source,...` names; one for all has the role ''."""
    pieces = [piece.strip().partition("=") for piece in source.split(",")]
    if not all(equals for _, equals, _ in pieces):
        return {"": source}
    return {role: place for role, _, place in pieces}


def init_parameters(
    learner_state: dict[str, Any], source: Weights, scope: Scope = "all", mode: Mode = "strict"
) -> tuple[dict[str, Any], list[Row]]:
    """Return the state of a new learner with the source's parameters in it, and what became of each.

    The optimiser and everything else of `learner_state` stay as they are.
    """
    mine: dict[str, Array] = learner_state["parameters"]
    theirs = unwrapped(source.parameters)
    rows = _rows(mine, theirs, scope)
    differ = _differences(learner_state.get("spec"), source.spec, scope)
    norm_row, norm = _norm(learner_state.get("norm"), source.norm)
    rows += [norm_row] if norm_row is not None else []
    if mode == "report":
        return learner_state, [
            Row(r.name, r.shape, r.theirs, False, r.why or "report") for r in rows
        ]
    wanted = [row for row in rows if row.why != outside(scope)]
    if mode == "strict" and (differ or any(not row.loaded for row in wanted)):
        raise StorageError(
            "The parameters do not fit the network, and nothing was taken:\n"
            + "\n".join(
                [*(f"  {text}" for text in differ), *table([r for r in wanted if not r.loaded])]
            )
            + "\nMake the networks alike (--hidden, --activation, --net, --normalise-obs), take a smaller "
            "scope (--init-scope trunk), or what fits, from 95 % on (--init-mode shape)."
        )
    numbers = sum(row.size for row in wanted if row.name in mine)
    taken = sum(row.size for row in wanted if row.loaded and row.name in mine)
    if taken < SHARE * numbers or numbers == 0:
        raise StorageError(
            f"Only {taken:,} of {numbers:,} numbers fit ({taken / max(numbers, 1):.0%}), and at least "
            f"{SHARE:.0%} must, so nothing was taken:\n"
            + "\n".join(table(wanted))
            + "\nTake a source with the same network, or a smaller scope (--init-scope trunk)."
        )
    changed = {
        row.name: np.asarray(theirs[row.name], mine[row.name].dtype).copy()
        for row in rows
        if row.loaded and row.name in mine
    }
    state = {**learner_state, "parameters": {**mine, **changed}}
    if norm is not None:
        state["norm"] = norm
    return state, rows


def in_scope(name: str, scope: Scope) -> bool:
    """Return whether a parameter belongs to a scope."""
    if scope == "trunk":
        return not name.startswith(HEADS)
    return scope == "all" or not name.startswith(CRITICS)


def outside(scope: Scope) -> str:
    """Return why a parameter that does not belong to the scope is skipped."""
    return f"outside the scope {scope}"


def table(rows: Sequence[Row]) -> list[str]:
    """Return one line a parameter: taken or not, shapes, why."""
    wide = max((len(row.name) for row in rows), default=0)
    return [
        f"  {'taken' if row.loaded else '-':<5} {row.name:<{wide}}  "
        f"{_shape(row.shape):>12}  from {_shape(row.theirs):<12}  {row.why}".rstrip()
        for row in rows
    ]


def _rows(mine: Mapping[str, Array], theirs: Mapping[str, Array], scope: Scope) -> list[Row]:
    rows = []
    for name in sorted(mine.keys() | theirs.keys()):
        a = tuple(mine[name].shape) if name in mine else None
        b = tuple(theirs[name].shape) if name in theirs else None
        why = ""
        if not in_scope(name, scope):
            why = outside(scope)
        elif b is None:
            why = "the source has none"
        elif a is None:
            why = "the network has none"
        elif a != b:
            why = "the shapes differ"
        elif not np.isfinite(theirs[name]).all():
            why = "the source's is not finite"
        rows.append(Row(name, a, b, not why, why))
    return rows


def _differences(mine: Any, theirs: Any, scope: Scope) -> list[str]:
    """Return what the specs say differently although the shapes may agree."""
    if not isinstance(mine, Mapping) or not isinstance(theirs, Mapping):
        return []
    names = SHAPING if scope == "trunk" else SHAPING + ACTING
    return [
        f"{name}: {_plain(mine.get(name))} here, {_plain(theirs[name])} in the source"
        for name in names
        if name in theirs and name in mine and _plain(mine[name]) != _plain(theirs[name])
    ]


def _norm(mine: Any, theirs: Any) -> tuple[Row | None, dict[str, Any] | None]:
    if mine is None and theirs is None:
        return None, None
    a = None if mine is None else tuple(mine["mean"].shape)
    b = None if theirs is None else tuple(theirs["mean"].shape)
    if theirs is None:
        # An untouched normaliser changes nothing at first, as in the source.
        return Row(
            "norm", a, b, True, "the source does not normalise; it begins without effect"
        ), None
    if mine is None:
        return Row("norm", a, b, False, "the source normalises observations: --normalise-obs"), None
    if a != b:
        return Row("norm", a, b, False, "the shapes differ"), None
    return Row("norm", a, b, True), {
        k: np.copy(v) if k != "count" else v for k, v in theirs.items()
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else "x".join(map(str, shape)) or "one"
