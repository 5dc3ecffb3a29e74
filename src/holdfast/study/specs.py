"""What the words of `holdfast study` ask for: seeds, variants, and the space of a search.

--seeds 1-8            1, 2, ... 8           --seeds 1,3,10-12
--vary selfplay.history=0.3,0,0.6            the first value is the base
--vary learner.hidden=64,64;128,128          values that hold commas are parted by ';'
--space learner.lr=log:1e-4:1e-2             also float:LOW:HIGH, int:LOW:HIGH, choice:a,b,c
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.config import SHORT, Config, leaves, resolve
from holdfast.errors import ConfigError
from holdfast.store.init_from import by_role

Pair = tuple[str, str]
BASE = "base"
MOST_SEEDS = 1000
RESERVED = {"run.seed": "--seeds 1-8", "run.name": "--name NAME"}
"""Settings that belong to the study, and what to write instead."""
LONGEST = 80
"""Characters of a run's name before the seed."""


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that `1-8` or `1,3,10-12` names."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        if not match:
            raise ConfigError(
                f"--seeds {text}: '{part.strip()}' is no seed and no range. Write for example: --seeds 1-8"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ConfigError(
                f"--seeds {text}: {part.strip()} runs backwards. Write: --seeds {last}-{first}"
            )
        if last - first >= MOST_SEEDS or len(seeds) >= MOST_SEEDS:
            raise ConfigError(f"--seeds {text}: more than {MOST_SEEDS} seeds.")
        seeds += range(first, last + 1)
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise ConfigError(f"--seeds {text}: seed {twice[0]} is named twice. Name each seed once.")
    return seeds


def dotted_key(key: str) -> str:
    """Return a setting's key as it stands in a config, without knowing its section."""
    plain = key.replace("-", "_")
    return {"seed": "run.seed", "name": "run.name"}.get(plain, SHORT.get(plain, plain))


def check_settings(pairs: Sequence[Pair]) -> None:
    """Refuse settings that the study itself gives to its runs."""
    for key, _ in pairs:
        instead = RESERVED.get(dotted_key(key))
        if instead:
            raise ConfigError(
                f"--{key} is given to each run by the study. Leave it out, or write: {instead}"
            )


@dataclass(frozen=True)
class Vary:
    """One key and its values; the first is the base's."""

    key: str
    values: tuple[str, ...]


def parse_vary(text: str) -> Vary:
    """Return the key and values of `key=v1,v2,...`."""
    key, equals, rest = text.partition("=")
    values = _values(rest)
    if not key or not equals or len(values) < 2 or "" in values:
        raise ConfigError(
            f"--vary {text}: write a key and two or more values, the base's first, for example: "
            "--vary selfplay.history=0.3,0,0.6 (values that hold commas are parted by ';')"
        )
    check_settings([(key, "")])
    return Vary(key.replace("-", "_"), values)


def _values(text: str) -> tuple[str, ...]:
    return tuple(value.strip() for value in text.split(";" if ";" in text else ","))


@dataclass(frozen=True)
class Variant:
    """Settings that make a variant of the base."""

    name: str
    """How tables call it: `base`, or what differs from the base."""
    slug: str
    """How the names of its runs begin; empty when nothing is varied."""
    settings: tuple[Pair, ...]
    """Every varied key with its value."""

    def run(self, seed: int) -> str:
        """Return the name of its run with this seed."""
        return f"{self.slug}-s{seed}" if self.slug else f"s{seed}"


def slug_of(pairs: Sequence[Pair]) -> str:
    """Return settings as the beginning of a run's name; different settings give different names."""
    text = "_".join(f"{key}-{value}" for key, value in pairs)
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text)
    plain = re.sub(r"\.\.+", ".", plain).lstrip("._-")[:LONGEST]
    simple = all(re.fullmatch(r"[A-Za-z0-9.-]*", value) for _, value in pairs)
    if simple and plain == text:
        return plain
    return f"{plain}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def make_variants(varies: Sequence[Vary], grid: bool) -> list[Variant]:
    """Return the variants, the base first: one key at a time, or the full product."""
    keys = [vary.key for vary in varies]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise ConfigError(
            f"--vary {twice[0]} is given twice. Write all values in one: --vary {twice[0]}=a,b,c"
        )
    first = [vary.values[0] for vary in varies]
    if grid:
        chosen = [list(values) for values in itertools.product(*(v.values for v in varies))]
    else:
        chosen = [first]
        for k, vary in enumerate(varies):
            chosen += [[*first[:k], value, *first[k + 1 :]] for value in vary.values[1:]]
    variants = []
    for values in chosen:
        pairs = tuple(zip(keys, values, strict=True))
        unlike = [pair for pair, base in zip(pairs, first, strict=True) if pair[1] != base]
        name = ", ".join(f"{key}={value}" for key, value in unlike) or BASE
        slug = slug_of(unlike) if unlike else BASE
        variants.append(Variant(name, slug if varies else "", pairs))
    return variants


