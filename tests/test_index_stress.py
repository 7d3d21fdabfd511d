"""Two writers that are killed again and again, and readers that never notice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from index_cases import every_kind, fast_folder
from soak import SOAK
from stress_children import StressServer


@pytest.fixture(scope="module")
def server() -> Iterator[StressServer]:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    running = StressServer()
    yield running
    running.close()


@pytest.mark.slow
@every_kind
def test_writers_are_killed_while_readers_look(
    kind: str, server: StressServer, record_property: Callable[[str, object], None]
) -> None:
    """Every acknowledged change is there, in order; nobody ever sees half of one."""
    with TemporaryDirectory(prefix="densehash-", dir=fast_folder()) as folder:
        (found,), status = server.run("stress", kind, Path(folder), 6 * SOAK)
    assert status == 0
    for name in ("kills", "changes"):
        record_property(f"{name} among readers", found[name])
        assert found[name] > 2
    record_property("looks of readers", sum(found["looks"]))
    assert min(found["looks"]) > 0
