"""What changes during a run is `Stateful` and registered by name.

The registry is the table of contents of a checkpoint: what is not registered is not saved, and a
checkpoint that lacks a registered name is refused.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from holdfast.errors import StorageError


@runtime_checkable
class Stateful(Protocol):
    """An object whose whole state is a tree of arrays, numbers, strings, lists and dicts."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that `load_state_dict` needs to go on as if nothing had happened."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the object that returned `state`."""
        ...


class Registry:
    """Stateful objects by name, saved and restored together."""

    def __init__(self) -> None:
        self._parts: dict[str, Stateful] = {}

    def register(self, name: str, part: Stateful) -> None:
        """Add `part`, or replace the part of that name (a world that was rebuilt)."""
        if "/" in name:
            raise ValueError(f"a part's name has no '/': {name!r}")
        self._parts[name] = part

    def names(self) -> list[str]:
        """Return the registered names in order of registration."""
        return list(self._parts)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every part by name."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore every part; a checkpoint with missing or unknown parts is refused whole."""
        missing = sorted(set(self._parts) - set(state))
        unknown = sorted(set(state) - set(self._parts))
        if missing or unknown:
            raise StorageError(
                "The checkpoint does not fit this run: "
                f"missing parts {missing or 'none'}, unknown parts {unknown or 'none'}. "
                "A checkpoint resumes only with the settings it was made with; to start a new run "
                "from its weights, use --init-from."
            )
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
