"""Fixtures that several files of tests use."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from densehash.rows import local as rows


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", 256)


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_works() -> None:
    """Restore Ctrl-C: shells start background jobs with Ctrl-C ignored, which children inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much was tried by tests that try as much as they have time for."""
    tried: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            tried.update({name: n for name, n in report.user_properties if isinstance(n, int)})
    for name, count in tried.items():
        terminalreporter.write_line(f"tried: {count:,} {name}")
