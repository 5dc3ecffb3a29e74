"""Which checkpoint is the best: a rule over the metrics of a probe.

avg_final                                  the highest avg_final
-ed100                                     the lowest ed100
min_final>=0.9, ed100<=0.02, avg_final     first those that keep most bounds, then the highest avg_final
capture_rate, -length_mean                 the second decides where the first is equal
balance>=0.5                               those that keep the bound

Of probes that are equal by the rule the newest is the best.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import ConfigError

BOUND = re.compile(r"(\w[\w/-]*)\s*(>=|<=)\s*(\S+)")
ORDER = re.compile(r"(-?)\s*(\w[\w/-]*)")


@dataclass(frozen=True)
class Rule:
    """Bounds to keep, then metrics to compare in order."""

    bounds: tuple[tuple[str, str, float], ...]
    orders: tuple[tuple[str, float], ...]
    """Name and sign: 1 where higher is better."""

    @property
    def main(self) -> str:
        """The first metric that is compared, or that has a bound."""
        return self.orders[0][0] if self.orders else self.bounds[0][0]

    @property
    def sign(self) -> float:
        """1 where the main metric shall be high, -1 where it shall be low."""
        if self.orders:
            return self.orders[0][1]
        return 1.0 if self.bounds[0][1] == ">=" else -1.0

    @property
    def names(self) -> list[str]:
        """Every metric that the rule names."""
        return [bound[0] for bound in self.bounds] + [order[0] for order in self.orders]

    def key(self, metrics: Mapping[str, float]) -> list[float]:
        """Return what is compared, larger being better: bounds kept, then the metrics with their signs.

        What a probe could not measure, such as the time to a capture where there was none, keeps no bound and is worse than
        any number.
        """
        kept = sum(
            name in metrics and (metrics[name] >= limit if sign == ">=" else metrics[name] <= limit)
            for name, sign, limit in self.bounds
        )
        orders = (sign * metrics[n] if n in metrics else -math.inf for n, sign in self.orders)
        return [float(kept), *orders]


def parse_rule(text: str) -> Rule:
    """Read `probe.best_by`."""
    bounds, orders = [], []
    for item in filter(None, (part.strip() for part in text.split(","))):
        if bound := BOUND.fullmatch(item):
            try:
                bounds.append((bound[1], bound[2], float(bound[3])))
                continue
            except ValueError:
                pass
        elif order := ORDER.fullmatch(item):
            orders.append((order[2], -1.0 if order[1] else 1.0))
            continue
        raise ConfigError(
            f"probe.best_by: '{item}' is no rule. Write a metric, '-metric', 'metric>=number' or 'metric<=number', "
            "joined by commas, for example 'min_final>=0.9, avg_final'."
        )
    if not orders and not bounds:
        raise ConfigError(
            f"probe.best_by = '{text}' names nothing. Write a metric, for example 'avg_final'."
        )
    return Rule(tuple(bounds), tuple(orders))
