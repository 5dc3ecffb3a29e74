"""What a verb answers with `--json`: JSON on standard output, and nothing else there.

Environments print what they like, and packages greet when they are imported. While a verb with `--json` runs, all that
goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_out: TextIO | None = None
"""Where answers go while standard output is kept for them."""


def answer(record: Any, indent: int | None = None) -> None:
    """Print a record as JSON; numbers that are not finite become null."""
    from holdfast.store.journal import plain

    text = json.dumps(plain(record), indent=indent, default=str, allow_nan=False)
    print(text, file=_out or sys.stdout, flush=True)


@contextlib.contextmanager
def answers_alone() -> Iterator[None]:
    """Keep standard output for `answer`; whatever else is printed goes to standard error."""
    global _out
    usual, kept = sys.stdout, -1
    with contextlib.suppress(OSError, ValueError):  # no file, or a closed one: nothing to be kept
        if usual.fileno() == 1:
            usual.flush()
            kept = os.dup(1)
            os.dup2(2, 1)
    _out = stream = usual if kept < 0 else open(os.dup(kept), "w", encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout, _out = usual, None
        if kept >= 0:
            with contextlib.suppress(OSError):  # the reader may have gone
                stream.close()
            usual.flush()
            os.dup2(kept, 1)
            os.close(kept)
