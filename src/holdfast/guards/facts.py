"""Names that only a running world can confirm: facts of episodes, and signals. A wrong one is said once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import nearest
from holdfast.guards.guard import number
from holdfast.records import Cause, Decision

EPISODES = 50
"""Episodes without a fact after which it is said."""
START = ("game", "seed", "snapshot", "label", "type", "origin", "id", "ended")
"""Entries of an ended episode that are no facts."""


class Wanted:
    """Counts in vain for a name that a guard reads, until it is seen or its absence was said."""

    def __init__(self, key: str, name: str, patience: int = EPISODES) -> None:
        """Wait for `name`, which the setting `key` names, `patience` times."""
        self.key, self.name, self.patience = key, name, patience
        self.missed = 0
        """How often it was not there; -1 once it was, or once it was said."""

    def look(self, found: Iterable[Mapping[str, Any]], what: str) -> list[Decision]:
        """Look for the name in each of `found`; return the warning when it was missed often enough."""
        for entry in found:
            if self.missed < 0:
                break
            if number(entry, self.name) is not None:
                self.missed = -1
                break
            self.missed += 1
            if self.missed >= self.patience:
                return [self._warning(entry, what)]
        return []

    def _warning(self, entry: Mapping[str, Any], what: str) -> Decision:
        missed, self.missed = self.missed, -1
        known = sorted(k for k in entry if k not in START and number(entry, k) is not None)
        message = (
            f"{self.key} = '{self.name}' is in none of {missed} {what}, so nothing follows from it."
            f"{nearest(self.name, known)} There are: {', '.join(known) or 'none'}. A new run can name another."
        )
        cause = Cause(self.key, self.name, self.patience, missed)
        return Decision("warn", cause, name="unknown_name", message=message)


def state_of(wanted: Sequence[Wanted]) -> list[int]:
    """Return what `restore` takes."""
    return [one.missed for one in wanted]


def restore(wanted: Sequence[Wanted], state: Sequence[int] | None) -> None:
    """Go on counting; a state without it begins anew."""
    for one, missed in zip(wanted, state or [0] * len(wanted), strict=True):
        one.missed = int(missed)
