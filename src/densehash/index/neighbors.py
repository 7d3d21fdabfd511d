"""The index as a transformer of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from densehash.checks import check_choice, check_integer, check_vectors
from densehash.choices import GraphMode, KindName, SketchName
from densehash.errors import InputError
from densehash.hashers import Hasher
from densehash.index.index import Index

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from typing_extensions import Self  # in typing from Python 3.11 on

__all__ = ["HashingNeighbors"]


class HashingNeighbors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A graph of nearest neighbours, found by an index and compared exactly.

    It works like scikit-learn's ``KNeighborsTransformer``. ``fit_transform`` returns a sparse graph
    for estimators with ``metric="precomputed"`` (TSNE, DBSCAN, Isomap, SpectralClustering), in a
    pipeline, too. ``kneighbors`` works like that of ``NearestNeighbors``.

    Parameters
    ----------
    mode : what entries are: "distance" (default), or "connectivity" for ones
    n_neighbors : how many neighbours of each row, default 5. As in scikit-learn, the distance graph
        has one more: a row that is in the index comes first, at distance 0.
    metric : "l2" (default) or "cosine"
    sketch, hasher, n_bits, kind : as in :meth:`densehash.Index.build`
    candidates, probes : as in :meth:`densehash.Index.search`
    n_threads : how many threads search, default: one for each CPU
    random_state : seed or generator for the index
    verbose : 1 shows progress bars for long work, default 0

    Attributes
    ----------
    index_ : the Index
    n_samples_fit_ : how many rows it has

    Examples
    --------
    >>> from sklearn.cluster import DBSCAN
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> X = load_digits().data
    >>> neighbors = HashingNeighbors(n_neighbors=5, random_state=0)
    >>> graph = neighbors.fit_transform(X)
    >>> graph.shape, graph.nnz
    ((1797, 1797), 10782)
    >>> pipeline = make_pipeline(neighbors, DBSCAN(eps=20, metric="precomputed"))
    >>> len(set(pipeline.fit_predict(X))) > 5
    True
    """

    index_: Index
    n_samples_fit_: int

    def __init__(
        self,
        *,
        mode: GraphMode = "distance",
        n_neighbors: int = 5,
        metric: Literal["l2", "cosine"] = "l2",
        sketch: SketchName = "auto",
        hasher: str | Hasher = "auto",
        n_bits: int | None = None,
        kind: KindName = "auto",
        candidates: int | None = None,
        probes: int | None = None,
        n_threads: int | None = None,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.mode = mode
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.sketch = sketch
        self.hasher = hasher
        self.n_bits = n_bits
        self.kind = kind
        self.candidates = candidates
        self.probes = probes
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002  scikit-learn's y
        """Build the index of rows.

        Parameters
        ----------
        X : real array of shape (n, d), finite
        y : ignored
        """
        check_choice(self.mode, "mode", ("distance", "connectivity"))
        check_choice(self.metric, "metric", ("l2", "cosine"))
        check_integer(self.n_neighbors, "n_neighbors", 1)
        validate_data(self, X, skip_check_array=True, reset=True)
        self.index_ = Index.build(
            X,
            sketch=self.sketch,
            hasher=self.hasher,
            n_bits=self.n_bits,
            kind=self.kind,
            metric=self.metric,
            random_state=self.random_state,
            verbose=self.verbose,
        )
        self.n_features_in_ = self.index_._state.sketch.n_features
        self.n_samples_fit_ = len(self.index_)
        return self

    def transform(self, X: ArrayLike) -> csr_matrix:
        """The neighbours of rows among the rows of ``fit``.

        Parameters
        ----------
        X : real array of shape (m, d), finite

        Returns
        -------
        CSR matrix of shape (m, n_samples_fit_) of distances or ones; the entries of a row are
        ordered by distance
        """
        check_is_fitted(self)
        return self.kneighbors_graph(X, self.n_neighbors + (self.mode == "distance"), self.mode)

    def fit_transform(self, X: ArrayLike, y: object = None) -> csr_matrix:
        """Build the index of rows, and return their neighbours in it.

        Returns
        -------
        CSR matrix of shape (n, n); each row is its own first neighbour
        """
        return self.fit(X, y).transform(X)

    def kneighbors(
        self,
        X: ArrayLike | None = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,
    ) -> Any:
        """The neighbours of rows among the rows of ``fit``, as in ``NearestNeighbors``.

        Parameters
        ----------
        X : real array of shape (m, d), finite. Default: the rows of ``fit``; no row is then its own
            neighbour.
        n_neighbors : how many; default: ``n_neighbors`` of the estimator
        return_distance : whether to return distances, too, default True

        Returns
        -------
        distances : float64 (m, n_neighbors), rising in each row
        indices : int64 (m, n_neighbors), numbers of rows of ``fit``

        Examples
        --------
        >>> X = np.array([[0.0], [1.0], [3.0]])
        >>> HashingNeighbors(n_neighbors=1).fit(X).kneighbors([[2.5]])
        (array([[0.5]]), array([[2]]))
        >>> HashingNeighbors(n_neighbors=1).fit(X).kneighbors(return_distance=False)
        array([[1],
               [0],
               [1]])
        """
        check_is_fitted(self)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        check_integer(k, "n_neighbors", 1)
        n_others = self.n_samples_fit_ - (X is None)
        if k > n_others:
            raise InputError(f"n_neighbors is {k}, too many for {n_others} rows")
        if X is None:
            own: Any = self.index_.ids
            rows = self.index_.get(own)
        else:
            own, rows = False, check_vectors(X, "X")
            validate_data(self, X, skip_check_array=True, reset=False)
        hits = self.index_.search(
            rows,
            k,
            candidates=self.candidates,
            exclude_self=own,
            probes=self.probes,
            n_threads=self.n_threads,
        )
        distances = hits.distances.astype(np.float64)
        return (distances, hits.ids) if return_distance else hits.ids

    def kneighbors_graph(
        self,
        X: ArrayLike | None = None,
        n_neighbors: int | None = None,
        mode: GraphMode = "connectivity",
    ) -> csr_matrix:
        """The neighbours of rows among the rows of ``fit``, as a sparse graph.

        Parameters
        ----------
        X, n_neighbors : as in :meth:`kneighbors`
        mode : what entries are: "connectivity" (default) for ones, or "distance"

        Returns
        -------
        CSR matrix of shape (m, n_samples_fit_), with n_neighbors entries in a row
        """
        from scipy.sparse import csr_matrix  # noqa: PLC0415  no other call needs it

        check_choice(mode, "mode", ("connectivity", "distance"))
        distances, indices = self.kneighbors(X, n_neighbors)
        values = distances if mode == "distance" else np.ones_like(distances)
        limits = np.arange(0, indices.size + 1, indices.shape[1])
        shape = len(indices), self.n_samples_fit_
        return csr_matrix((values.reshape(-1), indices.reshape(-1), limits), shape=shape)

    @property
    def _n_features_out(self) -> int:
        return self.n_samples_fit_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "index_")
