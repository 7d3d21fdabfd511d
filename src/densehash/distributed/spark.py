"""Spark: codes of a column of a DataFrame, and the neighbours of its rows.

Both go through ``mapInArrow``: Spark hands Arrow batches to its Python workers, on which densehash
must be installed, too. A task computes with one thread, because Spark runs a task on every core.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from densehash.checks import check_integer
from densehash.datasets.pieces import PieceRows
from densehash.datasets.reading import import_extra
from densehash.errors import FileError, InputError
from densehash.hashers import Hasher
from densehash.hashers.state import HasherState, hasher_of, state_of
from densehash.index import Index
from densehash.index.index import index_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["encode", "top_k"]

_ADDED = ("rank", "neighbor", "distance")
_OPTIONS = ("candidates", "exclude_self", "filter", "metric", "probes", "radius", "rerank")
_KEPT = 4  # hashers, and indexes, that a worker keeps from one task to the next

Answer = Callable[[Any, NDArray[Any]], Iterator[Any]]


def encode(df: DataFrame, hasher: Hasher, column: str, *, output: str = "code") -> DataFrame:
    """Add a column of codes.

    Parameters
    ----------
    df : DataFrame of Spark
    hasher : a fitted hasher
    column : the column of vectors: ``array<float>``, arrays of another type of numbers, or dense
        vectors of ``pyspark.ml``. They must be finite, not null, and as long as the vectors that
        the hasher learnt from.
    output : name of the new column, default "code"

    Returns
    -------
    DataFrame : all columns of ``df`` unchanged, then ``output``: binary, ceil(n_bits / 8) bytes, as
        ``hasher.transform`` makes them. As always in Spark, it is computed when you use it; if a
        row is wrong, the error comes then.

    Examples
    --------
    >>> df = spark.createDataFrame([(7, [0.0, 1.0])], "id int, v array<float>")  # doctest: +SKIP
    >>> encode(df, hasher, "v").show()  # doctest: +SKIP
    +---+----------+----+
    | id|         v|code|
    +---+----------+----+
    |  7|[0.0, 1.0]|[03]|
    +---+----------+----+
    >>> encode([[0.0, 1.0]], hasher=None, column="v")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: df must be a DataFrame of Spark, got a list
    """
    place = _vector_place(df, column)
    if not isinstance(hasher, Hasher):
        raise InputError(f"hasher must be a Hasher, got a {type(hasher).__name__}")
    check_is_fitted(hasher)
    if type(output) is not str or output == "":
        raise InputError(f"output must be the name of a column, got {output!r}")
    # Sent as plain data, not pickled: a worker checks it as it checks a saved hasher, and refuses
    # what its version of densehash does not know.
    state = state_of(hasher)
    state.description["learnt"].pop("feature_names_in_", None)  # arrays of Spark have no names
    model = _Model(secrets.token_hex(8), state)

    def encoded(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _encoded(batches, column, place, model)

    everything = range(len(df.columns))
    return _mapped(df, everything, len(everything), encoded, {output: "BinaryType"})


def top_k(
    df: DataFrame,
    index_path: str | os.PathLike[str],
    column: str,
    k: int = 10,
    *,
    id_column: str | None = None,
    **search: Any,
) -> DataFrame:
    """Join every row with its nearest neighbours in an index.

    Parameters
    ----------
    df : DataFrame of Spark
    index_path : a folder that :meth:`densehash.Index.save` has made, on storage that the driver and
        every worker see under this path. A task sees the index as it is when the task begins.
    column : the column of queries, as in :func:`encode`
    k : how many neighbours, default 10
    id_column : the only column of ``df`` to return; default: all columns
    **search : ``candidates``, ``exclude_self`` (True or False), ``filter``, ``metric``, ``probes``,
        ``radius`` and ``rerank`` of :meth:`densehash.Index.search`

    Returns
    -------
    DataFrame : a row for each neighbour of each row, at most k: columns of ``df``, then ``rank``
        (int, from 1 on), ``neighbor`` (its id: bigint or string, as in the index) and ``distance``
        (float, or int with ``rerank=None``)

    Examples
    --------
    >>> top_k(df, "items.dh", "v", 2, id_column="id").show()  # doctest: +SKIP
    +---+----+--------+--------+
    | id|rank|neighbor|distance|
    +---+----+--------+--------+
    |  7|   1|      12|     0.0|
    |  7|   2|       3|     1.5|
    +---+----+--------+--------+
    >>> top_k([[0.0, 1.0]], "items.dh", "v")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: df must be a DataFrame of Spark, got a list
    """
    place = _vector_place(df, column)
    sent: Sequence[int] = range(len(df.columns))
    n_kept = len(sent)
    if id_column is not None:  # only these columns go to Python and back
        first = _place_of(df, id_column)
        sent, n_kept = ([first] if first == place else [first, place]), 1
    path = Path(index_path).absolute()  # workers have another working directory
    index = _opened(path)
    index.refresh()
    request = _Request(path, check_integer(k, "k", 1), search, index.info()["ids"])
    request.check(index)
    at = sent.index(place)

    def joined(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _joined(batches, column, at, n_kept, request)

    types = (
        "IntegerType",
        "LongType" if request.id_type == "int64" else "StringType",
        "IntegerType" if search.get("rerank", "auto") is None else "FloatType",
    )
    return _mapped(df, sent, n_kept, joined, dict(zip(_ADDED, types, strict=True)))


# --- on the driver ------------------------------------------------------------------------


def _place_of(df: DataFrame, column: str) -> int:
    """Which column is meant."""
    if not hasattr(df, "mapInArrow"):
        raise InputError(f"df must be a DataFrame of Spark, got a {type(df).__name__}")
    names = list(df.columns)
    if column not in names:
        there = ", ".join(map(repr, names)) or "none"
        raise InputError(f"df has no column {column!r}; its columns are {there}")
    if names.count(column) > 1:
        raise InputError(f"df has {names.count(column)} columns {column!r}: rename one of them")
    return names.index(column)


def _vector_place(df: DataFrame, column: str) -> int:
    place = _place_of(df, column)
    types = import_extra("pyspark.sql.types", "spark")
    import_extra("pyarrow", "spark")
    kind = df.schema.fields[place].dataType
    numbers = ("Byte", "Short", "Integer", "Long", "Float", "Double")
    if type(kind).__name__ == "VectorUDT" or (
        isinstance(kind, types.ArrayType)
        and isinstance(kind.elementType, tuple(getattr(types, f"{one}Type") for one in numbers))
    ):
        return place
    raise InputError(
        f"column {column!r} must be arrays of numbers, or vectors of pyspark.ml, "
        f"got {kind.simpleString()}"
    )


def _mapped(
    df: DataFrame,
    sent: Sequence[int],
    n_kept: int,
    function: Callable[[Iterator[Any]], Iterator[Any]],
    added: Mapping[str, str],
) -> DataFrame:
    """A DataFrame of what a function makes of batches.

    Parameters
    ----------
    df : DataFrame
    sent : places of the columns that batches have, in their order
    n_kept : how many of these, from the first on, the answer has
    function : makes batches of batches
    added : the columns that follow in the answer, and their types
    """
    types = import_extra("pyspark.sql.types", "spark")
    fields = [df.schema.fields[place] for place in sent[:n_kept]]
    taken = {one.name.lower() for one in fields}  # Spark does not tell a from A
    for name in added:
        if name.lower() in taken:
            raise InputError(f"df has a column {name!r} already: rename or drop it")
    fields += [types.StructField(name, getattr(types, kind)()) for name, kind in added.items()]
    # Columns are renamed to numbers for mapInArrow, which cannot find a column whose name has a
    # dot, or is there twice.
    numbered = df.toDF(*map(str, range(len(df.columns)))).select(*map(str, sent))
    return numbered.mapInArrow(function, types.StructType(fields))


# --- on the workers -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    """A hasher that is sent to workers; they tell hashers apart by the token alone."""

    token: str
    state: HasherState = field(compare=False, repr=False)


@lru_cache(_KEPT)
def _built(model: _Model) -> Hasher:
    """The hasher, built once in each process: Spark sends the model again with every task."""
    return hasher_of(*model.state)


@lru_cache(_KEPT)
def _opened(path: Path) -> Index:
    """The index, opened once in each process."""
    return Index.open(path)


@dataclass(frozen=True)
class _Request:
    """The search that every task makes."""

    path: Path
    k: int
    options: Mapping[str, Any]
    id_type: str

    def check(self, index: Index) -> None:
        """Refuse wrong options now, before every task does."""
        for name in self.options:
            if name not in _OPTIONS:
                raise InputError(f"top_k has no option {name!r}; there are {', '.join(_OPTIONS)}")
        if not isinstance(self.options.get("exclude_self", False), bool):
            raise InputError("exclude_self must be True or False: batches have no ids of queries")
        # A search in an index without rows checks the options and costs nothing.
        state = index_state(index)
        query = np.ones((1, state.sketch.n_features), np.float32)
        Index(replace(state, segments=())).search(query, self.k, **self.options)

    def index(self) -> Index:
        """The index as it is now."""
        index = _opened(self.path)
        index.refresh()
        found = index.info()["ids"]
        if found != self.id_type:
            raise FileError(
                f"{self.path} was replaced: its ids are of type {found}, and were {self.id_type} "
                "when the search was planned"
            )
        return index


def _encoded(batches: Iterable[Any], column: str, place: int, model: _Model) -> Iterator[Any]:
    """Batches with one more column, the codes."""
    pa = import_extra("pyarrow", "spark")
    hasher = _built(model)

    def answer(batch: Any, X: NDArray[Any]) -> Iterator[Any]:
        codes = hasher.transform(X)
        kind = pa.binary(codes.shape[1])
        packed = pa.Array.from_buffers(kind, len(X), [None, pa.py_buffer(codes)])
        # Spark has no type for bytes of a fixed length.
        yield _batch(pa, [*batch.columns, packed.cast(pa.binary())])

    return _answers(batches, column, place, hasher.n_features_in_, answer)


def _joined(
    batches: Iterable[Any], column: str, place: int, n_kept: int, request: _Request
) -> Iterator[Any]:
    """Batches of a row for each neighbour."""
    pa = import_extra("pyarrow", "spark")
    index = request.index()
    id_kind = pa.int64() if request.id_type == "int64" else pa.string()

    def answer(batch: Any, X: NDArray[Any]) -> Iterator[Any]:
        ids, distances = index.search(X, request.k, n_threads=1, **request.options)
        there = np.not_equal(ids, np.array(None)) if request.id_type == "string" else ids >= 0
        queries, ranks = np.nonzero(there)
        ids, distances = ids[there], distances[there]
        kept = batch.select(list(range(n_kept)))
        # No batch is longer than the batch of queries: copies of long rows would fill memory.
        for start in range(0, len(queries), len(batch)):
            some = slice(start, start + len(batch))
            yield _batch(
                pa,
                [
                    *kept.take(pa.array(queries[some])).columns,
                    pa.array((ranks[some] + 1).astype(np.int32)),
                    pa.array(ids[some], id_kind),
                    pa.array(distances[some]),
                ],
            )

    return _answers(batches, column, place, index.info()["features"], answer)


def _answers(
    batches: Iterable[Any], column: str, place: int, width: int, answer: Answer
) -> Iterator[Any]:
    """The answers to all batches of a task."""
    with threadpool_limits(1, user_api="blas"):
        for batch in batches:
            if len(batch) == 0:
                continue
            try:
                X = _BatchRows(batch.column(place), column, width)[:]
                yield from answer(batch, X)
            except InputError as error:
                where = f"column {column!r}, in a batch of {len(batch)} rows"
                raise InputError(f"{where}: {error}") from None


def _batch(pa: Any, columns: list[Any]) -> Any:
    """A batch for Spark, which finds columns by their place."""
    return pa.RecordBatch.from_arrays(columns, names=list(map(str, range(len(columns)))))


class _BatchRows(PieceRows):
    """The vectors of a batch, each of which must have ``width`` numbers."""

    def __init__(self, vectors: Any, column: str, width: int) -> None:
        pa = import_extra("pyarrow", "spark")
        self._vectors = vectors
        self._is_struct = pa.types.is_struct(vectors.type)
        lists = vectors.type.field("values").type if self._is_struct else vectors.type
        super().__init__(Path(column), column, pa.list_(lists.value_type, width), [len(vectors)])

    def _column(self, piece: int) -> list[Any]:  # noqa: ARG002  the only one
        if not self._is_struct:
            return [self._vectors]
        # A vector of pyspark.ml: its type (0 sparse, 1 dense), size, indices and values.
        types, _, _, values = self._vectors.flatten()
        sparse = np.flatnonzero(types.to_numpy(zero_copy_only=False) == 0)
        if sparse.size:
            self._refuse(int(sparse[0]), "a sparse vector")
        return [values]

    def _refuse(self, row: int, found: object) -> NoReturn:
        raise InputError(f"expected {self.shape[1]} numbers in row {row}, found {found}")
