"""Answers that must be the same on every machine, and the indexes that gave them.

``python tests/answers.py`` made ``golden/answers`` once, on 64-bit ARM. These files are never made
again: ``test_answers.py`` compares every architecture with them.

Building an index uses products of floats, whose last bits depend on the machine, so the built
indexes are kept and searched. Everything after that is the same to the bit: Hamming distances,
estimates from signs, and distances of vectors. Queries of codes are not on any plane.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densehash import hamming
from densehash.hashers import ITQ
from densehash.index import Index

GOLDEN = Path(__file__).parent / "golden"
FOLDER = GOLDEN / "answers"

Array = NDArray[Any]
Answers = dict[str, Array]

SIGNS: dict[str, dict[str, Any]] = {
    "l2": {"kind": "flat"},
    "cosine": {"kind": "grouped", "metric": "cosine", "keep_vectors": "float16", "n_groups": 6},
    "ip": {
        "kind": "grouped",
        "metric": "ip",
        "keep_vectors": "int8",
        "n_groups": 6,
        "groups_a_row": 2,
    },
    "bare": {"kind": "grouped", "keep_vectors": False, "n_groups": 6},
}
NAMES = ("codes", *SIGNS)
QUESTIONS: dict[str, dict[str, Any]] = {
    "as it is": {"k": 5},
    "all": {"k": 5, "recall": 1},
    "not re-ranked": {"k": 5, "rerank": None},
}
CODES_QUESTIONS: dict[str, dict[str, Any]] = {
    "l2": {"k": 5},
    "cosine": {"k": 5, "metric": "cosine"},
    "ip": {"k": 5, "metric": "ip", "candidates": 20},
    "not re-ranked": {"k": 5, "rerank": None},
    "within": {"radius": 5, "rerank": None},
}


@cache
def rows() -> tuple[Array, Array]:
    """Rows and queries: parts of SIFT vectors, uint8 (240, 40) and (100, 40)."""
    raw = np.load(GOLDEN / "data.npz")["raw"][:, 60:100]
    return raw[100:340], raw[:100]


def build(name: str) -> Index:
    """An index; together they have every type of vectors and every metric, and removed rows."""
    X, _ = rows()
    if name == "codes":
        kept = X.astype(np.float32) / np.float32(255)
        learnt = ITQ(24, random_state=0)
        index = Index.build(kept[:200], hasher=learnt, kind="grouped", n_groups=6, random_state=0)
    else:
        kept = X if name == "l2" else X.astype(np.float32) / np.float32(255)
        index = Index.build(kept[:200], sketch="signs", n_bits=40, random_state=0, **SIGNS[name])
    index.add(kept[200:], ids=np.arange(200, 240))
    index.remove(np.arange(0, 240, 17))
    return index


def queries(index: Index) -> Array:
    """Queries; those for codes are so far from all planes that rounding changes no bit."""
    _, asked = rows()
    if index._state.vector_type == "uint8":
        return asked[:9]
    floats: Array = asked.astype(np.float32) / np.float32(255)
    if index.sketch == "codes":
        margins = np.abs(index.hasher.project(floats))
        floats = floats[margins.min(axis=1) > 1e-3 * margins.mean()]
        assert len(floats) > 20
    return floats[:9]


def of_index(index: Index) -> Answers:
    found = {}
    asked = queries(index)
    questions = QUESTIONS if index.sketch == "signs" else CODES_QUESTIONS
    for question, options in questions.items():
        hits = index.search(asked, **options)
        for part, array in enumerate(hits):
            found[f"{question}, {part}"] = array
        if index.sketch == "signs":
            found[f"{question}, looked at"] = hits.looked_at
    return found


def of_hamming() -> Answers:
    """Answers to one query and to many, because some kernels are for groups of 64."""
    found = {}
    for bits in (32, 64, 100, 128, 256, 520):
        rng = np.random.default_rng(bits)
        codes = rng.integers(0, 256, (500, -(-bits // 8)), dtype=np.uint8)
        codes[::3] = codes[7] ^ (codes[::3] & codes[1::3][: len(codes[::3])][::-1])
        for n in (1, 70):
            asked = codes[-n:] ^ np.uint8(17)
            name = f"{bits} bits, {n} queries"
            found[f"{name}, top_k"] = np.stack(hamming.top_k(asked, codes, 3))
            limits, *near = map(np.asarray, hamming.within(asked[:3], codes, bits // 3))
            found[f"{name}, limits"], found[f"{name}, within"] = limits, np.stack(near)
            found[f"{name}, histogram"] = hamming.histogram(asked[:2], codes)
    return found


def all_answers(folder: Path = FOLDER) -> Answers:
    """Answers of the indexes in a folder, and of :mod:`densehash.hamming`."""
    found = {f"hamming, {key}": array for key, array in of_hamming().items()}
    for name in NAMES:
        answers = of_index(Index.open(folder / name))
        found |= {f"{name}, {key}": array for key, array in answers.items()}
    return found


def make() -> None:
    """Save the indexes and their answers, if they do not exist."""
    if FOLDER.exists():
        return
    FOLDER.mkdir()
    for name in NAMES:
        build(name).save(FOLDER / name)
        (FOLDER / name / "writer.lock").unlink()
    found = all_answers()
    np.savez_compressed(FOLDER / "answers.npz", **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    make()
