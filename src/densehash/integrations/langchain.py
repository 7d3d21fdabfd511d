"""LangChain: a vector store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike

from densehash.choices import MetricName
from densehash.errors import InputError, MissingExtraError
from densehash.integrations.documents import Document as Found
from densehash.integrations.documents import Documents

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ImportError as error:
    raise MissingExtraError(
        f"{error.name} is needed for LangChain: pip install densehash[langchain]"
    ) from error

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

    from densehash.index import Index
    from densehash.index.filters import AnyFilter

__all__ = ["DensehashVectorStore"]


class DensehashVectorStore(VectorStore):  # type: ignore[misc]  # of a package that is not read
    """A vector store of LangChain in an index, in memory or in a folder.

    Scores are distances: the smaller, the nearer. Relevance scores are those of LangChain: the
    larger, the nearer.

    Parameters
    ----------
    embedding : turns texts into vectors
    path : a folder that is missing, is empty, or has an index of such documents; every change is
        on the disk when the call returns. Default: in memory
    metric : "cosine" (default), "l2" or "ip"; an index that exists keeps its own
    columns : metadata that filters can use: a dict of names and types, as ``{"lang": "string",
        "year": "int64"}``. Default: all metadata of the first documents that are strings,
        numbers (as float64), booleans or lists of strings. From then on, a value of another type is
        refused

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> store = DensehashVectorStore(DeterministicFakeEmbedding(size=16))
    >>> texts, languages = ["one", "two", "zwei"], [{"lang": "en"}, {"lang": "en"}, {"lang": "de"}]
    >>> store.add_texts(texts, languages, ids=["1", "2", "3"])
    ['1', '2', '3']
    >>> store.similarity_search("two", k=1)[0].page_content
    'two'
    >>> [found.id for found in store.similarity_search("two", filter={"lang": "de"})]
    ['3']
    """

    def __init__(
        self,
        embedding: Embeddings,
        *,
        path: str | os.PathLike[str] | None = None,
        metric: MetricName | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        self._embedding = embedding
        self._documents = Documents(path=path, metric=metric, columns=columns)

    @property
    def index(self) -> Index | None:
        """The index; None before the first documents."""
        return self._documents.index

    @property
    def embeddings(self) -> Embeddings:
        """What makes vectors of texts."""
        return self._embedding

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a store of texts; ``kwargs`` are those of the class."""
        store = cls(embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,  # noqa: ARG002  of LangChain's function index
    ) -> list[str]:
        """Add texts; a text whose id exists replaces the old one.

        Parameters
        ----------
        texts : n texts
        metadatas : n dicts of any JSON kind
        ids : n different strings; a None among them gets a new id
        batch_size : ignored; all texts are added at once

        Returns
        -------
        the ids
        """
        listed = list(texts)
        metadata = [{} for _ in listed] if metadatas is None else metadatas
        names = [name or str(uuid4()) for name in ids or [None] * len(listed)]
        for what, given in (("metadatas", metadata), ("ids", names)):
            if len(given) != len(listed):
                raise InputError(f"there are {len(listed)} texts, but {len(given)} {what}")
        vectors = self._embedding.embed_documents(listed)
        self._documents.put(names, vectors, listed, metadata)
        return names

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Documents by their ids, in that order; unknown ids are skipped."""
        return [_document(found) for found in self._documents.get(ids)]

    def delete(self, ids: list[str] | None = None) -> bool:
        """Remove documents, or all of them if you give no ids; unknown ids are skipped.

        Returns
        -------
        True
        """
        self._documents.remove(self._documents.matching(None) if ids is None else ids)
        return True

    def similarity_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: AnyFilter | None = None,  # noqa: A002
    ) -> list[Document]:
        """The k documents that are nearest to a text.

        Parameters
        ----------
        query : a text
        k : how many, default 4
        filter : which documents may be found, as in :meth:`densehash.Index.search`: a dict, as
            ``{"lang": "en", "year": {"$gte": 2020}}``, or the same as a line of text
        """
        return self.similarity_search_by_vector(
            self._embedding.embed_query(query), k, filter=filter
        )

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: AnyFilter | None = None,  # noqa: A002
    ) -> list[tuple[Document, float]]:
        """The k documents that are nearest to a text, each with its distance."""
        return self.similarity_search_with_score_by_vector(
            self._embedding.embed_query(query), k, filter=filter
        )

    def similarity_search_by_vector(
        self,
        embedding: ArrayLike,
        k: int = 4,
        *,
        filter: AnyFilter | None = None,  # noqa: A002
    ) -> list[Document]:
        """The k documents that are nearest to a vector."""
        found = self.similarity_search_with_score_by_vector(embedding, k, filter=filter)
        return [document for document, _ in found]

    def similarity_search_with_score_by_vector(
        self,
        embedding: ArrayLike,
        k: int = 4,
        *,
        filter: AnyFilter | None = None,  # noqa: A002
    ) -> list[tuple[Document, float]]:
        """The k documents that are nearest to a vector, each with its distance."""
        found = self._documents.search(embedding, k, filter=filter)
        return [(_document(each), float(each.distance or 0)) for each in found]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: AnyFilter | None = None,  # noqa: A002
    ) -> list[Document]:
        """Documents that are near to a text and differ from each other.

        Parameters
        ----------
        query : a text
        k : how many
        fetch_k : from how many nearest documents they are chosen
        lambda_mult : 1 considers only how near documents are, 0 only how they differ
        filter : as in :meth:`similarity_search`
        """
        return self.max_marginal_relevance_search_by_vector(
            self._embedding.embed_query(query), k, fetch_k, lambda_mult, filter=filter
        )

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: ArrayLike,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: AnyFilter | None = None,  # noqa: A002
    ) -> list[Document]:
        """Documents that are near to a vector and differ from each other."""
        found = self._documents.search(embedding, fetch_k, filter=filter)
        vectors = self._documents.vectors([each.id for each in found])
        chosen = maximal_marginal_relevance(
            np.asarray(embedding, np.float32), list(vectors), lambda_mult, k
        )
        return [_document(found[at]) for at in chosen]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the store to a folder, which a new store opens by ``path=``."""
        self._documents.save(path)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        found: Callable[[float], float] = {
            "cosine": self._cosine_relevance_score_fn,
            "l2": self._euclidean_relevance_score_fn,
            "ip": self._max_inner_product_relevance_score_fn,
        }[self._documents.metric]
        return found


def _document(found: Found) -> Document:
    return Document(id=found.id, page_content=found.text, metadata=found.metadata)
