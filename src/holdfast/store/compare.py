"""Two checkpoints side by side: settings, counters, versions, and every parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.records import Array
from holdfast.store.settings import flat
from holdfast.store.weights import Source


@dataclass(frozen=True)
class TensorChange:
    """How one parameter differs; a side that lacks it has None."""

    name: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    norms: tuple[float | None, float | None]
    max_change: float | None
    """Largest absolute difference; None if the shapes differ or one side lacks it."""
    relative: float | None
    """Norm of the difference over the norm of the first."""

    @property
    def same(self) -> bool:
        """Whether both sides are equal, number for number."""
        return self.max_change == 0.0


@dataclass(frozen=True)
class Difference:
    """Everything that differs between two checkpoints."""

    paths: tuple[str, str]
    counters: dict[str, tuple[Any, Any]]
    settings: dict[str, tuple[Any, Any]]
    specs: dict[str, tuple[Any, Any]]
    versions: dict[str, tuple[Any, Any]]
    tensors: list[TensorChange]

    def record(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "a": self.paths[0],
            "b": self.paths[1],
            "same_parameters": all(t.same for t in self.tensors),
            "counters": self.counters,
            "settings": self.settings,
            "specs": self.specs,
            "versions": self.versions,
            "tensors": [{**vars(tensor), "same": tensor.same} for tensor in self.tensors],
        }


def compare_sources(a: Source, b: Source) -> Difference:
    """Return what differs between two places; counters are given even where they agree."""
    counters = {
        key: (a.counters.get(key), b.counters.get(key))
        for key in [*a.counters, *(k for k in b.counters if k not in a.counters)]
    }
    return Difference(
        (str(a.path), str(b.path)),
        counters,
        changes(flat(a.settings), flat(b.settings)),
        changes(_specs(a), _specs(b)),
        changes(a.versions, b.versions),
        tensor_changes(_named(a), _named(b)),
    )


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys whose values differ, with both values; a missing one is None."""
    return {
        key: (a.get(key), b.get(key))
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key)
    }


def tensor_changes(a: Mapping[str, Array], b: Mapping[str, Array]) -> list[TensorChange]:
    """Return how every parameter differs, by name."""
    rows = []
    for name in sorted(a.keys() | b.keys()):
        x = np.asarray(a[name], np.float64) if name in a else None
        y = np.asarray(b[name], np.float64) if name in b else None
        most = relative = None
        if x is not None and y is not None and x.shape == y.shape:
            gap = np.abs(x - y)
            most = float(gap.max(initial=0.0))
            size = float(np.linalg.norm(x))
            relative = float(np.linalg.norm(gap)) / size if size > 0 else None
        rows.append(
            TensorChange(
                name,
                (None if x is None else x.shape, None if y is None else y.shape),
                (None if x is None else _norm(x), None if y is None else _norm(y)),
                most,
                relative,
            )
        )
    return rows


def _norm(values: Array) -> float:
    return float(np.linalg.norm(values))


def _specs(source: Source) -> dict[str, Any]:
    return flat({part: weights.spec or {} for part, weights in source.learners.items()})


def _named(source: Source) -> dict[str, Array]:
    """Return the parameters of all learners, with the part's name where there are several."""
    several = len(source.learners) > 1
    found = {}
    for part, weights in source.learners.items():
        head = f"{part}/" if several else ""
        found.update({head + name: value for name, value in weights.parameters.items()})
        for name in ("mean", "var") if weights.norm is not None else ():
            found[f"{head}norm.{name}"] = (weights.norm or {})[name]
    return found
