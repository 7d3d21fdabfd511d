"""Fixtures that several files of tests use."""

from __future__ import annotations

import signal

import pytest

from densehash.rows import local as rows


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", 256)


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_works() -> None:
    """Shells start jobs in the background with Ctrl-C ignored, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
