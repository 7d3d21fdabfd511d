"""LlamaIndex: a vector store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from densehash.choices import MetricName
from densehash.errors import InputError, MissingExtraError
from densehash.integrations.documents import Document, Documents

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.schema import BaseNode, MetadataMode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ImportError as error:
    raise MissingExtraError(
        f"{error.name} is needed for LlamaIndex: pip install densehash[llama-index]"
    ) from error

if TYPE_CHECKING:
    from densehash.index import Index

__all__ = ["DensehashVectorStore"]

_DOCUMENT = "ref_doc_id"  # as LlamaIndex calls it
_COMPARED = {
    FilterOperator.EQ: "$eq",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
}
_NEGATED = {FilterOperator.NE: "$ne", FilterOperator.NIN: "$nin"}
_OF_LISTS = {FilterOperator.CONTAINS: "$eq", FilterOperator.ANY: "$in"}


class DensehashVectorStore(BasePydanticVectorStore):  # type: ignore[misc]  # of a package that is not read
    """A vector store of LlamaIndex in an index, in memory or in a folder.

    Metadata filters use columns. As in other stores of LlamaIndex, documents without a value match
    ``!=``, ``nin`` and ``is_empty`` and nothing else. ``contains``, ``any`` and ``all`` are for
    lists of strings; ``text_match`` is refused.

    Parameters
    ----------
    path : a folder that is missing, is empty, or has an index of such documents; every change is
        on the disk when the call returns. Default: in memory
    metric : "cosine" (default), "l2" or "ip"; an index that exists keeps its own
    columns : metadata that filters can use: a dict of names and types, as ``{"lang": "string",
        "year": "int64"}``. Default: all metadata of the first nodes that are strings,
        numbers (as float64), booleans or lists of strings. From then on, a value of another type is
        refused

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> store = DensehashVectorStore()
    >>> nodes = [TextNode(id_=t, text=t, embedding=[1.0, i]) for i, t in enumerate(["one", "two"])]
    >>> store.add(nodes)
    ['one', 'two']
    >>> found = store.query(VectorStoreQuery(query_embedding=[1.0, 1.0]))
    >>> found.ids, found.similarities
    (['two'], [1.0])
    """

    stores_text: bool = True
    flat_metadata: bool = False

    _documents: Documents = PrivateAttr()

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        metric: MetricName | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        if columns is not None:
            columns = {**columns, _DOCUMENT: "string"}
        self._documents = Documents(path=path, metric=metric, columns=columns)

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex knows it."""
        return "DensehashVectorStore"

    @property
    def client(self) -> Index | None:
        """The index; None before the first nodes."""
        return self._documents.index

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes with embeddings; a node whose id exists replaces the old one.

        Returns
        -------
        their ids
        """
        ids = [node.node_id for node in nodes]
        self._documents.put(
            ids,
            [node.get_embedding() for node in nodes],
            [node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes],
            [node_to_metadata_dict(node, remove_text=True) for node in nodes],
        )
        return ids

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Nodes by their ids, by filters, or by both; by default, all nodes."""
        return [_node(found) for found in self._documents.get(self._chosen(node_ids, filters))]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Remove all nodes of a document."""
        self._documents.remove(self._documents.matching({_DOCUMENT: ref_doc_id}))

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_: Any,
    ) -> None:
        """Remove nodes by their ids, by filters, or by both."""
        if node_ids is None and filters is None:
            raise InputError("give node_ids or filters; clear() removes all nodes")
        self._documents.remove(self._chosen(node_ids, filters))

    def clear(self) -> None:
        """Remove all nodes."""
        self._documents.remove(self._documents.matching(None))

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """The nodes that are nearest to the embedding of a query.

        Similarities are the cosine, the inner product, or 1 / (1 + distance) for l2.
        """
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise InputError(f"mode must be 'default', got {query.mode.value!r}")
        if query.query_embedding is None:
            raise InputError("query_embedding is needed: nodes are found by their vectors alone")
        chosen: Any = self._filter(query.filters)
        if query.doc_ids:
            of_documents = {_DOCUMENT: {"$in": query.doc_ids}}
            chosen = of_documents if chosen is None else {"$and": [chosen, of_documents]}
        if query.node_ids:
            chosen = set(query.node_ids) & set(self._documents.matching(chosen))
        found = self._documents.search(query.query_embedding, query.similarity_top_k, filter=chosen)
        return VectorStoreQueryResult(
            nodes=[_node(each) for each in found],
            similarities=[_similarity(each, self._documents.metric) for each in found],
            ids=[each.id for each in found],
        )

    def persist(self, persist_path: str, fs: Any = None) -> None:
        """Write the index to a folder, which ``path=`` of a new store opens."""
        if fs is not None and "file" not in fs.protocol:
            raise InputError("an index is written to a local folder: leave fs out")
        self._documents.save(persist_path)

    def _chosen(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> list[str]:
        chosen = self._filter(filters)
        if node_ids is not None and chosen is None:
            return node_ids
        matching = self._documents.matching(chosen)
        if node_ids is None:
            return matching
        there = set(matching)
        return [name for name in node_ids if name in there]

    def _filter(self, filters: MetadataFilters | None) -> dict[str, Any] | None:
        """Filters in the words of :meth:`densehash.Index.search`."""
        index = self._documents.index
        if filters is None or not filters.filters or index is None or not len(index):
            return None
        return _combined(filters, index.info()["payload"])


def _combined(filters: MetadataFilters, kinds: Mapping[str, str]) -> dict[str, Any]:
    parts = [
        _combined(part, kinds) if isinstance(part, MetadataFilters) else _single(part, kinds)
        for part in filters.filters
    ]
    if filters.condition == "not":  # an enumeration of strings, which had no NOT in 0.12.0
        return {"$not": {"$or": parts}}
    return {"$or" if filters.condition == "or" else "$and": parts}


def _single(asked: MetadataFilter, kinds: Mapping[str, str]) -> dict[str, Any]:
    """What a filter says of a column; true or false of every row, so that ``not`` is right."""
    key, value, how = asked.key, asked.value, asked.operator
    is_null = {key: {"$exists": False}}
    is_list = kinds.get(key) == "list of strings"
    if how in _COMPARED:
        return {key: {"$exists": True, _COMPARED[how]: value}}
    if how in _NEGATED:
        return {"$or": [is_null, {key: {_NEGATED[how]: value}}]}
    if how in _OF_LISTS and is_list:
        return {key: {"$exists": True, _OF_LISTS[how]: value}}
    if how == FilterOperator.ALL and is_list and isinstance(value, list):
        return {"$and": [{key: {"$exists": True, "$eq": each}} for each in value]}
    if how == FilterOperator.IS_EMPTY and not is_list:
        return {"$or": [is_null, {key: ""}]} if kinds.get(key) == "string" else is_null
    raise InputError(f"filter {how.value!r} cannot be used for {key!r}, {kinds.get(key)}")


def _similarity(found: Document, metric: str) -> float:
    distance = float(found.distance or 0)
    return {"cosine": 1 - distance, "ip": -distance, "l2": 1 / (1 + distance)}[metric]


def _node(found: Document) -> BaseNode:
    return metadata_dict_to_node(found.metadata, found.text)
