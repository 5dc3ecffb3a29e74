"""What holds for every test."""

from __future__ import annotations

import pytest

from holdfast import parallel


@pytest.fixture(autouse=True)
def short_work_is_shared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads take part in the small work of tests, which would else never see it cut."""
    monkeypatch.setattr(parallel, "WORTH_S", 0.0)
