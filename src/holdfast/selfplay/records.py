"""What self-play writes down: plain records, the same for those who write and those who read.

    runs/X/selfplay.jsonl    one `Evaluation` a line, made after every evaluation
    runs/X/selfplay.json     one `Summary`, made at the end

`SR_P` is the share of games that end in capture. Every rate stands with its 95 % interval.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

T = TypeVar("T")
LINES_FILE, SUMMARY_FILE = "selfplay.jsonl", "selfplay.json"
"""Names of the two files in a run directory."""
TIME_BINS = 20
"""Parts of the time limit in which captures are counted."""


@dataclass(frozen=True)
class Rate:
    """A measured number and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of the pair that trains."""

    update: int
    env_steps: int
    phase: str
    """Name of the phase that has just been played, such as `S3`."""
    role: str
    """Who trained since the last evaluation: `pursuer`, `evader` or `both`."""
    level: float
    """Level of the curriculum."""
    sr_p: float
    """Share of games that the pursuer won."""
    low: float
    high: float
    games: int
    ne_gap: float
    """|SR_P - SR_E|: distance from an even game, not from an equilibrium."""
    capture_time_mean: float | None = None
    """Seconds, over the games that ended in capture; None without one."""
    captures_by_time: tuple[int, ...] = ()
    """Captures in equal parts of the time limit."""
    time_limit_s: float = 0.0
    """What `captures_by_time` is a division of."""

    @property
    def rate(self) -> Rate:
        """SR_P with its interval."""
        return Rate(self.sr_p, self.low, self.high)


@dataclass(frozen=True)
class StartGrid:
    """Captures and games by start position; rows run along x, columns along y."""

    of: str
    """Whose position: `pursuer`, `evader`, or `relative` (the evader seen by the pursuer)."""
    x_edges: tuple[float, ...]
    y_edges: tuple[float, ...]
    captures: tuple[tuple[int, ...], ...]
    games: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CrossPlay:
    """Every pursuer against every evader; rows are pursuers."""

    pursuers: tuple[str, ...]
    evaders: tuple[str, ...]
    games: int
    """Games of each pair."""
    captures: tuple[tuple[int, ...], ...]
    low: tuple[tuple[float, ...], ...]
    high: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Elo:
    """Ratings of both roles, each with the mean 1200; 400 points are odds of ten to one."""

    pursuers: dict[str, Rate]
    evaders: dict[str, Rate]
    advantage: Rate
    """Points that the average pursuer has over the average evader."""
    misfit: float
    """Largest difference between a measured rate and the one that the ratings predict: what no rating
    can express, such as a cycle."""


@dataclass(frozen=True)
class Response:
    """A best response to one frozen side."""

    role: str
    """Who responded."""
    sr_p: Rate
    """SR_P of the games that it played against the frozen side."""
    gain: Rate
    """What it won over the incumbent on the same seeds, as a rate for its own role; never below 0."""
    env_steps: int
    """Training of the checkpoint that was chosen; 0 is the incumbent itself."""
    trained_env_steps: int
    """Training that was spent on it."""
    tried: int
    """Checkpoints among which it was chosen, the incumbent included."""


@dataclass(frozen=True)
class Exploitability:
    """How much either side could still gain against the other as it is."""

    update: int
    env_steps: int
    games: int
    incumbent: Rate
    """SR_P of the pair."""
    pursuer: Response
    evader: Response
    value_low: float
    """SR_P against the best evader found."""
    value_high: float
    """SR_P of the best pursuer found; the value of the game lies between the two if both are best."""
    exploitability: Rate
    """`value_high - value_low`: the gains of both sides together."""


@dataclass(frozen=True)
class Verdict:
    """Whether a pair is an equilibrium, as far as best responses can tell."""

    level: str
    """`L1` to `L4`, or `undecided` where an interval holds the threshold."""
    by_point: str
    """The same by the measured values alone, as the original decided."""
    epsilon: float
    words: str


@dataclass(frozen=True)
class Trend:
    """Slope of a straight line through all evaluations."""

    per_million: Rate | None
    """Change in a million environment steps; None with fewer than three evaluations."""
    words: Literal["falling", "rising", "flat"]


@dataclass(frozen=True)
class Analysis:
    """What the evaluations of a run show; rates are SR_P."""

    evaluations: int
    converged: bool
    final: Rate
    final_gap: Rate
    min_gap: float
    mean_gap: float
    gap_trend: Trend
    rate_trend: Trend
    gap_half_change: float
    """Mean gap of the second half minus that of the first: the original's trend."""
    swings: int
    """How often the winning side changed for certain."""
    period_env_steps: float | None
    """Steps of a whole swing there and back; None below two swings."""
    amplitude: float
    """Highest minus lowest SR_P of the second half."""
    excess_variance: float
    """Variance of SR_P beyond what so few games explain."""
    oscillation: Literal["settled", "drifts", "oscillates"]
    dominant: str
    """Who dominated for longest: `pursuer`, `evader`, or empty."""
    dominance: int
    """Evaluations in a row in which the whole interval was outside the band."""
    outside: tuple[int, ...]
    """Updates, after `after` steps, whose SR_P was outside the band."""
    band: tuple[float, float]
    after: int


@dataclass(frozen=True)
class Summary:
    """What a run of self-play came to; parts that were not measured are absent."""

    crossplay: CrossPlay | None = None
    elo: Elo | None = None
    exploitability: tuple[Exploitability, ...] = ()
    verdict: Verdict | None = None
    analysis: Analysis | None = None
    starts: tuple[StartGrid, ...] = ()


def to_plain(record: Any) -> dict[str, Any]:
    """Return a record as plain values for a JSON file; what is absent is left out."""
    found: dict[str, Any] = asdict(record)
    return {key: value for key, value in found.items() if value is not None}


def read(kind: type[T], fields: Mapping[str, Any]) -> T | None:
    """Return a record from plain values, or None if they do not describe one."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError:
        return None


def read_summary(fields: Mapping[str, Any]) -> Summary:
    """Return the summary of `selfplay.json`; parts that cannot be read are left out."""
    found = {}
    for name, kind in get_type_hints(Summary).items():
        with contextlib.suppress(msgspec.ValidationError):
            if name in fields:
                found[name] = msgspec.convert(fields[name], kind)
    return Summary(**found)


def read_evaluations(lines: Iterable[Mapping[str, Any]]) -> list[Evaluation]:
    """Return the evaluations of `selfplay.jsonl`; lines that are none are left out."""
    found = (read(Evaluation, line) for line in lines)
    return [record for record in found if record is not None]
