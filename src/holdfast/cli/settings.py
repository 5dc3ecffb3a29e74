"""Words of the command line that are settings: `--learner.lr 1e-3`, `--fish=10`, `--neighbors`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

from holdfast.errors import ConfigError


def overrides(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return (key, text) pairs; `--key` alone means true and `--no-key` means false."""
    pairs: list[tuple[str, str]] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise ConfigError(
                f"'{word}' is not understood here. Settings are written --key value, for example: "
                "--updates 60"
            )
        key, equals, value = word[2:].partition("=")
        if not equals:
            if queue and not (queue[0].startswith("--") and len(queue[0]) > 2):
                value = queue.pop(0)
            elif key.startswith("no-"):
                key, value = key[3:], "false"
            else:
                value = "true"
        pairs.append((key, value))
    return pairs


def target_first(words: Sequence[str]) -> list[str]:
    """Return the words with the target in front where settings stand before it: `--updates 60 shoal`.

    It is then the first word that no flag takes.
    """
    found = list(words)
    taken = True
    for i, word in enumerate(found if found and found[0].startswith("--") else ()):
        flag = word.startswith("--")
        if not flag and not taken:
            return [word, *found[:i], *found[i + 1 :]]
        taken = flag and "=" not in word
    return found


def at_least(args: argparse.Namespace, **least: float) -> None:
    """Raise if one of these options was given a smaller number, or none at all: NaN or infinity."""
    for name, low in least.items():
        value = getattr(args, name)
        if value is not None and not low <= value < math.inf:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"{flag} {value:g} is not allowed. It takes {low:g} or more.")


def no_settings(words: Sequence[str]) -> None:
    """Raise if there are words left that nothing understands."""
    if words:
        raise ConfigError(f"'{words[0]}' is not understood here. Leave it out, or see --help.")