def check_variants(target: str, settings: Sequence[Pair], variants: Sequence[Variant]) -> None:
    """Refuse variants that are no valid config, or the same as another."""
    seen: list[tuple[str, dict[str, object]]] = []
    for variant in variants:
        values = leaves(resolve(target, [*settings, *variant.settings]))
        for name, other in seen:
            if values == other:
                raise ConfigError(
                    f"The variants '{name}' and '{variant.name}' are the same run. "
                    "Give --vary values that differ."
                )
        seen.append((variant.name, values))


@dataclass(frozen=True)
class Dimension:
    """One key of a search and what it may be."""

    key: str
    kind: str
    """log, float, int or choice."""
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The specification, as it is typed."""
        if self.kind == "choice":
            parted = ";" if any("," in choice for choice in self.choices) else ","
            return f"{self.key}=choice:{parted.join(self.choices)}"
        return f"{self.key}={self.kind}:{self.low:g}:{self.high:g}"

    def edges(self) -> tuple[str, ...]:
        """Return values that must be valid if all are: both ends, or every choice."""
        if self.kind == "choice":
            return self.choices
        return tuple(number_text(self.kind, end) for end in (self.low, self.high))


def number_text(kind: str, value: float) -> str:
    """Return a number of a search as a setting: exact, and whole for `int`."""
    return str(int(value)) if kind == "int" else repr(float(value))


def parse_space(text: str) -> Dimension:
    """Return the dimension that `key=kind:...` describes."""
    key, _, law = text.partition("=")
    kind, _, rest = law.partition(":")
    if not key or kind not in ("log", "float", "int", "choice"):
        raise ConfigError(
            f"--space {text}: write KEY=log:LOW:HIGH, KEY=float:LOW:HIGH, KEY=int:LOW:HIGH or KEY=choice:A,B,C, "
            "for example: --space learner.lr=log:1e-4:1e-2"
        )
    check_settings([(key, "")])
    if kind == "choice":
        choices = _values(rest)
        if len(choices) < 2 or "" in choices or len(set(choices)) < len(choices):
            raise ConfigError(
                f"--space {text}: choice takes two or more different values, for example: "
                f"--space {key}=choice:64,128"
            )
        return Dimension(key.replace("-", "_"), kind, choices=choices)
    try:
        low, high = (float(end) for end in rest.split(":"))
    except ValueError:
        low = high = math.nan
    whole = kind != "int" or (low.is_integer() and high.is_integer())
    if not (math.isfinite(low) and math.isfinite(high) and low < high and whole):
        what = "whole numbers" if kind == "int" else "numbers"
        raise ConfigError(
            f"--space {text}: {kind} takes two {what}, the lower first, for example: "
            f"--space {key}={kind}:{'1:8' if kind == 'int' else '1e-4:1e-2'}"
        )
    if kind == "log" and low <= 0:
        raise ConfigError(
            f"--space {text}: a logarithmic range begins above 0, for example: --space {key}=log:1e-4:1e-2"
        )
    return Dimension(key.replace("-", "_"), kind, low, high)


def check_space(target: str, settings: Sequence[Pair], space: Sequence[Dimension]) -> None:
    """Refuse a space that names a key twice or leaves what the config allows."""
    keys = [dotted_key(dimension.key) for dimension in space]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise ConfigError(f"--space {twice[0]} is given twice. Give each key one range.")
    for dimension in space:
        for value in dimension.edges():
            try:
                resolve(target, [*settings, (dimension.key, value)])
            except ConfigError as error:
                raise ConfigError(f"--space {dimension.text}: {error}") from None


@dataclass(frozen=True)
class Member:
    """One run of a study."""

    run: str
    variant: str
    seed: int
    settings: tuple[Pair, ...]
    """Everything that is laid over the target, `run.name`, `run.seed` and `learner.threads` included."""
    config: Config


def make_member(
    target: str,
    settings: Sequence[Pair],
    run: str,
    variant: str,
    seed: int,
    threads: int,
    runs_dir: Path,
) -> Member:
    """Return the run with its resolved config; runs that it names are looked up in `runs_dir`."""
    own = [("run.name", run), ("run.seed", str(seed)), ("learner.threads", str(threads))]
    pairs = [*settings, *own]
    config = resolve(target, pairs)
    named = named_runs(config, runs_dir)
    return Member(run, variant, seed, (*pairs, *named), resolve(target, [*pairs, *named]))


def named_runs(config: Config, runs_dir: Path) -> list[Pair]:
    """Return the settings that name a run of `runs_dir`, with its path instead of its name.

    The runs of a study live one directory deeper, where such a name would not be found.
    """

    def whole(name: str) -> str:
        name, at, update = name.partition("@")
        there = bool(name) and not Path(name).exists() and (runs_dir / name / "run.toml").is_file()
        return f"{(runs_dir / name).resolve() if there else name}{at}{update}"

    found = []
    for key, value in leaves(config).items():
        path = value
        if key == "run.init_from":
            path = whole(value)
            if path == value:
                path = ",".join(f"{r}={whole(p)}" if r else p for r, p in by_role(value).items())
        elif key in ("selfplay.pursuer", "selfplay.evader") and value.startswith("run:"):
            path = f"run:{whole(value[4:])}"
        if path != value:
            found.append((key, path))
    return found
