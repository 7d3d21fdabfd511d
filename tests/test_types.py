"""What a type checker tells users before they run anything.

mypy checks this file with all others. A wrong word that it let through would leave an ignore that
ignores nothing, which it reports; and what is refused here is refused when it runs, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from test_cli_index import good

from densehash import LSH, HashingNeighbors, Index
from densehash.choices import GraphMode, KindName, MetricName, Rerank, SketchName, VectorType
from densehash.errors import InputError
from densehash.index.kinds import KINDS
from densehash.index.segment import VECTOR_TYPES
from densehash.index.sketches import SKETCHES
from densehash.truth import METRICS, nearest

if TYPE_CHECKING:
    from typing_extensions import assert_type

    from densehash.index import Hits, Ranges

X = np.random.default_rng(0).standard_normal((40, 8), dtype=np.float32)


def test_words_are_those_that_the_code_knows() -> None:
    assert get_args(MetricName) == METRICS
    assert get_args(KindName) == ("auto", *(kind.name for kind in KINDS.values()))
    chosen = [SKETCHES[name].name for name in get_args(SketchName)[1:]]
    assert get_args(SketchName) == ("auto", *chosen)
    assert set(get_args(VectorType)) == set(VECTOR_TYPES)
    index = Index.build(X, hasher="lsh", n_bits=16)
    for rerank in get_args(Rerank):
        assert len(index.search(X, 3, rerank=rerank).ids) == 40
    for sketch in get_args(SketchName):
        assert sketch in ("auto", Index.build(X, sketch=sketch).sketch)
    for mode in get_args(GraphMode):
        assert index.neighbors_graph(2, mode=mode).shape == (40, 40)
        assert HashingNeighbors(mode=mode).fit_transform(X).shape == (40, 40)


def test_help_names_every_kind_and_sketch(capsys: pytest.CaptureFixture[str]) -> None:
    out = good(capsys, "build", "--help")
    for word in (*get_args(KindName), *get_args(SketchName)):
        assert re.search(rf"\b{word}\b", out)


def test_other_words_are_refused_before_and_when_it_runs() -> None:
    with pytest.raises(InputError, match="metric"):
        Index.build(X, metric="euclidian")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="kind"):
        Index.build(X, kind="hnsw")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="sketch"):
        Index.build(X, sketch="pq")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="keep_vectors"):
        Index.build(X, keep_vectors="float64")  # type: ignore[arg-type]
    index = Index.build(X, random_state=0)
    with pytest.raises(InputError, match="metric"):
        index.search(X, metric="euclidian")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="rerank"):
        index.search(X, rerank="precise")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="metric"):
        index.tune(X, metric="euclidian")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="mode"):
        index.neighbors_graph(2, mode="weights")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="metric"):
        nearest(X, X, k=1, metric="euclidian")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="metric"):
        HashingNeighbors(metric="ip").fit(X)  # type: ignore[arg-type]


def test_what_is_returned_has_a_precise_type() -> None:
    codes = LSH(16, random_state=0).fit_transform(X)
    hasher = LSH(16, random_state=0).fit(X)
    index = Index.build(X, random_state=0)
    found, within = index.search(X, 3), index.search(X, radius=1.0)
    if TYPE_CHECKING:
        assert_type(codes, NDArray[np.uint8])
        assert_type(hasher, LSH)
        assert_type(hasher.project(X), NDArray[np.float32])
        assert_type(index, Index)
        assert_type(found, Hits)
        assert_type(within, Ranges)
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes, hasher.transform(X))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((384,), {}),
        (("photos.dh",), {}),
        ((X,), {}),
        (("l2", 384), {}),
        ((), {}),
        ((), {"ndim": 384}),
        ((), {"space": "l2", "dim": 384}),
    ],
    ids=lambda value: str(np.shape(value)) if isinstance(value, np.ndarray) else None,
)
def test_an_index_that_is_called_explains_itself(given: Any, named: Any) -> None:
    with pytest.raises(InputError) as raised:
        Index(*given, **named)
    for way in ("build", "open", "create"):
        assert f"Index.{way}(" in str(raised.value)
        assert callable(getattr(Index, way))
    if TYPE_CHECKING:
        Index(384)  # type: ignore[arg-type]
