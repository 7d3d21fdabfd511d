"""Rows and queries as people have them: one vector, lists, tensors, columns, frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from index_cases import KINDS, build, every_kind, rows

from densehash.errors import InputError
from densehash.index import Hits, Index, Ranges

Q = rows(3, seed=5)


def sketches() -> list[Index]:
    """Codes of every kind, and signs in both ways that they are searched."""
    some = [build(kind, rows(60)) for kind in KINDS]
    signs = Index.build(rows(60), sketch="signs", random_state=0)
    return [*some, signs, Index.build(rows(60), ids=[f"row {i}" for i in range(60)])]


# --- one vector ---------------------------------------------------------------------------


ONE: dict[str, dict[str, Any]] = {
    "k": {"k": 4},
    "more than there are": {"k": 70},
    "Hamming, or estimates": {"k": 3, "rerank": None},
    "near": {"k": 3, "radius": 4.0},
    "without itself": {"k": 3, "exclude_self": True},
    "filtered": {"k": 3, "filter": lambda ids: np.arange(len(ids)) % 3 == 0},
}


@pytest.mark.parametrize("asked", ONE.values(), ids=ONE)
def test_one_vector_is_answered_as_the_only_row(asked: dict[str, Any]) -> None:
    for index in sketches():
        if index.kind == "multi":  # Hamming radii there are counted
            asked = {**asked, "rerank": asked.get("rerank", "exact")}  # noqa: PLW2901
        whole = index.search(Q[:1], **asked)
        for one in (Q[0], Q[0].astype(np.float64), Q[0].tolist(), tuple(Q[0].tolist())):
            found = index.search(one, **asked)
            assert isinstance(found, Hits)
            assert found.ids.shape == found.distances.shape == (asked["k"],)
            assert found.ids.dtype == whole.ids.dtype
            assert found.distances.dtype == whole.distances.dtype
            assert found.ids.tolist() == whole.ids[0].tolist()
            assert found.distances.tolist() == whole.distances[0].tolist()
            assert (found.effort is None) == (whole.effort is None)
            if found.effort is not None and whole.effort is not None:
                assert found.effort == tuple(part[0] for part in whole.effort)


@every_kind
def test_all_near_one_vector(kind: str) -> None:
    index = build(kind, rows(60))
    found, whole = index.search(Q[0], radius=5.0), index.search(Q[:1], radius=5.0)
    assert isinstance(found, Ranges)
    assert all(np.array_equal(a, b) for a, b in zip(found, whole, strict=True))


def test_one_vector_may_be_left_out_by_its_id() -> None:
    X = rows(60)
    by_number = Index.build(X, random_state=0)
    by_name = Index.build(X, ids=[f"row {i}" for i in range(60)], random_state=0)
    for index, own in ((by_number, 7), (by_number, np.int64(7)), (by_name, "row 7")):
        expected = index.search(X[7:8], 5, exclude_self=[own])
        assert own not in expected.ids
        assert index.search(X[7], 5, exclude_self=own).ids.tolist() == expected.ids[0].tolist()
        assert index.search(X[7], 5, exclude_self=[own]).ids.tolist() == expected.ids[0].tolist()
        with pytest.raises(InputError, match="one dimension|array of ids"):
            index.search(X[7:9], 5, exclude_self=own)


def test_no_vector_is_one() -> None:
    index = Index.build(rows(60), random_state=0)
    bad: dict[str, tuple[Any, str]] = {
        "nothing": ([], "empty|0 sample|minimum"),
        "no numbers": (np.zeros(0, np.float32), "2 dimensions"),
        "narrow": (Q[0, :4], "Q has 4 features, the index 6"),
        "texts": (["a"] * 6, ""),
        "a number": (3.0, "2 dimensions"),
        "not finite": ([np.nan] * 6, "NaN"),
    }
    for asked, message in bad.values():
        with pytest.raises((InputError, TypeError), match=message or None):
            index.search(asked)


def test_an_empty_index_answers_one_vector() -> None:
    index = Index.build(rows(20), random_state=0)
    index.remove(index.ids)
    found = index.search(Q[0], 3)
    assert found.ids.tolist() == [-1] * 3
    assert index.search(Q[0], radius=1.0).ids.shape == (0,)
