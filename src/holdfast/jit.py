"""One decorator for every compiled kernel, so that they all cache, release the GIL and announce themselves.

    @kernel
    def step(...): ...

Kernels take plain arrays and a range `[lo, hi)` of games or rows; threads are Python threads
that call the same kernel on disjoint ranges (`parallel.py`), never `prange`: so results do not
depend on the thread count, and no threading layer has to be installed.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(
    *, fastmath: bool | set[str] = ..., inline: bool = ..., signature: Any = ...
) -> Callable[[F], F]: ...


def kernel(
    function: F | None = None,
    *,
    fastmath: bool | set[str] = False,
    inline: bool = False,
    signature: Any = None,
) -> F | Callable[[F], F]:
    """Return `function` compiled on first use, cached on disk, without the GIL.

    `fastmath` is off unless asked for: conformance and bit-exact resume come first.
    `inline` inlines at the Numba level (use it for tiny functions in hot loops only).
    """
    options: dict[str, Any] = {
        "nogil": True,
        "cache": True,
        "error_model": "numpy",
        "fastmath": fastmath,
        "inline": "always" if inline else "never",
    }
    args = () if signature is None else (signature,)

    def decorate(f: F) -> F:
        compiled: F = numba.njit(*args, **options)(f)
        # Numba checks only the file in which a compiled function stands, and would go on running old code of
        # the kernels that it calls. This is private to Numba; if it moves, it must fail loudly.
        index: Any = compiled._cache  # type: ignore[attr-defined]
        index._cache_file._source_stamp = source_stamp(Path(f.__code__.co_filename).parent)
        return compiled

    return decorate if function is None else decorate(function)


@cache
def source_stamp(directory: Path) -> str:
    """Return a hash of all kernel sources of a directory: an edit to one recompiles all of them."""
    digest = hashlib.blake2b(digest_size=16)
    for path in [Path(__file__), *sorted(directory.glob("*.py"))]:
        source = path.read_bytes()
        if b"holdfast.jit" in source:
            digest.update(source)
    return digest.hexdigest()


class Announcer(event.Listener):
    """Says once that kernels are being compiled and counts the time that it takes.

    A start that finds every kernel in the disk cache compiles nothing and says nothing.
    """

    def __init__(self, patience_s: float = 1.0) -> None:
        self.seconds = 0.0
        self.kernels = 0
        self._patience_s = patience_s
        self._local = threading.local()
        self._notice: threading.Timer | None = None
        self._said = False
        self._told = (0, 0.0)

    def on_start(self, event: Any) -> None:
        depth = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        if depth == 0:
            self._local.began = time.perf_counter()
            if not self._said and self._notice is None:
                self._notice = threading.Timer(max(0.0, self._patience_s - self.seconds), self._say)
                self._notice.daemon = True
                self._notice.start()

    def on_end(self, event: Any) -> None:
        self._local.depth -= 1
        if self._local.depth == 0:
            self.seconds += time.perf_counter() - self._local.began
            self.kernels += 1
            if self._notice is not None:
                self._notice.cancel()
                self._notice = None

    def untold(self) -> tuple[int, float]:
        """Return how many kernels were compiled since this was last asked, and the seconds that it took."""
        kernels, seconds = self._told
        self._told = (self.kernels, self.seconds)
        return self.kernels - kernels, self.seconds - seconds

    def _say(self) -> None:
        self._said = True
        print(
            "holdfast: compiling kernels; the first start takes a minute, later ones load them",
            file=sys.stderr,
            flush=True,
        )


compiling = Announcer()
"""What this process has compiled; `compiling.seconds` stays zero on every start but the first."""
event.register("numba:compile", compiling)  # type: ignore[no-untyped-call]
