"""Index folders of all versions of the format, kept for ever, and what they must answer.

``python tests/index_golden.py`` made ``data/index-v1-*`` to ``data/index-v3-*`` once. An existing
folder is never made again: it stands for the indexes that people have on their disks.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
from index_cases import names, rows

from densehash.hashers import DSH, ITQ, LSH
from densehash.index import Index
from densehash.index.encoding import for_hasher
from densehash.index.index import index_state

DATA = Path(__file__).parent / "data"

# Named after what is special about them; see build().
CODES = ("flat", "grouped", "multi")
SIGNS = ("signs", "signs-twice", "signs-int8", "signs-bare", "signs-payload")
BITS = ("bits", "bits-grouped")
CREATED = ("vectors",)
PRODUCTS = ("products",)

# Half a unit away from all rows, so that no query is on a plane.
QUERIES = rows(5, seed=5) + np.float32(0.5)

QUESTIONS: tuple[dict[str, Any], ...] = (
    {"k": 4},
    {"k": 4, "rerank": None},
    {"k": 4, "rerank": "asymmetric", "candidates": 9},
    {"k": 8, "metric": "cosine"},
    {"k": 3, "metric": "ip", "exclude_self": True},
    {"k": 4, "probes": 3, "rerank": "asymmetric"},
    {"radius": 4, "rerank": None},
)


# Below a recall of 1, which rows are missed depends on segments.
SIGNS_QUESTIONS: tuple[dict[str, Any], ...] = (
    {"k": 4, "recall": 1},
    {"k": 5, "recall": 1, "rerank": None},
    {
        "k": 3,
        "recall": 1,
        "filter": lambda ids: np.array([not str(name).endswith("7") for name in ids]),
    },
)


def version(name: str) -> int:
    """The version of the format."""
    if name in CODES:
        return 1
    return 3 if name.endswith("-payload") else 2


def payload(n: int) -> list[dict[str, Any]]:
    """A column of every kind, with nulls; one of the strings is repeated."""
    day = dt.datetime(2020, 2, 28, 12, 30)
    return [
        {
            "lang": (None, "en", "de", "日本語")[at % 4],
            "text": f"text {at}",
            "year": None if at % 7 == 3 else 1990 + at,
            "price": at / 4,
            "good": at % 3 == 0,
            "day": day.date() + dt.timedelta(days=at),
            "time": day + dt.timedelta(seconds=at),
            "raw": bytes([at]) * (at % 3),
            "tags": (None, [], ["a"], ["b", "a"])[at % 4],
        }
        for at in range(n)
    ]


def folder(name: str) -> Path:
    """The folder of a golden index."""
    return DATA / f"index-v{version(name)}-{name}"


def build(kind: Any) -> Index:
    """An index with all that a folder can hold: segments, removed rows, settings, both ids."""
    X = rows(40)
    if kind in SIGNS:
        ids = names(40, "string" if kind == "signs-bare" else "int64")
        groups = {"kind": "grouped", "n_groups": 5}
        options: dict[str, dict[str, Any]] = {
            "signs": {"kind": "flat"},
            "signs-twice": {**groups, "groups_a_row": 2},
            "signs-int8": {**groups, "metric": "ip", "keep_vectors": "int8"},
            "signs-bare": {**groups, "metric": "cosine", "keep_vectors": False},
            "signs-payload": {"kind": "flat", "payload": payload(30)},
        }
        if kind == "signs":
            X = X.astype(np.uint8)
        index = Index.build(X[:30], ids=ids[:30], sketch="signs", n_bits=16, random_state=0,
                            **options[kind])  # fmt: skip
        more = payload(40)[30:] if kind == "signs-payload" else None
        index.add(X[30:], ids=ids[30:], payload=more)
        if kind == "signs-twice":
            index.tune(QUERIES, recall=0.9, k=3)
    elif kind in BITS:  # ready-made codes, and the hasher that made them
        ids = names(40, "string")
        learnt = LSH(13, random_state=0).fit(X)
        codes = learnt.transform(X)
        more_told: dict[str, Any] = {}
        if kind == "bits-grouped":
            more_told = {"kind": "grouped", "n_groups": 5, "random_state": 0}
        index = Index.from_codes(codes[:30], ids=ids[:30], hasher=learnt, **more_told)
        index.add(codes[30:], ids=ids[30:])
    elif kind in CREATED:  # has learnt nothing yet
        ids = names(40, "string")
        index = Index.create(X.shape[1], learn_at=60, metric="ip", n_bits=16, random_state=0)
        index.add(X[:30].astype(np.uint8), ids=ids[:30])
        index.add(X[30:].astype(np.uint8), ids=ids[30:])
    elif kind in PRODUCTS:  # codes and lengths, in groups
        ids = names(40, "int64")
        index = Index.build(X[:30], ids=ids[:30], kind="grouped", n_groups=10, metric="ip",
                            hasher=LSH(13, random_state=0), random_state=0)  # fmt: skip
        index.add(3 * X[30:], ids=ids[30:])
    elif kind == "flat":  # strings, half precision, cosines
        ids = names(40, "string")
        index = Index.build(X[:30], ids=ids[:30], hasher=ITQ(16, random_state=0), kind=kind,
                            metric="cosine", keep_vectors="float16")  # fmt: skip
        index.add(X[30:], ids=ids[30:])
    elif kind == "grouped":  # whole numbers, tuned
        ids = names(40, "int64")
        index = Index.build(X[:30].astype(np.uint8), ids=ids[:30], kind=kind, n_groups=10,
                            hasher=DSH(12, random_state=0), random_state=0)  # fmt: skip
        index.add(X[30:].astype(np.uint8), ids=ids[30:])
        index.tune(QUERIES, recall=0.9, k=3)
    else:  # codes alone, of a length that fills no byte
        ids = names(40, "int64")
        index = Index.build(X[:30], ids=ids[:30], hasher=LSH(13, random_state=0), kind=kind,
                            n_tables=2, keep_vectors=False)  # fmt: skip
        index.add(X[30:], ids=ids[30:])
    index.remove(ids[3:6])
    return index


def answers(index: Index) -> list[Any]:
    """The answers of an index to all searches that it supports."""
    found = []
    for question in SIGNS_QUESTIONS if index.sketch == "signs" else QUESTIONS:
        if index.sketch == "vectors" and question.get("rerank") == "asymmetric":
            continue
        told: dict[str, Any] = {}
        if question.get("metric", index.metric) != index.metric:
            # As in older versions, in which such a search did not compare every row.
            told = {"candidates": index.settings.candidates}
        has_vectors = index._state.vector_type is not None or index.sketch == "signs"
        if not has_vectors and question.get("rerank", "exact") == "exact":
            continue
        if index.kind == "flat" and "probes" in question:
            continue
        hits = index.search(QUERIES, **question, **told)
        # JSON has no infinite numbers.
        found.append([np.where(part == np.inf, -1, part).tolist() for part in hits])
    return found


def make(kind: str) -> None:
    """Save an index and its answers, if they do not exist."""
    if folder(kind).exists():
        return
    index = build(kind)
    if index.sketch in ("codes", "bits", "products"):
        margins = np.abs(index.hasher.project(for_hasher(QUERIES, index_state(index))))
        assert margins.min() > 1e-3 * margins.mean()  # bits are the same on every machine
    DATA.mkdir(exist_ok=True)
    index.save(folder(kind))
    (folder(kind) / "writer.lock").unlink()
    text = json.dumps({"ids": index.ids.tolist(), "answers": answers(index)}, separators=(",", ":"))
    folder(kind).with_suffix(".json").write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    for one in (*CODES, *SIGNS, *BITS, *CREATED, *PRODUCTS):
        make(one)
