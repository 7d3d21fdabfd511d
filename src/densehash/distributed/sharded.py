"""An index in shards, which a cluster builds and searches, with the answers of one index."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dask.delayed import delayed
from numpy.random import RandomState
from numpy.typing import ArrayLike

from densehash.choices import KindName, MetricName, Rerank, SketchName, VectorType
from densehash.columns import column_of, parts_of_frame
from densehash.distributed.arguments import Told, check_search
from densehash.distributed.batches import Stale, found_together, hits_in
from densehash.distributed.building import copy_shard, most_groups, write_shards
from densehash.distributed.catalog import (
    Catalog,
    Whole,
    catalog_of,
    clear_unfinished,
    content_with,
    sweep,
)
from densehash.distributed.chunks import Chunks, IdChunks, PayloadChunks
from densehash.distributed.doubles import double_id
from densehash.distributed.fetching import PayloadOfShards, payload_in
from densehash.distributed.hits import PartialHits, PartialRanges
from densehash.distributed.measuring import measured
from densehash.distributed.shards import (
    Home,
    Seen,
    marks_of,
    open_shard,
    seen,
    together,
    wrong_with,
)
from densehash.errors import FileError, InputError
from densehash.hashers import Hasher
from densehash.index.arguments import (
    check_own_type,
)
from densehash.index.building import kept_type, learnt
from densehash.index.fetching import no_payload
from densehash.index.filters import AnyFilter
from densehash.index.given import check_given
from densehash.index.hits import Hits, Ranges
from densehash.index.state import CHECKED, State, content_of
from densehash.rows.dask import compute
from densehash.source import Source
from densehash.store import Store, lets_go
from densehash.store.manifest import SHARDS

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self  # in typing from Python 3.11 on

__all__ = ["ShardedIndex", "whole_of"]

_TRIES = 10  # how often a search tries again while shards change


class ShardedIndex:
    """An index whose rows lie in shards: ordinary index folders on storage that workers share.

    :meth:`build` and :meth:`open` make one. The cluster of the current ``distributed.Client`` does
    the work; if there is no client, threads of this process do it.

    All shards share one hasher, or one decoder of signs, and the centres of groups. With codes, the
    answers are those of one :class:`densehash.Index` of all rows with the same hasher and groups:
    the same candidates, ids and distances. With signs, a process searches all its shards as one
    index. If every row is compared (``recall=1``), the answers are those of one index, too. With
    several workers, each looks as far as if it were alone, so together they compare more rows than
    one process would.

    You may open, search and change a shard by itself, with :class:`densehash.Index`; later searches
    of the whole index see the change. Rows that you add to a shard must have ids that no other
    shard has.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> X = da.from_array(np.arange(40.0).reshape(20, 2), chunks=(8, 2))
    >>> with TemporaryDirectory() as folder:
    ...     index = ShardedIndex.build(X, Path(folder, "rows.dh"), n_bits=8, random_state=0)
    ...     index, index.search([[6.0, 7.0]], k=2).ids
    (ShardedIndex(3 shards, flat, 20 rows, signs of 8 bits, float32 vectors, l2), array([[3, 2]]))
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._take()

    # --- made ---------------------------------------------------------------------------------

    @classmethod
    @lets_go
    def build(
        cls,
        X: Any,
        path: str | os.PathLike[str],
        *,
        ids: Any = None,
        column: str | None = None,
        payload: Any = None,
        sketch: SketchName = "auto",
        hasher: str | Hasher = "auto",
        n_bits: int | None = None,
        kind: KindName = "auto",
        metric: MetricName = "l2",
        keep_vectors: bool | VectorType = True,
        n_groups: int | None = None,
        groups_a_row: int | None = None,
        n_tables: int | None = None,
        random_state: int | RandomState | None = None,
        verbose: int = 0,
    ) -> Self:
        """Make an index of rows, with a shard for each chunk that has rows: all of it, or nothing.

        Parameters
        ----------
        X : a dask array (n, d), data frame of numbers, or column of vectors; an array, which is one
            chunk; a Source, which is one chunk unless it has ``chunks``; or a data frame, also of
            Dask, if you give ``column``
        path : a folder that all workers reach under this path. It does not exist yet, or is empty,
            or holds an index in shards, which is replaced when the new one is complete.
        ids : n different integers from 0 on, or n different strings, as an array, or as a dask
            array or column with the chunks of X; or the name of a column, if X is a data frame;
            default: 0 to n - 1
        column : the name of the column of vectors, if X is a data frame with other columns
        payload : columns to keep beside the vectors: a data frame of Dask with the chunks of X,
            such as ``X[["lang", "year"]]``; or a table, a data frame or dicts with n rows, as in
            :meth:`densehash.Index.build`. If numbers have different types in different chunks, they
            are kept in a type that fits all.
        sketch, hasher, n_bits, kind, metric, keep_vectors, n_groups, groups_a_row, n_tables, \
random_state : as in :meth:`densehash.Index.build`. A hasher learns from all rows, on the workers;
            groups and the decoder of signs learn from a sample. With signs, recall is measured when
            all shards are written, by searches for some of the rows in all shards. It is not
            measured if no vectors are kept, or floats as "int8"; a search then looks at every row.
            With the kind "multi" and no ``n_tables``, each shard has tables that suit its own rows;
            the answers of searches with ``probes`` depend on them.
        verbose : 1 shows the progress bars of Dask, default 0

        Raises
        ------
        InputError : if rows or ids are wrong, for instance if an id is in two chunks
        FileError : if the folder cannot be written. After any error, the folder holds what it held
            before.

        Examples
        --------
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     index = ShardedIndex.build(np.eye(8), folder, n_bits=8, random_state=0)
        ...     len(index), len(index.shards)
        (8, 1)
        """
        folder = Path(path).absolute()  # workers may stand elsewhere
        X, ids = parts_of_frame(X, ids, column)
        chunks = Chunks(X)
        names = IdChunks(ids, chunks)
        beside = PayloadChunks(payload, chunks)
        clear_unfinished(folder)
        with Store.creating(folder, form=SHARDS) as change:
            state = learnt(
                chunks.hashed(metric),
                chunks.dtype,
                metric=metric,
                id_type=names.id_type,
                vector_type=kept_type(chunks.dtype, keep_vectors),
                payload=beside.columns,
                sketch=sketch,
                hasher=hasher,
                n_bits=n_bits,
                kind=kind,
                n_groups=n_groups,
                groups_a_row=groups_a_row,
                n_tables=n_tables,
                random_state=random_state,
                most_groups=most_groups(chunks),
                verbose=verbose > 0,
            )
            home = Home(folder, marks_of(state))
            try:
                new = write_shards(home, state, chunks, names, beside, old=[], verbose=verbose)
                content = content_with(content_of(measured(home, state, new, random_state)), new)
                change.publish(content, checked=CHECKED, version=state.format_version)
            finally:
                sweep(folder, change)
        return cls(Store.made_by(change))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open an index in shards. Workers open the shards when they search them.

        Raises
        ------
        FileError : if the folder holds no index in shards, is damaged, or was written by a newer
            version. A lost shard raises an error only when it is searched.

        Examples
        --------
        >>> ShardedIndex.open("/no-such-folder")
        Traceback (most recent call last):
            ...
        densehash.errors.FileError: /no-such-folder is not there
        """
        return cls(Store.open(path, form=SHARDS))

    def refresh(self) -> bool:
        """Read what others have changed since: shards that they added or removed, and their rows.

        Returns
        -------
        whether they changed anything
        """
        before = self._catalog.rows, self._marks
        self._store.refresh()
        self._take()
        self._look()
        return before != (self._catalog.rows, self._marks)

    def verify(self, *, verbose: int = 0) -> None:
        """Compare every file of all shards with its checksum, on the workers, and find double ids.

        Parameters
        ----------
        verbose : 1 shows the progress bar of Dask, default 0

        Raises
        ------
        FileError : if a file is wrong, or an id is in two shards; the error lists all that is wrong
        """
        wrong = []
        try:
            self._store.verify()
        except FileError as error:
            wrong.append(str(error))
        home, names = self._catalog.home, list(self._catalog.rows)
        check = delayed(wrong_with, pure=False)
        found = compute([check(home, name) for name in names], verbose=verbose > 0)
        wrong += [one for one in found if one is not None]
        double = double_id(home, [one for one in self._look() if one.lost is None])
        if double is not None:
            wrong.append(f"id {double[0]!r} is in {' and in '.join(double[1])}")
        if wrong:
            raise FileError(f"{self.path} is wrong: {'; '.join(wrong)}")

    # --- what it is ---------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many rows all shards have; a lost shard counts with the rows it was written with."""
        if not self._marks:
            self._look()
        return sum(self._rows.values())

    def __repr__(self) -> str:
        words = self._catalog.state.in_words(sum(self._rows.values()))
        return f"ShardedIndex({len(self._rows)} shards, {words})"

    @property
    def shards(self) -> tuple[str, ...]:
        """Names of the shards, which are folders in ``path``."""
        return tuple(self._catalog.rows)

    @property
    def path(self) -> Path:
        """The folder of the index."""
        return self._store.path

    @property
    def hasher(self) -> Hasher:
        """The fitted hasher, the same for all shards."""
        return self._catalog.state.hasher

    @property
    def kind(self) -> str:
        """The name of the kind, such as "flat"."""
        return self._catalog.state.kind.name

    @property
    def reason(self) -> str:
        """Which kind was chosen, and why."""
        return self._catalog.state.reason

    @property
    def sketch(self) -> str:
        """The name of the sketch, such as "signs"."""
        return self._catalog.state.sketch.name

    @property
    def recall(self) -> float | None:
        """The share of the 10 nearest rows that a search with default settings finds.

        It was measured with some rows of all shards when they were built. It is None if the index
        keeps codes or no vectors, or if a search compares all rows.
        """
        return self._catalog.state.settings.recall

    @property
    def metric(self) -> str:
        """The metric of searches: "l2", "cosine" or "ip"."""
        return self._catalog.state.metric

    def info(self) -> dict[str, Any]:
        """Counts and sizes, as plain values, also for each shard; if it is lost, it says why.

        Examples
        --------
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     ShardedIndex.build(np.eye(8), folder, n_bits=8, random_state=0).info()["rows"]
        8
        """
        shards = self._look()
        return {
            "path": str(self.path),
            "rows": sum(self._rows.values()),
            **self._catalog.state.about,
            "shards": [
                {
                    "name": one.name,
                    "rows": self._rows[one.name],
                    "bytes_on_disk": one.n_bytes,
                    "lost": one.lost,
                }
                for one in shards
            ],
            "bytes_on_disk": self._store.n_bytes + sum(one.n_bytes for one in shards),
            "generation": self._store.generation,
            "format_version": self._store.version,
        }

    # --- changed ------------------------------------------------------------------------------

    def add_shard(
        self,
        X: Any,
        *,
        ids: Any = None,
        column: str | None = None,
        payload: Any = None,
        verbose: int = 0,
    ) -> tuple[str, ...]:
        """Add rows, with a shard for each chunk; or add a saved index as a shard.

        Parameters
        ----------
        X : rows, as in :meth:`build`; or the path of an index folder with the same hasher, groups,
            metric and types, which is copied
        ids : ids of the rows, as in :meth:`build`. Default, if ids are numbers: the numbers after
            the largest id that the index has ever had. A saved index has its own ids.
        column : the name of the column of vectors, if X is a data frame with other columns
        payload : the payload of the rows, with all columns of the index; needed if the index has a
            payload. In the forms that :meth:`build` takes. A saved index has its own payload.
        verbose : 1 shows the progress bar of Dask, default 0

        Returns
        -------
        names of the new shards

        Raises
        ------
        InputError : if an id is in the index already, or anything else is wrong. The index has not
            changed then.
        FileError : if a saved index does not fit this one (the error says what differs), or if a
            shard is lost, so that new ids cannot be compared with its ids
        """
        return self._with_new((), X, ids, column, payload, verbose)

    def replace_shard(
        self,
        name: str,
        X: Any,
        *,
        ids: Any = None,
        column: str | None = None,
        payload: Any = None,
        verbose: int = 0,
    ) -> tuple[str, ...]:
        """Replace a shard, which may be lost, by new ones, in one change.

        Parameters
        ----------
        name : the name of the shard
        X, ids, column, payload, verbose : as in :meth:`add_shard`

        Returns
        -------
        names of the new shards
        """
        return self._with_new((name,), X, ids, column, payload, verbose)

    def remove_shard(self, name: str) -> None:
        """Remove a shard, which may be lost, and its rows.

        Parameters
        ----------
        name : the name of the shard
        """
        self._change((name,), lambda _catalog, _others: [])

    # --- asked --------------------------------------------------------------------------------

    @overload
    def search(
        self,
        Q: ArrayLike | Source,
        k: int | None = None,
        *,
        radius: None = None,
        candidates: int | None = None,
        rerank: Rerank | None = "auto",
        metric: MetricName | None = None,
        filter: AnyFilter | None = None,
        exclude_self: bool | ArrayLike = False,
        recall: float | None = None,
        probes: int | None = None,
        column: str | None = None,
        allow_partial: bool = False,
    ) -> PartialHits: ...
    @overload
    def search(
        self,
        Q: ArrayLike | Source,
        k: int,
        *,
        radius: float | None,
        candidates: int | None = None,
        rerank: Rerank | None = "auto",
        metric: MetricName | None = None,
        filter: AnyFilter | None = None,
        exclude_self: bool | ArrayLike = False,
        recall: float | None = None,
        probes: int | None = None,
        column: str | None = None,
        allow_partial: bool = False,
    ) -> PartialHits: ...
    @overload
    def search(
        self,
        Q: ArrayLike | Source,
        k: None = None,
        *,
        radius: float,
        candidates: int | None = None,
        rerank: Rerank | None = "auto",
        metric: MetricName | None = None,
        filter: AnyFilter | None = None,
        exclude_self: bool | ArrayLike = False,
        recall: float | None = None,
        probes: int | None = None,
        column: str | None = None,
        allow_partial: bool = False,
    ) -> PartialRanges: ...
    def search(
        self,
        Q: ArrayLike | Source,
        k: int | None = None,
        *,
        radius: float | None = None,
        candidates: int | None = None,
        rerank: Rerank | None = "auto",
        metric: MetricName | None = None,
        filter: AnyFilter | None = None,  # noqa: A002
        exclude_self: bool | ArrayLike = False,
        recall: float | None = None,
        probes: int | None = None,
        column: str | None = None,
        allow_partial: bool = False,
    ) -> PartialHits | PartialRanges:
        """Find the neighbours of queries in all shards.

        Parameters
        ----------
        Q : rows (q, d), or one vector, as in :meth:`densehash.Index.search`; finite
        column : the name of the column of vectors, if Q is a data frame with other columns
        k : how many neighbours, default 10; with ``radius`` alone, all within the radius
        radius, candidates, rerank, metric, exclude_self, recall, probes : as in
            :meth:`densehash.Index.search`. On a cluster, ``radius`` and ``exclude_self`` work only
            with signs.
        filter : which rows a search may find. By the payload: a dict, words, or an Expression of
            pyarrow, as in :meth:`densehash.Index.search`. By ids: an array or a set of ids, or a
            function that takes arrays of ids and returns booleans; the workers call it. If k rows
            match, k are found.
        allow_partial : True leaves out shards that cannot be read, and ``missing`` names them.
            False (default) raises an error.

        Returns
        -------
        PartialHits : ``ids`` (q, k) and ``distances`` (q, k), ordered by (distance, id), and
            ``missing``. For one vector, ids and distances have shape (k,).
        PartialRanges : ``limits`` (q + 1,), ``ids`` and ``distances`` (m,), and ``missing``, if you
            give ``radius`` but no ``k``

        Raises
        ------
        FileError : if a shard cannot be read, unless ``allow_partial`` is True

        Examples
        --------
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> X = np.arange(20, dtype=np.float32).reshape(10, 2)
        >>> with TemporaryDirectory() as folder:
        ...     index = ShardedIndex.build(X, folder, n_bits=8, random_state=0)
        ...     index.search(X[3:4], k=2, filter=[1, 2, 8])
        PartialHits(ids=array([[2, 1]]), distances=array([[2.828427, 5.656854]], dtype=float32), \
missing=())
        """
        if column is not None:
            Q = column_of(Q, column)
        while True:
            told = check_search(
                self._catalog,
                Q,
                k,
                radius=radius,
                candidates=candidates,
                rerank=rerank,
                metric=metric,
                filter=filter,
                exclude_self=exclude_self,
                recall=recall,
                probes=probes,
            )
            found = self._found(told, allow_partial=allow_partial)
            if found is not None:
                return found
            self._take()  # others have changed the index: search again

    def payload(self, ids: ArrayLike) -> pa.Table:
        """The payload of rows; workers read it from the shards.

        Parameters
        ----------
        ids : (m,), all in the index

        Returns
        -------
        pyarrow Table of m rows, in the order of the ids

        Raises
        ------
        FileError : if a shard cannot be read

        Examples
        --------
        >>> import numpy as np
        >>> from tempfile import TemporaryDirectory
        >>> years = [{"year": year} for year in (1999, 2004, 2011, 2020)]
        >>> with TemporaryDirectory() as folder:
        ...     index = ShardedIndex.build(np.eye(4), folder, n_bits=8, payload=years)
        ...     index.payload([2, 0]).to_pylist()
        [{'year': 2011}, {'year': 1999}]
        """
        state = self._catalog.state
        if state.payload is None:
            raise no_payload()
        wanted = check_own_type(ids, state)
        return payload_in(self._catalog.home, self.shards, state.payload, wanted)

    # --- inside -------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).open, (self.path,)

    def _take(self) -> None:
        """Read the catalog from the store."""
        self._catalog: Catalog = catalog_of(self._store.path, self._store.content)
        self._rows = dict(self._catalog.rows)
        self._marks: dict[str, str] = {}

    def _look(self) -> list[Seen]:
        """Look at all shards, on the workers: their rows, marks, and whether they are lost."""
        look = delayed(seen, pure=False)
        found: list[Seen] = compute([look(self._catalog.home, name) for name in self._rows])
        self._marks = {one.name: one.mark for one in found}
        self._count({one.name: one.n_rows for one in found if one.lost is None})
        return found

    def _count(self, rows: dict[str, int]) -> None:
        """Note how many rows shards have now, in one assignment, for other threads."""
        self._rows = {name: rows.get(name, n) for name, n in self._rows.items()}

    def _found(self, told: Told, *, allow_partial: bool) -> PartialHits | PartialRanges | None:
        """What shards have found; None if others have replaced a lost shard: then search again."""
        state, gone = self._catalog.state, dict[str, str]()
        changing: list[str] = []
        for _ in range(_TRIES):
            rows = {name: n for name, n in self._rows.items() if name not in gone}
            search = told.search_of(Whole.of(state, sum(rows.values())))
            hits: Hits | Ranges
            try:
                if not rows:
                    hits = told.none
                elif told.one_by_one:
                    hits = hits_in(search, state, told.question, rows)
                else:
                    hits = found_together(
                        search, state, told.question, rows, own=told.own, ranges=told.ranges
                    )
            except Stale as stale:
                looks, changing = stale.looks.items(), list(stale.looks)
                self._count({name: look.n_rows for name, look in looks if look.lost is None})
                lost = {name: look.lost for name, look in looks if look.lost is not None}
                if lost and self._store.refresh():
                    return None
                if lost and not allow_partial:
                    raise self._lost(lost) from None
                gone |= lost
            else:
                missing = tuple(name for name in self._catalog.rows if name in gone)
                if isinstance(hits, Ranges):
                    return PartialRanges(*hits, missing)
                found = PartialHits(*(hits.first if told.is_one else hits), missing)
                if state.payload is not None:
                    found.searched = PayloadOfShards(
                        self._catalog.home, tuple(rows), state.payload, state.id_type
                    )
                return found
        raise FileError(
            f"shards of {self.path} change faster than they are searched: {', '.join(changing)}"
        )

    def _lost(self, lost: dict[str, str]) -> FileError:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in lost.items())
        return FileError(
            f"{len(lost)} of {len(self._rows)} shards of {self.path} cannot be read: {reasons}. "
            "Replace or remove them, or search the others with allow_partial=True"
        )

    def _with_new(
        self,
        gone: tuple[str, ...],
        X: Any,
        ids: Any,
        column: str | None,
        payload: Any,
        verbose: int,
    ) -> tuple[str, ...]:
        """Replace some shards, or none, by new ones."""
        if isinstance(X, (str, os.PathLike)):
            source = Path(X).absolute()
            given = {"ids": ids, "column": column, "payload": payload}
            for name, value in given.items():
                if value is not None:
                    raise InputError(
                        f"a saved index has its own ids, columns and payload: {name} must be None"
                    )
            if self.path in (source, *source.parents):
                raise InputError(
                    f"{source} lies in the folder of this index, which removes all that does not "
                    "belong to it: move it elsewhere first"
                )

            def make(catalog: Catalog, others: list[Seen]) -> list[Seen]:
                return copy_shard(catalog.home, source, old=others)

        else:
            X, ids = parts_of_frame(X, ids, column)
            chunks = Chunks(X)

            def make(catalog: Catalog, others: list[Seen]) -> list[Seen]:
                home, state = catalog.home, catalog.state
                if ids is None and state.id_type == "string":
                    raise InputError(
                        "the ids of this index are strings: give ids for the rows that you add"
                    )
                first = max([state.next_id, *(one.next_id for one in others)])
                names = IdChunks(ids, chunks, first=first)
                check_given(payload, state.payload)
                beside = PayloadChunks(payload, chunks, state.payload)
                return write_shards(home, state, chunks, names, beside, old=others, verbose=verbose)

        return self._change(gone, make)

    @lets_go
    def _change(
        self, gone: tuple[str, ...], make: Callable[[Catalog, list[Seen]], list[Seen]]
    ) -> tuple[str, ...]:
        """Publish the index without some shards, and with the new ones that ``make`` writes."""
        with self._store.change() as change:
            self._take()
            for name in gone:
                if name not in self._rows:
                    raise InputError(
                        f"there is no shard {name!r}: there are {', '.join(self._rows) or 'none'}"
                    )
            sweep(self.path, change)
            try:
                seen_now = {one.name: one for one in self._look()}
                # A lost shard stays in the list as it was.
                others = [
                    one._replace(n_rows=self._rows[name])
                    for name, one in seen_now.items()
                    if name not in gone
                ]
                new = make(self._catalog, others)
                content = content_with(change.content, [*others, *new])
                version = self._catalog.state.format_version
                change.publish(content, checked=CHECKED, version=version)
            finally:
                sweep(self.path, change)
                self._take()
        return tuple(one.name for one in new)


def whole_of(index: ShardedIndex) -> State:
    """All rows as one index, which this process reads; an error names a damaged shard."""
    home, state, rows = index._catalog
    shards = {name: open_shard(home, name, payload=True) for name in rows}
    return together(home, shards) if shards else state
