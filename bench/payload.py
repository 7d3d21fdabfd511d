"""Measures what a payload costs: bytes, opening, first use, filters, and memory of `compact`.

``python bench/payload.py`` takes some minutes and 2 GB of disk; Linux only. Everything is measured
once, in separate processes. Memory is the highest RssAnon, read every 5 ms: it does not include
pages of mapped files, which the system may drop.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from densehash import Index

WHERE = 'lang = "en" and year >= 2020'


def make(path: Path, n: int, with_payload: bool) -> dict[str, Any]:
    import pyarrow as pa

    X = np.random.default_rng(0).standard_normal((n, 8), dtype=np.float32)
    table = pa.table(
        {
            "text": [f"{at:08d}" + "lorem ipsum dolor " * 24 for at in range(n)],
            "lang": [("en", "de", "fr", "日本")[at % 4] for at in range(n)],
            "year": np.arange(n) % 40 + 1990,
        }
    )
    payload = table if with_payload else None
    Index.build(X, payload=payload, path=path, sketch="codes", n_bits=32, random_state=0)
    return {"given_mb": table.nbytes / 1e6}


def measure(path: Path) -> dict[str, Any]:
    timed: dict[str, Any] = {}

    def clock(name: str, call: Any) -> Any:
        begun = time.perf_counter()
        found = call()
        timed[name] = (time.perf_counter() - begun) * 1e3
        return found

    Index.open(path)  # imports what it needs
    index = clock("open_ms", lambda: Index.open(path))
    timed["kept_mb"] = index.info()["bytes_of_payload"] / 1e6
    asked = np.zeros((1, 8), np.float32)
    hits = index.search(asked, 10)
    if timed["kept_mb"]:
        clock("first_payload_ms", lambda: hits.payload)
        clock("next_payload_ms", lambda: hits.payload)
        clock("first_filter_ms", lambda: index.search(asked, 10, filter=WHERE))
        clock("next_filter_ms", lambda: index.search(asked, 10, filter=WHERE))
    return timed


def compact(path: Path) -> dict[str, Any]:
    highest, done = 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.is_set():
            status = Path("/proc/self/status").read_text()
            highest = max(highest, int(status.split("RssAnon:")[1].split()[0]))
            time.sleep(0.005)

    index = Index.open(path)
    index.remove(range(1000))
    watcher = threading.Thread(target=watch)
    watcher.start()
    index.compact()
    done.set()
    watcher.join()
    return {"compact_mb": highest / 1024}


def child(*arguments: object) -> dict[str, Any]:
    told = [sys.executable, __file__, "--child", *map(str, arguments)]
    answer: dict[str, Any] = json.loads(subprocess.run(told, stdout=-1, check=True).stdout)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 600_000, 1_600_000])
    parser.add_argument("--child", nargs="+")
    told = parser.parse_args()
    if told.child:
        task, path, *rest = told.child
        if task == "make":
            print(json.dumps(make(Path(path), int(rest[0]), rest[1] == "True")))
        else:
            print(json.dumps({"measure": measure, "compact": compact}[task](Path(path))))
        return
    for n in told.rows:
        for with_payload in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "a.dh")
                found = child("make", path, n, with_payload)
                found |= child("measure", path) | child("compact", path)
            shown = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
            print(f"{n:,} rows, {'with' if with_payload else 'without'} payload: {shown}")


if __name__ == "__main__":
    main()
