"""Documents in an index: ids, texts and metadata beside their vectors.

The text and all metadata, as JSON, are columns of the payload. So metadata may differ from document
to document, although all rows have the same columns. Metadata that filters use have columns of
their own, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densehash.checks import check_choice
from densehash.choices import MetricName
from densehash.errors import InputError
from densehash.index import Index
from densehash.index.columns import NUMBERS, Columns, arrow, check_columns, kind_of, schema_of
from densehash.index.filters import AnyFilter
from densehash.index.payload import converting
from densehash.locks import new_lock
from densehash.truth import METRICS

__all__ = ["Document", "Documents"]

_TEXT, _METADATA = "text", "metadata"
_OWN = ((_TEXT, "string"), (_METADATA, "string"))


class Document(NamedTuple):
    """A document as it was found.

    Attributes
    ----------
    id : str
    text : str
    metadata : dict of any JSON kind
    distance : distance from the query; None if there was no query
    """

    id: str
    text: str
    metadata: dict[str, Any]
    distance: float | None = None


class Documents:
    """Texts with metadata and vectors, in memory or in a folder.

    The first documents that are added make the index: they decide the width of vectors and, if
    ``columns`` is None, the columns. It compares every vector until there are enough to learn from
    (:meth:`densehash.Index.create`).

    Parameters
    ----------
    path : a folder that is missing, is empty, or has an index of such documents; every change is
        on the disk when the call returns. Default: in memory
    metric : "cosine" (default), "l2" or "ip"; an index that exists keeps its own
    columns : metadata that filters can use: a dict of names and types, as ``{"lang": "string",
        "year": "int64"}``; docs/payload.md lists the types. Default: all metadata of the first
        documents that are strings, numbers (as float64), booleans or lists of strings, and whose
        names do not begin with ``_``. From then on, a value of another type is refused

    Attributes
    ----------
    index : the Index; None before the first documents

    Examples
    --------
    >>> documents = Documents()
    >>> documents.put(["a", "b"], np.eye(2), ["one", "two"], [{"lang": "en"}, {"lang": "de"}])
    >>> documents.search([0.0, 1.0], k=1)
    [Document(id='b', text='two', metadata={'lang': 'de'}, distance=0.0)]
    >>> [found.text for found in documents.search([0.0, 1.0], k=9, filter={"lang": "en"})]
    ['one']
    """

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        metric: MetricName | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        arrow()  # said now rather than when the first documents come
        if metric is not None:
            check_choice(metric, "metric", METRICS)
        self.index: Index | None = None
        self._path, self._metric = path, metric
        self._columns = None if columns is None else _check_columns(columns)
        self._lock = new_lock()
        self._open()

    def __len__(self) -> int:
        return 0 if self.index is None else len(self.index)

    @property
    def metric(self) -> str:
        """The metric of searches."""
        return (self._metric or "cosine") if self.index is None else self.index.metric

    def put(
        self,
        ids: Sequence[str],
        vectors: ArrayLike,
        texts: Sequence[str],
        metadata: Sequence[Mapping[str, Any]],
    ) -> None:
        """Add documents; a document whose id exists replaces the old one.

        Parameters
        ----------
        ids : n different strings
        vectors : real array of shape (n, d), finite
        texts, metadata : n of each
        """
        if not ids:
            return
        rows = np.asarray(vectors, np.float32)
        with self._lock:
            if self.index is None or not len(self):
                self._open()  # another process may have made it, or chosen its columns
            columns = self._columns_there()
            if not columns:
                chosen = _columns_of(metadata) if self._columns is None else self._columns
                columns = (*_OWN, *chosen)
            table = _table(columns, ids, texts, metadata)
            index = self.index
            if index is None:
                index = Index.create(
                    rows.shape[-1], metric=self._metric or "cosine", path=self._path
                )
            index.upsert(ids, rows, payload=table)
            self.index = index

    def get(self, ids: Sequence[str]) -> list[Document]:
        """Documents by their ids, in that order; unknown ids are skipped."""
        if self.index is None:
            return []
        there = [name for name in ids if name in self.index]
        rows = self.index.payload(there).to_pylist() if there else []
        return [_document(name, row) for name, row in zip(there, rows, strict=True)]

    def vectors(self, ids: Sequence[str]) -> NDArray[Any]:
        """The vectors of documents that exist, (n, d)."""
        if self.index is None:
            return np.empty((0, 0), np.float32)
        return self.index.get(ids)

    def matching(self, filter: AnyFilter | None) -> list[str]:  # noqa: A002
        """Ids of documents by a filter of :meth:`densehash.Index.search`; None is all of them."""
        if self.index is None or not len(self):  # columns come with documents
            return []
        found: list[str] = self.index.matching(filter).tolist()
        return found

    def remove(self, ids: Sequence[str]) -> None:
        """Remove documents; unknown ids are skipped."""
        if self.index is not None and len(ids):
            self.index.remove(ids)

    def search(
        self,
        vector: ArrayLike,
        k: int,
        *,
        filter: AnyFilter | None = None,  # noqa: A002
    ) -> list[Document]:
        """The documents whose vectors are nearest to one, nearest first.

        Parameters
        ----------
        vector : real array of shape (d,)
        k : how many
        filter : as in :meth:`densehash.Index.search`
        """
        if self.index is None or not len(self):
            return []
        asked = np.asarray(vector, np.float32)
        (found,) = self.index.search(asked, k, filter=filter).to_dicts()
        return [_document(row["id"], row, row["distance"]) for row in found]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder, as :meth:`densehash.Index.save` does."""
        if self.index is None:
            raise InputError("there are no documents yet, so there is no index to save")
        self.index.save(path)

    def _columns_there(self) -> Columns:
        """Those of the index; none before the first documents."""
        about = {} if self.index is None else self.index.info()
        return tuple((about.get("payload") or {}).items())

    def _open(self) -> None:
        """Take the index that is in the folder, if there is one."""
        if self._path is None or not Path(self._path).exists():
            return
        if not any(Path(self._path).iterdir()):
            return
        index = Index.open(self._path)
        about = index.info()
        found = tuple((about["payload"] or {}).items())
        if self._metric not in (None, index.metric):
            raise InputError(
                f"metric is {self._metric!r}, but the index in {self._path} has "
                f"{index.metric!r}: leave metric out"
            )
        if about["ids"] is None:  # nothing has come yet
            self.index = index
            return
        if about["ids"] != "string" or not set(_OWN) <= set(found):
            raise InputError(
                f"{self._path} is an index without documents: it needs ids that are strings, and "
                f"a payload with the strings {_TEXT!r} and {_METADATA!r}, of which the second is "
                "JSON"
            )
        if self._columns is not None and set(self._columns) != set(found) - set(_OWN):
            raise InputError(
                f"columns are {dict(self._columns)}, but the index in {self._path} has "
                f"{dict(pair for pair in found if pair not in _OWN)}: leave columns out"
            )
        self.index = index


