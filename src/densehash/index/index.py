"""The index: vectors in, neighbours out, in memory or on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

from densehash.checks import VectorsLike
from densehash.choices import GraphMode, KindName, MetricName, Rerank, SketchName, VectorType
from densehash.columns import parts_of_frame
from densehash.errors import FileError, InputError
from densehash.index.arguments import (
    USUAL_K,
    check_k,
    check_own_type,
    question_of,
)
from densehash.index.building import kept_type, rows_to_build, state_of_codes
from densehash.index.changes import (
    Upserted,
    check_new,
    locate,
    with_rows,
    without_ids,
)
from densehash.index.editing import added, check_rows, compacted, updated, upserted
from densehash.index.fetching import payload_of, vectors_of
from densehash.index.filters import AnyFilter, matching_ids
from densehash.index.given import payload_rows
from densehash.index.hits import Hits, Ranges
from densehash.index.ids import check_ids, public_ids, type_of
from densehash.index.learning import LEARN_AT, built, state_to_learn
from densehash.index.pairs import Pairs, near_duplicates, neighbors_graph
from densehash.index.placing import MEMORY, Place, on_disk
from densehash.index.search import search
from densehash.index.state import (
    CHECKED,
    Settings,
    State,
    content_of,
    state_at,
    with_segments_of,
)
from densehash.index.tuning import Tuning, tune
from densehash.locks import new_lock
from densehash.notebook import facts
from densehash.progress import shows_bars
from densehash.source import Source
from densehash.store import Store, lets_go
from densehash.store.manifest import INDEX
from densehash.tensors import memory_named

if TYPE_CHECKING:
    import pyarrow as pa
    from scipy.sparse import csr_matrix
    from typing_extensions import Self  # in typing from Python 3.11 on

    from densehash.hashers import Hasher

__all__ = ["Index", "index_state"]


class Index:
    """Vectors with ids, their codes, and the way from a query to its neighbours.

    An index is made by :meth:`build`, :meth:`create` or :meth:`open`. One that was built lives in
    memory until it is saved. One that was opened reads its folder as far as it is asked, and every
    change of it is on the disk, whole, when the call returns. Threads may search while one changes
    the index: each search sees it before or after a change.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> index = Index.build(X, hasher="itq", n_bits=64, random_state=0)
    >>> hits = index.search(X[:2], k=3)
    >>> hits.ids
    array([[   0,  877, 1365],
           [   1,   93, 1120]])
    >>> index.remove([877])
    1
    >>> index.search(X[:1], k=2).ids
    array([[   0, 1365]])
    """

    def __init__(
        self, state: State | None = None, store: Store | None = None, **other: object
    ) -> None:
        # Other libraries are called like this: Index(384), Index(ndim=384), Index("l2", 384).
        if not isinstance(state, State) or other:
            raise InputError(
                "an index is made by Index.build(X) of rows, by Index.open(path) of a folder that "
                "was saved, or by Index.create(384) for rows of 384 features that come later; "
                "Index(...) is not called by itself"
            )
        self._state, self._store = state, store
        self._mark = None if store is None else store.mark
        self._lock = new_lock()

    # --- made ---------------------------------------------------------------------------------

    @classmethod
    @lets_go
    @memory_named()
    def build(
        cls,
        X: VectorsLike,
        *,
        ids: ArrayLike | str | None = None,
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
        path: str | os.PathLike[str] | None = None,
        verbose: int | None = None,
    ) -> Self:
        """Make an index of rows, in memory or in a folder.

        Parameters
        ----------
        X : real array of shape (n, d), a memory map of one, or a Source; a tensor, of which groups
            and sketches are made on a GPU if it is on one; a column of vectors (pandas, polars,
            Arrow, an array of objects); or a data frame or Arrow table, of numbers or with
            ``column``; finite; at least 2 rows
        ids : n different integers from 0 on, or n different strings; or the name of a column of
            the frame X; 0 to n - 1 without
        column : the name of the column of vectors, where X is a frame that has others
        payload : what to keep beside the vectors, to be read with what a search finds and to be
            filtered by: a pyarrow Table or RecordBatch, a pandas or polars DataFrame, or a list of
            dicts, of n rows. Columns are numbers, booleans, strings, binary, dates, timestamps or
            lists of strings, with nulls. It needs the extra ``payload``
        sketch : what is kept of a row: "signs" with a decoder, from which distances are estimated,
            so that few vectors are compared; or "codes" of a hasher, which are compared by Hamming
            distance. Signs go with the kinds flat and grouped. "auto" is signs, where no hasher,
            another kind, or a number of bits is given that only codes have
        hasher : for codes: the name of a method ("dsh", "itq", ...), a Hasher that has learnt, or
            one that is to learn from X, which is not changed. "auto" is ITQ, with a random
            rotation where there are more bits than features
        n_bits : length of the codes, 256 without; a Hasher has its own. Of signs, a multiple of 8
            up to 1,024; without, 160 for up to 128 features and 256 for more
        kind : "flat", "grouped", "multi", or "auto", which chooses by size: ``index.reason`` says
            what and why
        metric : "l2", "cosine" or "ip" (the inner product), what searches go by; for "cosine" rows
            are scaled to length one before they are hashed
        keep_vectors : True keeps vectors for exact re-ranking in their own type (float32, float16,
            uint8, int8; float32 where it is another), and a name of one of these keeps them so.
            "int8" keeps whole numbers from -128 to 127; of signs also floats, each row with a
            scale: they lose little. False keeps none: signs then come with a longer sketch, by
            which rows are compared
        n_groups : for the grouped kind; about 1.3 times the root of n without, and of signs 2 times
        groups_a_row : of signs in groups: in how many of them a row lies, 1 (default) or 2. Two
            take twice the memory of the sketch and longer to build; searches of GIST and WordNet
            vectors were 8 to 10% faster, of SIFT no faster
        n_tables : for the multi kind; n_bits / log2(n) without
        random_state : of a hasher that is named, and of the groups
        path : a folder that is missing, empty, or an index. The index is made there, piece by
            piece, of more rows than memory holds, and returned as :meth:`open` does. It appears
            when it is whole; one that was there stays until then, and after any error.
        verbose : 1 shows bars while it takes long, 0 none; without, they are shown in a terminal

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((500, 16), dtype=np.float32)
        >>> index = Index.build(X, ids=[f"row {i}" for i in range(500)], hasher="dsh", n_bits=32)
        >>> index
        Index(flat, 500 rows, 32 bits of DSH, float32 vectors, l2)
        >>> index.search(X[7:8], k=1).ids
        array([['row 7']], dtype=object)
        """
        X, ids = parts_of_frame(X, ids, column)
        vectors, hashed = rows_to_build(X, metric)
        shown = shows_bars(verbose)
        vector_type = kept_type(vectors.dtype, keep_vectors)
        names = None if ids is None else check_ids(ids)
        if names is not None:
            check_new(names, len(vectors))
        beside = None if payload is None else payload_rows(payload, len(vectors))

        made = partial(
            built,
            vectors,
            names,
            beside,
            hashed=hashed,
            metric=metric,
            vector_type=vector_type,
            random_state=random_state,
            sketch=sketch,
            hasher=hasher,
            n_bits=n_bits,
            kind=kind,
            n_groups=n_groups,
            groups_a_row=groups_a_row,
            n_tables=n_tables,
            verbose=shown,
        )
        needed = 0
        if vector_type is not None:
            needed = len(vectors) * vectors.shape[1] * np.dtype(vector_type).itemsize
        return cls._made(lambda place: made(place=place), path, needed)

    @classmethod
    @lets_go
    def create(
        cls,
        d: int,
        *,
        metric: MetricName = "l2",
        learn_at: int = LEARN_AT,
        sketch: SketchName = "auto",
        hasher: str = "auto",
        n_bits: int | None = None,
        kind: KindName = "auto",
        keep_vectors: bool | VectorType = True,
        n_groups: int | None = None,
        groups_a_row: int | None = None,
        n_tables: int | None = None,
        random_state: int | RandomState | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Make an index of no rows, in memory or in a folder, which learns when enough have come.

        :meth:`add` and :meth:`upsert` bring rows. The first ones decide whether ids are numbers or
        strings, in what type vectors are kept, and what columns the payload has, if any. A search
        compares every row, so that it finds all neighbours, until there are ``learn_at`` of them;
        ``index.reason`` says so. The call that brings them learns from all rows that are there, as
        :meth:`build` would, in the same change. From then on it is an index like any other.

        Parameters
        ----------
        d : features of a row
        metric : "l2", "cosine" or "ip", as in :meth:`build`
        learn_at : how many rows it takes to learn, at least 2, default 8,192. Groups are as many as
            suit these rows: where many more will come at once, let it wait, or :meth:`build`
        sketch, n_bits, kind, n_groups, groups_a_row, n_tables : as in :meth:`build`, for when it
            learns
        hasher : the name of a method, for codes
        keep_vectors : as in :meth:`build`; until it learns, vectors are kept
        random_state : of what it learns; a RandomState draws a number, which is kept
        path : a folder in which the index is made, as in :meth:`build`

        Examples
        --------
        >>> index = Index.create(4, learn_at=300, random_state=0)
        >>> index
        Index(empty, nothing learnt before 300 rows, 4 features, l2)
        >>> X = np.random.default_rng(0).standard_normal((300, 4), dtype=np.float32)
        >>> index.add(X[:2], ids=["a", "b"])
        array(['a', 'b'], dtype=object)
        >>> index.search(X[1], k=1).ids
        array(['b'], dtype=object)
        >>> index.upsert([f"row {i}" for i in range(300)], X)
        Upserted(added=300, updated=0)
        >>> index
        Index(flat, 302 rows, signs of 160 bits, float32 vectors, l2)
        """
        settings = {
            "learn_at": learn_at,
            "sketch": sketch,
            "hasher": hasher,
            "n_bits": n_bits,
            "kind": kind,
            "keep_vectors": keep_vectors,
            "n_groups": n_groups,
            "groups_a_row": groups_a_row,
            "n_tables": n_tables,
            "random_state": random_state,
        }
        state = state_to_learn(d, metric, settings)
        return cls._made(lambda _: state, path)

    @classmethod
    @lets_go
    def from_codes(
        cls,
        codes: ArrayLike | Source,
        *,
        ids: ArrayLike | None = None,
        hasher: Hasher | None = None,
        n_bits: int | None = None,
        kind: KindName = "auto",
        n_groups: int | None = None,
        n_tables: int | None = None,
        random_state: int | RandomState | None = None,
        path: str | os.PathLike[str] | None = None,
        verbose: int | None = None,
    ) -> Self:
        """Make an index of codes that were made elsewhere, in memory or in a folder.

        Searches find the nearest codes by Hamming distance. Queries, and rows that are added, are
        codes of the same form; or vectors, where a hasher is given: numbers of type uint8, bools
        and other integers are codes, floats are vectors.

        Parameters
        ----------
        codes : uint8 (n, width), packed bits, in any order that is the same for all codes; or
            bools, or other integers 0 and 1, of shape (n, n_bits)
        ids : n different integers from 0 on, or n different strings; 0 to n - 1 without
        hasher : fitted, the one that made the codes; then vectors are hashed by it
        n_bits : of packed codes that end in padding, which is zero; 8 times the width without
        kind : "flat", which compares all codes; "grouped", which compares those in the nearest
            groups, and is several times as fast where there are a million; "multi"; or "auto",
            which is flat, and grouped where ``n_groups`` is given
        n_groups : for the grouped kind; about 1.3 times the root of n without
        n_tables : for the multi kind; n_bits / log2(n) without
        random_state : of the groups
        path : a folder in which the index is made, as in :meth:`build`
        verbose : 1 shows bars while it takes long, 0 none; without, they are shown in a terminal

        Examples
        --------
        >>> codes = np.array([[0b0000], [0b0011], [0b1111]], np.uint8)
        >>> index = Index.from_codes(codes, ids=["none", "two", "four"])
        >>> index.search(np.array([0b0111], np.uint8), k=2)
        Hits(ids=array(['four', 'two'], dtype=object), distances=array([1, 1], dtype=int32))
        """
        names = None if ids is None else check_ids(ids)
        shown = int(shows_bars(verbose))
        state, kept = state_of_codes(
            codes,
            hasher=hasher,
            n_bits=n_bits,
            kind=kind,
            n_groups=n_groups,
            n_tables=n_tables,
            random_state=random_state,
            id_type="int64" if names is None else type_of(names),
            verbose=shown > 0,
        )
        if names is not None:
            check_new(names, len(kept), "codes")
        return cls._made(lambda place: with_rows(state, kept, names, shown, place=place), path)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mmap: bool = True) -> Self:
        """Open an index that was saved.

        The rows stay on the disk and are read as searches need them. What other processes change
        is seen after :meth:`refresh`, and by changes of this one.

        Parameters
        ----------
        path : the folder
        mmap : whether large files are mapped (default). A mapped file that somebody else cuts
            shorter ends the process when the missing part is read, on every system. False reads
            all files into memory and compares them with their checksums first: for folders that
            others may cut, at the price of memory and of the time to read them.

        Raises
        ------
        FileError : if there is no index, it was damaged, or a newer version wrote it

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> index = Index.build(np.eye(8, dtype=np.float32), n_bits=8, random_state=0)
        >>> with TemporaryDirectory() as folder:
        ...     index.save(Path(folder, "eye.dh"))
        ...     len(Index.open(Path(folder, "eye.dh")))
        8
        """
        store = Store.open(path, form=INDEX, mapped=mmap)
        return cls(state_at(store.path, store.content), store)

    def save(self, path: str | os.PathLike[str], *, verbose: int = 0) -> None:
        """Write the index to a folder: all of it, or nothing.

        An index that is in the folder is replaced. This index stays what it was: one in memory
        stays there. An index saves every change in the folder from which it was opened by itself;
        saved there once more, it is written again only if the folder holds it no longer.

        Parameters
        ----------
        path : a folder that is missing, empty, or an index
        verbose : 1 shows a bar while it takes long

        Raises
        ------
        FileError : if it cannot be written, a file of this index is damaged, or others have
            changed the index in the folder from which this one was opened
        """
        is_own = self._store is not None and os.path.realpath(path) == os.path.realpath(
            self._store.path
        )
        if self._store is not None and is_own:
            found = self._store.found_there()
            if found == "same":
                return
            if found == "changed":
                raise FileError(
                    f"{path} was changed since it was read here, and saving would undo that: "
                    "refresh() takes the changes, or save to another folder"
                )
        Store.create(
            path,
            content_of(self._state),
            form=INDEX,
            checked=CHECKED,
            version=self._state.format_version,
            verbose=verbose > 0,
        )
        if is_own:
            self.refresh()

    def refresh(self) -> bool:
        """See what other processes have changed since; whether there was something.

        Examples
        --------
        >>> Index.build(np.eye(8), n_bits=8).refresh()
        False
        """
        with self._lock:
            if self._store is None:
                return False
            self._store.refresh()
            if self._store.mark == self._mark:
                return False
            self._state = state_at(self._store.path, self._store.content, self._state)
            self._mark = self._store.mark
            return True

    def verify(self, *, verbose: int = 0) -> None:
        """Compare every file of a saved index with its checksum; an error names all that differ."""
        if self._store is None:
            raise InputError("this index is in memory only: there is no file to verify")
        self._store.verify(verbose=verbose > 0)

    # --- what it is ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._state.n_live

    def __contains__(self, name: object) -> bool:
        try:
            wanted = check_ids([name])  # type: ignore[arg-type]
        except InputError:
            return False
        return type_of(wanted) == self._state.id_type and locate(self._state, wanted)[0][0] >= 0

    def __repr__(self) -> str:
        return f"Index({self._state.in_words(self._state.n_live)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: counts and sizes."""
        return facts(self.info(), caption=repr(self))

    @property
    def ids(self) -> NDArray[Any]:
        """Ids of all rows, rising: int64 (n,), or strings in an array of objects."""
        return self.matching(None)

    @property
    def hasher(self) -> Hasher:
        """The fitted hasher; an error where rows are not kept as codes."""
        return self._state.hasher

    @property
    def kind(self) -> str:
        """The kind: "flat", "grouped" or "multi"."""
        return self._state.kind.name

    @property
    def sketch(self) -> str:
        """What is kept of a row: "codes", "signs", ready-made "bits"; "vectors" until it learns."""
        return self._state.sketch.name

    @property
    def reason(self) -> str:
        """What kind was chosen, and why."""
        return self._state.reason

    @property
    def metric(self) -> str:
        """What searches go by: "l2", "cosine" or "ip"; "hamming" where codes came ready-made."""
        return self._state.metric

    @property
    def recall(self) -> float | None:
        """The share of the 10 nearest rows that a search finds where it is not told how.

        It was measured on some of the rows when the index was built, or on the queries that
        :meth:`tune` was given. None, where rows are kept as codes or all of them are compared.

        Examples
        --------
        >>> X = np.random.default_rng(0).standard_normal((400, 8), dtype=np.float32)
        >>> Index.build(X, sketch="signs", random_state=0).recall >= 0.95
        True
        """
        return self._state.settings.recall

    @property
    def settings(self) -> Settings:
        """How searches go where they are not told; set by :meth:`tune`."""
        return self._state.settings

    @property
    def path(self) -> Path | None:
        """The folder from which the index was opened, or None."""
        return None if self._store is None else self._store.path

    def info(self) -> dict[str, Any]:
        """Counts and sizes, as plain values.

        Examples
        --------
        >>> Index.build(np.eye(8), n_bits=8).info()["rows"]
        8
        """
        state = self._state
        n_bytes = sum(segment.n_bytes for segment in state.segments)
        n_bytes += sum(a.nbytes for a in state.kind.settings().values() if hasattr(a, "nbytes"))
        kept = sum(s.vectors.nbytes for s in state.segments if s.vectors is not None)
        return {
            "path": None if self._store is None else str(self._store.path),
            "rows": state.n_live,
            "removed": state.n_removed,
            **state.about,
            "segments": [segment.n_rows for segment in state.segments],
            "bytes_without_vectors": n_bytes,
            "bytes_of_vectors": kept,
            "bytes_of_payload": sum(segment.payload_bytes for segment in state.segments),
            "bytes_a_row": n_bytes / max(state.n_live, 1),
            "bytes_on_disk": None if self._store is None else self._store.n_bytes,
            "candidates": state.settings.candidates,
            "probes": state.settings.probes,
            "recall": state.settings.recall,
            "generation": None if self._store is None else self._store.generation,
            "format_version": None if self._store is None else self._store.version,
        }

    # --- changed ------------------------------------------------------------------------------

    def add(
        self,
        X: VectorsLike,
        *,
        ids: ArrayLike | str | None = None,
        column: str | None = None,
        payload: Any = None,
        verbose: int = 0,
    ) -> NDArray[Any]:
        """Add rows.

        Parameters
        ----------
        X : m rows, as :meth:`build` takes them; finite
        ids : m different ids that are not in the index, of its type, or the name of a column of
            the frame X; without them, where ids are numbers, those after the largest there ever was
        column : the name of the column of vectors, where X is a frame that has others
        payload : of these rows, with the columns of the index, where it has a payload; as in
            :meth:`build`
        verbose : 1 shows bars while it takes long

        Returns
        -------
        the ids of the rows, (m,)

        Raises
        ------
        InputError : if an id is there already, and for other mistakes; nothing has changed then

        Examples
        --------
        >>> index = Index.build(np.eye(8), n_bits=8, random_state=0)
        >>> index.add(np.ones((2, 8)))
        array([8, 9])
        """
        rows = check_rows(self._state, X, ids, column=column, payload=payload, verbose=verbose)
        before, _ = self._change(partial(added, rows=rows))
        if rows.ids is None:
            return np.arange(before.next_id, before.next_id + len(rows.vectors))
        return public_ids(rows.ids).copy()  # the index may hold what was given

    def remove(self, ids: ArrayLike) -> int:
        """Remove rows; ids that are not there are passed over.

        Returns
        -------
        how many rows were removed
        """
        wanted = np.unique(self._check_ids(ids))
        before, after = self._change(lambda state, _: without_ids(state, wanted)[0])
        return before.n_live - after.n_live

    def update(
        self,
        ids: ArrayLike | str,
        X: VectorsLike,
        *,
        column: str | None = None,
        payload: Any = None,
        verbose: int = 0,
    ) -> None:
        """Replace the vectors of rows, and their payload where one is given.

        Parameters
        ----------
        ids : m different ids that are in the index, or the name of a column of the frame X
        X : m rows, as :meth:`build` takes them; finite
        column : the name of the column of vectors, where X is a frame that has others
        payload : of these rows, with the columns of the index; without, they keep theirs
        verbose : 1 shows bars while it takes long

        Raises
        ------
        InputError : if an id is not there, and for other mistakes; nothing has changed then
        """
        rows = check_rows(
            self._state,
            X,
            ids,
            column=column,
            payload=payload,
            verbose=verbose,
            needs_payload=False,
        )
        self._change(partial(updated, rows=rows))

    def upsert(
        self,
        ids: ArrayLike | str,
        X: VectorsLike,
        *,
        column: str | None = None,
        payload: Any = None,
        verbose: int = 0,
    ) -> Upserted:
        """Replace the rows whose ids are there and add the others, in one change.

        Parameters
        ----------
        ids : m different ids, of the type that the index has, or the name of a column of the frame
            X
        X : m rows, as :meth:`build` takes them; finite
        column : the name of the column of vectors, where X is a frame that has others
        payload : of these rows, with the columns of the index, where it has a payload; as in
            :meth:`build`
        verbose : 1 shows bars while it takes long

        Returns
        -------
        Upserted : how many rows were ``added``, and how many ``updated``

        Raises
        ------
        InputError : if an id is given twice, and for other mistakes; nothing has changed then

        Examples
        --------
        >>> index = Index.build(np.eye(8), n_bits=8, random_state=0)
        >>> index.upsert([7, 8], np.ones((2, 8)))
        Upserted(added=1, updated=1)
        """
        rows = check_rows(self._state, X, ids, column=column, payload=payload, verbose=verbose)
        before, after = self._change(partial(upserted, rows=rows))
        n_added = after.n_live - before.n_live
        return Upserted(n_added, len(rows.vectors) - n_added)

    def compact(self) -> None:
        """Merge all segments into one, without the rows that were removed.

        Files are compared with their checksums first: damage is found, not written anew.
        """
        self._change(compacted)

    # --- asked --------------------------------------------------------------------------------

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
        n_threads: int | None = None,
        column: str | None = None,
    ) -> Ranges: ...
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
        n_threads: int | None = None,
        column: str | None = None,
    ) -> Hits: ...
    @overload
    def search(
        self,
        Q: ArrayLike | Source,
        k: int,
        *,
        radius: float | None = None,
        candidates: int | None = None,
        rerank: Rerank | None = "auto",
        metric: MetricName | None = None,
        filter: AnyFilter | None = None,
        exclude_self: bool | ArrayLike = False,
        recall: float | None = None,
        probes: int | None = None,
        n_threads: int | None = None,
        column: str | None = None,
    ) -> Hits: ...
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
        n_threads: int | None = None,
        column: str | None = None,
    ) -> Hits | Ranges:
        """Find the neighbours of queries.

        Parameters
        ----------
        Q : rows (q, d), as :meth:`build` takes them; or one vector: an array or a tensor of shape
            (d,), or a list of numbers; finite
        k : how many neighbours, 10 without; with ``radius`` alone, all within it
        candidates : how many Hamming neighbours are re-ranked; what :meth:`tune` found, or about
            the root of the rows, 100 to 2,000, without. Of signs, how many of the nearest by
            estimate; as many as may be among the nearest without
        rerank : "exact", by the kept vectors; "asymmetric", by codes and the query's margins;
            None, Hamming distances alone, or estimates of signs; "auto" is the first of these that
            can be
        metric : "l2", "cosine" or "ip"; that of the index without. By another one, every row is
            compared, which takes kept vectors and finds all; of codes that are told ``candidates``
            or ``probes``, those are nearest by the metric of the index
        filter : which rows may be found. By the payload: a dict, as
            ``{"lang": "en", "year": {"$gte": 2020}}``, with
            ``$eq $ne $gt $gte $lt $lte $in $nin $exists $not $and $or``; the same in words, as
            ``'lang = "en" and year >= 2020'``; or an Expression of pyarrow.
            By ids: an array or a set of them; a boolean array, one for each of ``index.ids``; or a
            function that is called with arrays of ids and returns booleans. k rows are found where
            k match. What the last filters found is kept for the next search, of functions nothing.
        radius : nothing farther away is returned. A Hamming radius is searched exactly, another
            one among the candidates.
        exclude_self : the ids of the queries, (q,), none of which is its own neighbour; the id of
            one vector; or True, which leaves out the first row that equals the query
        recall : for signs: the share of the nearest rows to be found, above 0, at most 1, where
            every row is compared. What :meth:`tune` was asked for without, or .97
        probes : how many groups a query visits (grouped; of signs, as many as the recall takes
            without), or how many buckets of each table it looks up by its margins (multi, which
            searches exactly without)
        n_threads : how many threads; without, one for each CPU
        column : the name of the column of vectors, where Q is a frame that has others

        Returns
        -------
        Hits : ``ids`` (q, k) and ``distances`` (q, k), by (distance, id). Exact distances are
            Euclidean for l2, one minus the cosine, and minus the inner product. Of signs,
            ``effort`` says what was looked at. Of one vector, both are of shape (k,)
        Ranges : ``limits`` (q + 1,), ``ids`` and ``distances`` (m,), with ``radius`` but no ``k``

        Examples
        --------
        >>> X = np.arange(20, dtype=np.float32).reshape(10, 2)
        >>> index = Index.build(X, n_bits=8, random_state=0)
        >>> index.search(X[3:4], k=2, filter=[1, 2, 8])
        Hits(ids=array([[2, 1]]), distances=array([[2.828427, 5.656854]], dtype=float32))
        >>> years = Index.build(X, n_bits=8, payload=[{"year": 2010 + i} for i in range(10)])
        >>> years.search(X[3:4], k=2, filter={"year": {"$gte": 2015}}).ids
        array([[5, 6]])
        >>> index.search(X[3:4], radius=3.0)
        Ranges(limits=array([0, 3]), ids=array([3, 2, 4]), distances=array([0.      , 2.828427, \
2.828427], dtype=float32))
        >>> index.search([6.0, 7.0], k=2).ids
        array([3, 2])
        """
        return search(
            self._state,
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
            n_threads=n_threads,
            column=column,
        )

    def neighbors_graph(
        self,
        k: int = USUAL_K,
        *,
        mode: GraphMode = "connectivity",
        candidates: int | None = None,
        rerank: Rerank | None = "auto",
        probes: int | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> csr_matrix:
        """The k nearest other rows of every row, as a sparse matrix.

        Parameters
        ----------
        k : how many neighbours; a row is not its own
        mode : "connectivity" (ones) or "distance"
        candidates, rerank, probes, n_threads : as in :meth:`search`. Without kept vectors, codes
            are compared by Hamming distance, in all groups, and multi takes no probes.
        verbose : 1 shows a bar while it takes long

        Returns
        -------
        CSR matrix of shape (n, n); rows and columns are in the order of ``index.ids``, and the
        entries of a row by distance, as scikit-learn's ``kneighbors_graph`` has it

        Examples
        --------
        >>> X = np.array([[0.0], [1.0], [3.0]])
        >>> Index.build(X, n_bits=4, random_state=0).neighbors_graph(1).toarray()
        array([[0., 1., 0.],
               [1., 0., 0.],
               [0., 1., 0.]])
        """
        return neighbors_graph(
            self._state,
            k,
            mode=mode,
            candidates=candidates,
            rerank=rerank,
            probes=probes,
            n_threads=n_threads,
            verbose=verbose,
        )

    def near_duplicates(
        self,
        radius: float,
        *,
        rerank: Literal["auto", "exact"] | None = None,
        candidates: int | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> Pairs:
        """All pairs of rows that are near to each other.

        Parameters
        ----------
        radius : Hamming distance up to which pairs are found, all of them; with
            ``rerank="exact"`` a distance of vectors, among the candidates of each row
        rerank : None or "exact"
        candidates, n_threads : as in :meth:`search`
        verbose : 1 shows a bar while it takes long

        Returns
        -------
        Pairs : ``ids`` (m, 2), the smaller one first, and ``distances`` (m,), by (distance, ids)

        Examples
        --------
        >>> X = np.array([[0.0, 0.0], [9.0, 9.0], [0.0, 0.0]])
        >>> Index.build(X, n_bits=4, random_state=0).near_duplicates(0)
        Pairs(ids=array([[0, 2]]), distances=array([0], dtype=int32))
        """
        return near_duplicates(
            self._state,
            radius,
            rerank=rerank,
            candidates=candidates,
            n_threads=n_threads,
            verbose=verbose,
        )

    def tune(
        self,
        Q: ArrayLike | Source,
        *,
        recall: float = 0.95,
        k: int = USUAL_K,
        metric: MetricName | None = None,
        n_threads: int | None = None,
        verbose: int = 0,
    ) -> Tuning:
        """Measure how many candidates, and probes, the recall takes, and search so from now on.

        Parameters
        ----------
        Q : real array of shape (q, d): some queries, a few hundred, that are not in the index
        recall : the share of the k nearest rows to be found, above 0, at most 1
        k : how many neighbours
        metric : that of the index, which searches go by; another one is an error
        n_threads : how many threads
        verbose : 1 shows bars while it takes long

        Returns
        -------
        Tuning : the setting chosen, its recall and speed, and all settings that were measured. If
            none reaches the recall, an error says the best, and nothing has changed.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> index = Index.build(rng.standard_normal((900, 8)), n_bits=32, random_state=0)
        >>> index.tune(rng.standard_normal((50, 8)), recall=0.9).recall >= 0.9
        True
        """
        state = self._state
        if not state.sketch.is_learnt:
            raise InputError(
                "there is nothing to tune yet: this index compares every row until it has learnt; "
                f"{state.reason}"
            )
        asked = question_of(state, Q, metric=metric, probes=None, n_threads=n_threads)
        found, settings = tune(state, asked, recall=recall, k=check_k(k), verbose=verbose > 0)
        self._change(lambda newest, _: replace(newest, settings=settings))
        return found

    def get(self, ids: ArrayLike) -> NDArray[Any]:
        """The kept vectors of rows.

        Parameters
        ----------
        ids : (m,), all in the index

        Returns
        -------
        array (m, d) of the type in which they are kept; float32 where whole numbers have scales

        Examples
        --------
        >>> Index.build(np.eye(4, dtype=np.float32), n_bits=8).get([2])
        array([[0., 0., 1., 0.]], dtype=float32)
        """
        return vectors_of(self._state, self._check_ids(ids))

    def matching(self, filter: AnyFilter | None) -> NDArray[Any]:  # noqa: A002
        """Ids of the rows that a search with this filter may find.

        Parameters
        ----------
        filter : as in :meth:`search`; None is every row

        Returns
        -------
        ids, rising: int64 (m,), or strings in an array of objects

        Examples
        --------
        >>> X, years = np.eye(4), [{"year": year} for year in (1999, 2004, 2011, 2020)]
        >>> Index.build(X, n_bits=8, payload=years).matching({"year": {"$lt": 2010}})
        array([0, 1])
        """
        return matching_ids(self._state, filter)

    def payload(self, ids: ArrayLike) -> pa.Table:
        """What is kept beside the vectors of rows.

        Parameters
        ----------
        ids : (m,), all in the index

        Returns
        -------
        pyarrow Table of m rows, in the order of the ids

        Examples
        --------
        >>> X, years = np.eye(4), [{"year": year} for year in (1999, 2004, 2011, 2020)]
        >>> Index.build(X, n_bits=8, payload=years).payload([2, 0]).to_pylist()
        [{'year': 2011}, {'year': 1999}]
        """
        return payload_of(self._state, self._check_ids(ids))

    # --- inside -------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        # An opened index travels as its path: other processes map the same files.
        if self._store is None:
            return {"state": self._state, "path": None}
        return {"path": self.path, "mmap": self._store.is_mapped}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        if parts["path"] is None:
            self.__init__(parts["state"])  # type: ignore[misc]
        else:
            self.__dict__.update(type(self).open(**parts).__dict__)

    @classmethod
    def _made(
        cls,
        make: Callable[[Place], State],
        path: str | os.PathLike[str] | None,
        needed: int = 0,
    ) -> Self:
        """A new index: in memory, or in a folder with room for so many bytes."""
        if path is None:
            return cls(make(MEMORY))
        with Store.creating(path, form=INDEX) as change:
            change.check_room(needed)  # said before the index learns, which takes long
            state = make(on_disk(change))
            content = change.publish(
                content_of(state), checked=CHECKED, version=state.format_version
            )
        return cls(with_segments_of(state, content), change.store)

    @lets_go
    def _change(self, make: Callable[[State, Place], State]) -> tuple[State, State]:
        """Replace the newest state by what is made of it; on disk first, if it is there.

        Returns
        -------
        The state before, and the state after
        """
        with self._lock:
            if self._store is None:
                before = self._state
                self._state = make(before, MEMORY)
                return before, self._state
            with self._store.change() as change:
                if self._store.mark != self._mark:
                    self._state = state_at(self._store.path, change.content, self._state)
                    self._mark = self._store.mark
                before = self._state
                after = make(before, on_disk(change))
                if after is before:
                    return before, after
                same = after.sketch is before.sketch
                content = content_of(after, unchanged=change.content if same else None)
                published = change.publish(content, checked=CHECKED, version=after.format_version)
                self._state = with_segments_of(after, published)
                self._mark = self._store.mark
                return before, self._state

    def _check_ids(self, ids: ArrayLike) -> NDArray[Any]:
        return check_own_type(ids, self._state)


def index_state(index: Index) -> State:
    """All that an index is at this moment: what the other rooms of the package see of it.

    ``Index(state)`` goes the other way: an index in memory.

    Examples
    --------
    >>> state = index_state(Index.build(np.eye(8), n_bits=8))
    >>> state.n_live, len(Index(state))
    (8, 8)
    """
    return index._state
