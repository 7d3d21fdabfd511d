"""Fixtures that several files of tests use."""

from __future__ import annotations

import pytest

from densehash import rows


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", 256)
