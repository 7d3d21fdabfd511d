"""scikit-learn: documents that are found by the vectors that any transformer makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from numpy.random import RandomState
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from densehash.index import HashingNeighbors

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

__all__ = ["Retriever"]


class Retriever(BaseEstimator):  # type: ignore[misc]
    """Find documents: a vectorizer, and :class:`densehash.index.HashingNeighbors` of what it makes.

    Parameters
    ----------
    vectorizer : an estimator that turns documents into dense vectors; for instance a pipeline of
        ``TfidfVectorizer`` and ``TruncatedSVD``
    n_neighbors : how many documents are found
    metric : "cosine" (default) or "l2"
    random_state : the seed of the index; the vectorizer has its own

    Attributes
    ----------
    vectorizer_ : the vectorizer, fitted
    neighbors_ : the neighbours, fitted; ``neighbors_.index_`` is the index
    documents_ : the documents, as a list

    Examples
    --------
    >>> from sklearn.decomposition import TruncatedSVD
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> vectorizer = make_pipeline(TfidfVectorizer(), TruncatedSVD(2, random_state=0))
    >>> retriever = Retriever(vectorizer, n_neighbors=1)
    >>> retriever.fit(["a cat sat", "a cat ran", "rain in spain"]).retrieve(["spain"])
    [['rain in spain']]
    """

    def __init__(
        self,
        vectorizer: Any,
        *,
        n_neighbors: int = 5,
        metric: Literal["l2", "cosine"] = "cosine",
        random_state: int | RandomState | None = None,
    ) -> None:
        self.vectorizer = vectorizer
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.random_state = random_state

    def fit(self, X: Sequence[Any], y: object = None) -> Self:
        """Learn vectors of documents, and build the index of them.

        Parameters
        ----------
        X : documents, anything that the vectorizer takes
        y : for the vectorizer
        """
        vectorizer = clone(self.vectorizer)
        vectors = vectorizer.fit_transform(X, y)
        neighbors = HashingNeighbors(
            n_neighbors=self.n_neighbors, metric=self.metric, random_state=self.random_state
        ).fit(vectors)
        self.vectorizer_, self.neighbors_, self.documents_ = vectorizer, neighbors, list(X)
        return self

    def kneighbors(
        self, X: Sequence[Any], n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Distances and numbers of the documents that are nearest to others.

        Parameters and what is returned are those of
        :meth:`densehash.index.HashingNeighbors.kneighbors`, of documents in place of vectors.
        """
        check_is_fitted(self)
        vectors = self.vectorizer_.transform(X)
        return self.neighbors_.kneighbors(vectors, n_neighbors, return_distance)

    def retrieve(self, X: Sequence[Any], n_neighbors: int | None = None) -> list[list[Any]]:
        """The documents that are nearest to others, for each a list, nearest first."""
        found = self.kneighbors(X, n_neighbors, return_distance=False)
        return [[self.documents_[at] for at in row] for row in found.tolist()]
