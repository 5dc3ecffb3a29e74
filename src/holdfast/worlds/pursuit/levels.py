"""The values that may be turned while the world runs, a row of them for each level."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.errors import ConfigError
from holdfast.records import Array
from holdfast.worlds.pursuit.layout import PARAMS, VALUES, fill_params, read_value
from holdfast.worlds.pursuit.options import INTEGERS, OPTIONAL, PursuitOptions


class Levels:
    """Parameters of every level: checked as options, held as the records that the kernels read."""

    def __init__(self, options: PursuitOptions) -> None:
        """Begin with level 0 alone."""
        # Rows for obstacles and the action's speed bound are sizes of the world: no value changes them.
        sizes: dict[str, Any] = {"obstacle_capacity": options.capacity}
        if not options.fixed_speed:
            sizes["action_v_max"] = options.speed_bound
        self._options = [dataclasses.replace(options, **sizes)]
        self.params: Array = np.zeros(1, PARAMS)
        """`[levels]` of dtype `layout.PARAMS`."""
        fill_params(self.params[0], self._options[0])

    def grow(self, count: int) -> None:
        """Have at least `count` levels; new ones begin as copies of level 0."""
        while len(self._options) < count:
            self._options.append(self._options[0])
            self.params = np.concatenate([self.params, self.params[:1]])

    def shrink(self) -> None:
        """Have level 0 alone."""
        self._options = self._options[:1]
        self.params = self.params[:1].copy()

    @property
    def mixed(self) -> bool:
        """Whether there is more than one level."""
        return len(self._options) > 1

    def turn(self, values: Mapping[str, float], level: int | None) -> None:
        """Set values of all levels or of one; nothing changes if any of them is not allowed."""
        changes = {name: _as_option(name, value) for name, value in values.items()}
        rows = range(len(self._options)) if level is None else [level]
        new = {k: self._options[k].turned(changes) for k in rows}
        for k, options in new.items():
            self._options[k] = options
            fill_params(self.params[k], options)

    def read(self, name: str, level: int = 0) -> float:
        """Return what the kernels use for `name`; -1 where it is unset."""
        return read_value(self.params[level], name)

    def table(self) -> Array:
        """Return all values, `[levels, len(VALUES)]`."""
        return np.array([[read_value(row, name) for name in VALUES] for row in self.params])

    def restore(self, table: Array) -> None:
        """Go on with the values of `table`; levels that it lacks are dropped."""
        if table.shape[1] != len(VALUES):
            raise ConfigError(
                f"The state holds {table.shape[1]} values; this version has {len(VALUES)}."
            )
        self._options = self._options[: len(table)]
        self.params = self.params[: len(table)].copy()
        self.grow(len(table))
        for level, row in enumerate(table.tolist()):
            self.turn(dict(zip(VALUES, row, strict=True)), level)


def _as_option(name: str, value: float) -> float | int | None:
    if name in OPTIONAL and value == -1:
        return None
    if name in INTEGERS and float(value).is_integer():
        return int(value)
    return float(value)
