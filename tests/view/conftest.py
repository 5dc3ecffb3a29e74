from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from view_recorded import write_run

from holdfast.view import plots


@pytest.fixture(scope="session")
def plotted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run with all its plots; tests only read it, or write its report again."""
    run = write_run(tmp_path_factory.mktemp("view") / "tiny")
    plots.make_plots(run)
    return run


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`only("tail", "deaths")` leaves these plots registered: pictures take time."""
    every = plots.plots()

    def choose(*names: str) -> None:
        monkeypatch.setattr(plots, "plots", lambda: [p for p in every if p.name in names])

    return choose
