"""HashingNeighbors: the contract of scikit-learn's KNeighborsTransformer."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import DBSCAN
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE, Isomap
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from densehash import ITQ, HashingNeighbors, InputError

X, y = load_digits(return_X_y=True)
X = X[:600].astype(np.float32)
y = y[:600]
EVERYTHING: dict[str, Any] = {"candidates": 600, "random_state": 0}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [HashingNeighbors(n_neighbors=1, n_bits=8, random_state=0)]
)
def test_the_checks_of_scikit_learn(estimator: HashingNeighbors, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_the_graph_is_that_of_the_exact_transformer(mode: Any, metric: Any) -> None:
    exact = KNeighborsTransformer(
        mode=mode, n_neighbors=7, metric="euclidean" if metric == "l2" else metric
    )
    ours = HashingNeighbors(mode=mode, n_neighbors=7, metric=metric, **EVERYTHING)
    for fitted, asked in ((X, X), (X[:400], X[400:])):
        true, found = exact.fit(fitted).transform(asked), ours.fit(fitted).transform(asked)
        assert found.shape == true.shape
        assert found.has_sorted_indices == true.has_sorted_indices
        np.testing.assert_array_equal(found.indptr, true.indptr)
        if mode == "distance":  # ties may be ordered otherwise, their distances may not
            np.testing.assert_allclose(
                np.sort(found.data.reshape(len(asked), -1)),
                np.sort(true.data.reshape(len(asked), -1)),
                atol=2e-3,
            )
            assert (np.diff(found.data.reshape(len(asked), -1)) >= 0).all()
        same = [
            len(set(a.indices) & set(b.indices)) / len(b.indices)
            for a, b in zip(found, true, strict=True)
        ]
        assert np.mean(same) > 0.99


def test_each_row_is_its_own_first_neighbour() -> None:
    graph = HashingNeighbors(n_neighbors=3, random_state=0).fit_transform(X)
    assert (graph.indices.reshape(len(X), 4)[:, 0] == np.arange(len(X))).all()
    assert (graph.data.reshape(len(X), 4)[:, 0] == 0).all()


def test_estimators_take_the_graph() -> None:
    neighbors = HashingNeighbors(n_neighbors=40, random_state=0)
    labels = make_pipeline(neighbors, DBSCAN(eps=20, metric="precomputed")).fit_predict(X)
    assert len(set(labels)) > 5
    flat = make_pipeline(neighbors, Isomap(metric="precomputed", n_neighbors=10)).fit_transform(X)
    assert flat.shape == (600, 2)
    tsne = TSNE(metric="precomputed", init="random", perplexity=10, max_iter=250, random_state=0)
    assert make_pipeline(neighbors, tsne).fit_transform(X).shape == (600, 2)
    classifier = KNeighborsClassifier(n_neighbors=5, metric="precomputed")
    exact = KNeighborsTransformer(n_neighbors=40)
    ours, theirs = (
        make_pipeline(graph, classifier).fit(X[:500], y[:500]).score(X[500:], y[500:])
        for graph in (neighbors, exact)
    )
    assert ours >= theirs - 0.03


def test_it_clones_and_pickles() -> None:
    neighbors = HashingNeighbors(n_neighbors=3, hasher=ITQ(32, random_state=0), random_state=0)
    graph = neighbors.fit_transform(X)
    again = clone(neighbors).fit_transform(X)
    assert (graph != again).nnz == 0
    other = pickle.loads(pickle.dumps(neighbors)).transform(X)
    assert (graph != other).nnz == 0
    assert neighbors.get_feature_names_out()[0] == "hashingneighbors0"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mode": "weights"}, "mode"),
        ({"metric": "ip"}, "metric"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"n_neighbors": 600}, "too many"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        HashingNeighbors(**parameters).fit(X).transform(X)
