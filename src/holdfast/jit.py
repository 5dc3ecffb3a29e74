"""One decorator for every compiled kernel, so that they all cache, release the GIL and announce themselves.

    @kernel
    def step(...): ...

Kernels take plain arrays and a range `[lo, hi)` of games or rows; threads are Python threads
that call the same kernel on disjoint ranges (`parallel.py`), never `prange`: so results do not
depend on the thread count, and no threading layer has to be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

import numba

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
        return compiled

    return decorate if function is None else decorate(function)