def _check_columns(columns: Mapping[str, str]) -> Columns:
    reserved = sorted({_TEXT, _METADATA} & set(columns))
    if reserved:
        raise InputError(f"columns has {reserved[0]!r}, a name that the store uses itself")
    if not columns:
        return ()
    try:
        return check_columns([[name, kind] for name, kind in columns.items()])
    except OSError as error:
        raise InputError(f"columns must be a dict of names and types: {error}") from None


def _columns_of(metadata: Sequence[Mapping[str, Any]]) -> Columns:
    """Those values of metadata that can be columns."""
    pa = arrow()
    names = dict.fromkeys(name for row in metadata for name in row if not name.startswith("_"))
    found = []
    for name in names:
        try:
            kind = kind_of(pa.array([row.get(name) for row in metadata]).type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # of several types
            continue
        if kind in NUMBERS:
            kind = "float64"  # a 1 may be a 1.5 in documents that come later
        if kind is not None and name not in (_TEXT, _METADATA):
            found.append((name, kind))
    return tuple(found)


def _table(
    columns: Columns,
    ids: Sequence[str],
    texts: Sequence[str],
    metadata: Sequence[Mapping[str, Any]],
) -> Any:
    """The payload of documents."""
    pa = arrow()
    values: dict[str, Sequence[Any]] = {
        _TEXT: texts,
        _METADATA: [_json(name, row) for name, row in zip(ids, metadata, strict=True)],
    }
    arrays = []
    for field in schema_of(columns):
        beside = values.get(field.name)
        if beside is None:
            beside = [row.get(field.name) for row in metadata]
        try:
            with converting(field.name):
                arrays.append(pa.array(beside, field.type))
        except InputError as error:
            raise InputError(
                f"{error}; make the store with columns=..., in which {field.name!r} has another "
                "type, or from which it is left out"
            ) from None
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def _json(name: str, metadata: Mapping[str, Any]) -> str:
    try:
        return json.dumps(metadata, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"metadata of {name!r} must be something JSON can hold: {error}") from None


def _document(name: str, row: Mapping[str, Any], distance: float | None = None) -> Document:
    return Document(name, row[_TEXT], json.loads(row[_METADATA]), distance)
