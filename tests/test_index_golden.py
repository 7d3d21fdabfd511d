"""Indexes that were saved by any version of the format are opened for ever after."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_cases import leftovers, names, rows
from index_golden import (
    BITS,
    CODES,
    CREATED,
    DATA,
    PRODUCTS,
    QUERIES,
    SIGNS,
    answers,
    folder,
    payload,
    version,
)

from densehash.errors import FileError
from densehash.index import Index
from densehash.store import verify

every_golden = pytest.mark.parametrize("kind", [*CODES, *SIGNS, *BITS, *CREATED, *PRODUCTS])


def expected(kind: str) -> dict[str, Any]:
    text = folder(kind).with_suffix(".json").read_text(encoding="ascii")
    stored: dict[str, Any] = json.loads(text)
    return stored


def check(index: Index, kind: str) -> None:
    """All answers: ids are the same, and so are distances, up to rounding."""
    stored = expected(kind)
    assert index.ids.tolist() == stored["ids"]
    found = answers(index)
    assert len(found) == len(stored["answers"])
    for ours, theirs in zip(found, stored["answers"], strict=True):
        assert ours[:-1] == theirs[:-1]
        np.testing.assert_allclose(ours[-1], theirs[-1], rtol=1e-5, atol=1e-5)


@every_golden
def test_a_golden_index_is_opened_and_searched(kind: str) -> None:
    verify(folder(kind))
    index = Index.open(folder(kind))
    assert (index.kind if kind in CODES else index.sketch) == kind.partition("-")[0]
    assert len(index) == 37
    check(index, kind)


@every_golden
def test_a_golden_index_is_changed(kind: str, tmp_path: Path) -> None:
    shutil.copytree(folder(kind), tmp_path / "a")
    index = Index.open(tmp_path / "a")
    before = index.settings
    ids = ["new", "newer"] if index.info()["ids"] == "string" else [1, 2]
    more = None
    if kind == "signs-payload":
        pytest.importorskip("pyarrow", reason="payloads need the extra payload")
        more = payload(2)
    index.add(rows(2, seed=9), ids=ids, payload=more)
    index.update(ids[:1], rows(1, seed=3))
    if index.sketch == "vectors":
        assert index.search(rows(1, seed=3), 1, metric="l2").ids.tolist() == [ids[:1]]
    elif index.sketch not in ("signs", "products"):
        assert index.search(rows(1, seed=3), 1, rerank=None).distances.tolist() == [[0]]
    elif index.metric != "ip":
        assert index.search(rows(1, seed=3), 1).ids.tolist() == [ids[:1]]
    assert index.remove(ids) == 2
    index.compact()
    assert index.settings == before
    check(index, kind)
    check(Index.open(tmp_path / "a"), kind)
    index.verify()
    assert leftovers(tmp_path / "a") == set()


def test_a_golden_index_learns(tmp_path: Path) -> None:
    shutil.copytree(folder("vectors"), tmp_path / "a")
    index = Index.open(tmp_path / "a")
    index.add(rows(30, seed=4), ids=[f"more {at}" for at in range(30)])
    assert (index.sketch, len(index)) == ("signs", 67)
    ids = index.ids.tolist()
    built = Index.build(index.get(ids), ids=ids, metric="ip", n_bits=16, random_state=0)
    assert index.search(QUERIES, 5).ids.tolist() == built.search(QUERIES, 5).ids.tolist()


def test_a_golden_payload_is_read() -> None:
    pytest.importorskip("pyarrow", reason="payloads need the extra payload")
    index = Index.open(folder("signs-payload"))
    known = dict(zip(names(40, "int64"), payload(40), strict=True))
    found = index.payload(index.ids)
    assert found.to_pylist() == [known[name] for name in index.ids.tolist()]


@every_golden
def test_a_golden_index_is_what_its_manifest_says(kind: str) -> None:
    """Read as docs/format.md has it, by nothing but numpy and JSON."""
    manifest = json.loads((folder(kind) / "manifest.json").read_bytes())
    assert (manifest["format"], manifest["version"]) == (
        "densehash index",
        version(kind),
    )
    content = manifest["content"]
    if kind in CODES:
        assert content["kind"] == kind
    ids: list[Any] = []
    for segment in content["segments"]:
        arrays = {name: np.load(folder(kind) / entry["file"]) for name, entry in segment.items()}
        for name, entry in segment.items():
            assert arrays[name].shape == tuple(entry["shape"])
        there = np.delete(arrays["ids"], arrays.get("removed", []))
        ids += [name.decode() if content["ids"] == "string" else name for name in there.tolist()]
    assert sorted(ids) == expected(kind)["ids"]


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    from index_damage import signed

    shutil.copytree(folder("flat"), tmp_path / "a")
    path = tmp_path / "a" / "manifest.json"
    path.write_bytes(signed({**json.loads(path.read_bytes()), "version": 4}))
    for call in (lambda: Index.open(tmp_path / "a"), lambda: verify(tmp_path / "a")):
        with pytest.raises(FileError, match="version 4 .* reads version 1, 2 and 3"):
            call()


def test_golden_indexes_are_small() -> None:
    files = [path for path in DATA.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 170_000
