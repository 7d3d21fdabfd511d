"""A folder of a hasher in version 1 of the format, kept for ever, and the codes it must give.

``python tests/hasher_golden.py`` made ``data/hasher-v1-dsh`` once. An existing folder is never made
again: it stands for the models that people have on their disks.
"""

from __future__ import annotations

import json

import numpy as np
from index_cases import rows
from index_golden import DATA

from densehash.hashers import DSH

FOLDER = DATA / "hasher-v1-dsh"

# A quarter of a unit away from whole numbers, so that none is on a plane.
QUERIES = rows(20, seed=5) + np.float32(0.25)


def make() -> None:
    """Save a hasher, its codes and its margins, if they do not exist."""
    if FOLDER.exists():
        return
    hasher = DSH(12, random_state=0).fit(rows(40))
    margins = hasher.project(QUERIES)
    assert np.abs(margins).min() > 1e-3 * np.abs(margins).mean()  # the same bits on every machine
    hasher.save(FOLDER)
    (FOLDER / "writer.lock").unlink()
    found = {"codes": hasher.transform(QUERIES).tolist(), "margins": margins.tolist()}
    text = json.dumps(found, separators=(",", ":"))
    FOLDER.with_suffix(".json").write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    make()
