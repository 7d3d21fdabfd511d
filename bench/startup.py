"""Measures how long imports and help take, as ratios to ``import numpy``, in one run.

    python bench/startup.py [--json FILE]

Each line is a new process; all take turns, and the best of 15 times counts, minus the time of
Python alone. Times are CPU times, which other programs disturb least; on an idle machine that has
read the files before, they equal those of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

TURNS = 15
HERE = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

NOTHING = "python alone"
NUMPY = "import numpy"
COMMAND = "from densehash.cli import main; main()"
STARTS = {
    NOTHING: ["pass"],
    NUMPY: [NUMPY],
    "import sklearn.base": ["import sklearn.base"],
    "import typer, with rich": ["import typer.rich_utils"],
    "import densehash": ["import densehash"],
    "from densehash import hamming": ["from densehash import hamming"],
    "from densehash import Index": ["from densehash import Index"],
    "from densehash import DSH": ["from densehash import DSH"],
    "densehash --version": [COMMAND, "--version"],
    "densehash --help": [COMMAND, "--help"],
    "densehash build --help": [COMMAND, "build", "--help"],
}


def seconds_of(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=HERE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure() -> dict[str, float]:
    """Seconds of each start: of Python alone, and of the others beyond that."""
    turns = [{name: seconds_of(code) for name, code in STARTS.items()} for _ in range(TURNS)]
    best = {name: min(turn[name] for turn in turns) for name in STARTS}
    alone = best.pop(NOTHING)
    return {NOTHING: alone, **{name: seconds - alone for name, seconds in best.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write the seconds there; - prints them")
    asked = parser.parse_args()
    found = measure()
    if asked.json:
        text = json.dumps(found, indent=2) + "\n"
        if asked.json == "-":
            print(text, end="")
            return
        Path(asked.json).write_text(text, encoding="utf-8")
    print(f"Python alone takes {1000 * found.pop(NOTHING):.0f} ms. Beyond that:\n")
    print("| start | ms | times `import numpy` |")
    print("| --- | ---: | ---: |")
    for name, seconds in found.items():
        print(f"| {name} | {1000 * seconds:.0f} | {seconds / found[NUMPY]:.2f} |")


if __name__ == "__main__":
    main()
