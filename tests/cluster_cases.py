"""A scheduler and workers as separate processes, and ways in which a worker dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from densehash import disk
from densehash.distributed import by_shard
from densehash.rows import local

_PATIENCE = 60.0  # seconds in which a started process must be ready


class Cluster:
    """Processes on loopback.

    Parameters
    ----------
    folder : the folder for what they write
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        told = folder / "scheduler.json"
        self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(told)
        )
        end = time.monotonic() + _PATIENCE
        while not told.exists() or not told.stat().st_size:
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)
        self._told = told

    @property
    def scheduler_file(self) -> str:
        return str(self._told)

    def add_worker(self) -> None:
        """Start a worker that is not restarted when it dies."""
        self._start(
            *("worker", "--scheduler-file", self.scheduler_file, "--host", "127.0.0.1"),
            *("--nthreads", "1", "--no-nanny", "--memory-limit", "0"),
        )

    def _start(self, *command: str) -> None:
        log = (self._folder / "log.txt").open("ab")
        # Workers import by name what tests send them.
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        with log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", *command, "--no-dashboard"],
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    env={
                        **os.environ,
                        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                        # How long others try to reach a dead worker; 30 seconds by default.
                        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s",
                    },
                )
            )

    def log(self) -> str:
        return (self._folder / "log.txt").read_text(errors="replace")

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    found = Cluster(folder)
    try:
        yield found
    finally:
        found.stop()


def die_when_a_shard_is_renamed() -> None:
    """In a worker: dies when a shard is completely written, but does not have its name yet."""
    plain = disk.rename

    def rename(part: Path, target: Path) -> None:
        if target.name.startswith("shard-"):
            die()
        plain(part, target)

    vars(disk)["rename"] = rename


def die_in_the_second_pass() -> None:
    """In a worker: dies when answers of a pass have been combined, during the next pass."""
    plain, seen = local.Rows.reduced, set()

    def reduced(rows: Any, function: Any, *rest: Any, **options: Any) -> Any:
        seen.add(getattr(function, "__code__", function))
        if len(seen) == 2:
            die()
        return plain(rows, function, *rest, **options)

    vars(local)["Rows"].reduced = reduced


def die_when_encoding() -> None:
    """In a worker: dies when a chunk was read and is about to be hashed."""
    vars(local)["Rows"].map = die


def die_when_reranking() -> None:
    """In a worker: dies when candidates are found, while others wait for it."""
    vars(by_shard)["reranked"] = die


def die_when_asked() -> None:
    """In a worker: dies before it searches a shard."""
    vars(by_shard)["_candidates"] = die


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)
