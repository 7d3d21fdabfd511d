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
    """Vectors with ids, of which a search finds the nearest neighbours.

    :meth:`build`, :meth:`create` and :meth:`open` make an index. An index that you build is in
    memory until you save it, unless you give ``path``. An index that you open reads from its folder
    only what it needs, and every change is completely on disk when the call returns. Threads may
    search while one of them changes the index: each search sees it as it was before the change, or
    after it.

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
                "make an index with Index.build(X) from rows, with Index.open(path) from a saved "
                "folder, or with Index.create(384) for rows of 384 features that you add later; "
                "do not call Index(...) itself"
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
        X : n rows of d features, at least 2 rows, all finite: a real array of shape (n, d), a
            memory map of one, or a Source; a tensor (if it is on a GPU, groups and sketches are
            made there); a column of vectors (pandas, polars, Arrow, an array of objects); or a data
            frame or Arrow table of numbers, or one with other columns if you give ``column``
        ids : n different integers from 0 on, or n different strings; or the name of a column, if X
            is a data frame; default: 0 to n - 1
        column : the name of the column of vectors, if X is a data frame with other columns
        payload : columns to keep beside the vectors. A search can return them and filter by them.
            A pyarrow Table or RecordBatch, a pandas or polars DataFrame, or a list of dicts, with n
            rows. Columns may be numbers, booleans, strings, binary, dates, timestamps or lists of
            strings, with nulls. Needs the extra ``payload``.
        sketch : what the index keeps of a row. With "signs" and a decoder, a search estimates
            distances and compares only few vectors. "codes" of a hasher are compared by Hamming
            distance; if the metric is "ip", by products that are estimated from it. Signs work with
            the kinds "flat" and "grouped". "auto" (default) is "signs", unless you give a hasher,
            the kind "multi", or an ``n_bits`` that only codes can have.
        hasher : with codes, the name of a method ("dsh", "itq", ...), a fitted Hasher, or one that
            is not fitted: a copy of it then learns from X. "auto" (default) is ITQ; if there are
            more bits than features, ITQ with a random rotation.
        n_bits : bits that are kept of a row. With codes: 1 to 4096, default 256; a Hasher has its
            own. With signs: a multiple of 8 up to 1,024, default 160 for up to 128 features and 256
            for more.
        kind : where rows lie: "flat", "grouped", "multi", or "auto" (default), which chooses by the
            number of rows; ``index.reason`` says which kind it chose, and why
        metric : by which distance searches rank rows: "l2" (default), "cosine" or "ip" (the inner
            product). With "cosine", rows are scaled to length one before they are hashed. With
            "ip", rows may have any length: with codes, the index also keeps the length of each row.
        keep_vectors : True (default) keeps vectors for exact re-ranking, in their own type if that
            is float32, float16, uint8 or int8, and otherwise in float32. The name of one of these
            types keeps them in that type. "int8" keeps whole numbers from -128 to 127; with signs
            it also takes floats, with a scale for each row, and loses little. False keeps no
            vectors; with signs, the index then keeps a second, longer sketch to compare rows by.
        n_groups : how many groups, for the kind "grouped"; default: about 1.3 times the square root
            of n, with signs 2 times
        groups_a_row : with signs in groups, in how many groups each row lies: 1 (default) or 2. Two
            take twice the memory for the sketch, and longer to build. Searches were 8 to 10% faster
            with them on GIST and WordNet vectors, and not faster on SIFT.
        n_tables : how many tables, for the kind "multi"; default: n_bits / log2(n)
        random_state : seed or generator for a hasher that you name, and for the groups
        path : a folder that does not exist yet, or is empty, or holds an index. The index is made
            there, piece by piece, so it may have more rows than fit into memory, and is returned as
            :meth:`open` returns it. It appears when it is complete. An index that was there before
            stays until then, and stays after an error.
        verbose : 1 shows progress bars for long work, 0 shows none; default: shown in a terminal
            and in a notebook

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
        """Make an empty index, in memory or in a folder, which learns when it has enough rows.

        :meth:`add` and :meth:`upsert` add rows. The first rows decide whether ids are numbers or
        strings, in which type vectors are kept, and which columns the payload has, if any. Until
        the index has ``learn_at`` rows, a search compares every row and so finds all neighbours;
        ``index.reason`` says so. The call that adds the last of these rows also learns from all of
        them, as :meth:`build` does, in the same change. From then on it is an index like any other.

        Parameters
        ----------
        d : features of a row
        metric : "l2" (default), "cosine" or "ip", as in :meth:`build`
        learn_at : with how many rows the index learns, at least 2, default 8,192. The number of
            groups suits the rows that it learns from. If you will soon add many times as many, give
            a larger number, or use :meth:`build`.
        sketch, n_bits, kind, n_groups, groups_a_row, n_tables : as in :meth:`build`; the index uses
            them when it learns
        hasher : with codes, the name of a method
        keep_vectors : as in :meth:`build`; until the index learns, it keeps all vectors
        random_state : seed for what the index learns; a RandomState draws a seed, which is kept
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

        Searches find the nearest codes by Hamming distance. Queries, and rows that you add, must be
        codes of the same form. If you give a hasher, they may also be vectors: floats are vectors;
        uint8, booleans and other integers are codes.

        Parameters
        ----------
        codes : uint8 array of shape (n, width), packed bits, in any bit order that is the same for
            all codes; or booleans, or other integers that are 0 or 1, of shape (n, n_bits)
        ids : n different integers from 0 on, or n different strings; default: 0 to n - 1
        hasher : the fitted hasher that made the codes; the index then hashes vectors with it
        n_bits : how many bits a packed code has, if it ends in padding, which must be zero;
            default: 8 times the width
        kind : "flat" compares all codes; "grouped" compares only the codes in the nearest groups,
            which is several times as fast with a million codes; "multi" uses tables; "auto"
            (default) is "flat", or "grouped" if you give ``n_groups``
        n_groups : how many groups, for the kind "grouped"; default: about 1.3 times the square root
            of n
        n_tables : how many tables, for the kind "multi"; default: n_bits / log2(n)
        random_state : seed or generator for the groups
        path : a folder in which the index is made, as in :meth:`build`
        verbose : 1 shows progress bars for long work, 0 shows none; default: shown in a terminal
            and in a notebook

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

        Rows stay on disk; a search reads those that it needs. You see what other processes have
        changed after :meth:`refresh`, and after you change the index yourself.

        Parameters
        ----------
        path : the folder of the index
        mmap : True (default) maps large files. If another program then cuts a mapped file short,
            the process ends when it reads the missing part, on every system. False reads all files
            into memory and compares them with their checksums first. Use it for folders whose files
            others may cut; it takes memory, and the time to read all files.

        Raises
        ------
        FileError : if the folder holds no index, is damaged, or was written by a newer version

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

        An index that is in the folder already is replaced. This index itself does not change: if it
        is in memory, it stays in memory. You need not save an index that you opened: its folder has
        every change. If you save it there all the same, it is written only if the folder no longer
        holds it.

        Parameters
        ----------
        path : a folder that does not exist yet, or is empty, or holds an index
        verbose : 1 shows a progress bar for long work, default 0

        Raises
        ------
        FileError : if the folder cannot be written, a file of this index is damaged, or you save to
            the folder from which you opened the index, and others have changed it since
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
                    f"{path} was changed since it was read here, and saving would undo the change: "
                    "call refresh() to read it, or save to another folder"
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
        """Read what other processes have changed since; returns whether they changed anything.

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
        """Compare every file of the folder with its checksum; an error names all that differ."""
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
        """Ids of all rows, in rising order: int64 (n,), or strings in an array of objects."""
        return self.matching(None)

    @property
    def hasher(self) -> Hasher:
        """The fitted hasher; raises an error if the index does not keep codes."""
        return self._state.hasher

    @property
    def kind(self) -> str:
        """The name of the kind, such as "flat"."""
        return self._state.kind.name

    @property
    def sketch(self) -> str:
        """What is kept of a row: "signs", "codes", ready-made "bits", or, at first, "vectors".

        It is "products", a code and a length, if you choose codes and the metric "ip".
        """
        return self._state.sketch.name

    @property
    def reason(self) -> str:
        """Which kind was chosen, and why."""
        return self._state.reason

    @property
    def metric(self) -> str:
        """The metric of searches: "l2", "cosine" or "ip"; "hamming" for codes made elsewhere."""
        return self._state.metric

    @property
    def recall(self) -> float | None:
        """The share of the 10 nearest rows that a search with default settings finds.

        It was measured with some of the rows when the index was built, or with the queries that you
        gave :meth:`tune`. It is None if the index keeps codes, or if a search compares all rows.

        Examples
        --------
        >>> X = np.random.default_rng(0).standard_normal((400, 8), dtype=np.float32)
        >>> Index.build(X, sketch="signs", random_state=0).recall >= 0.95
        True
        """
        return self._state.settings.recall

    @property
    def settings(self) -> Settings:
        """The default settings of searches; :meth:`tune` sets them."""
        return self._state.settings

    @property
    def path(self) -> Path | None:
        """The folder of an index on disk; None if the index is in memory."""
        return None if self._store is None else self._store.path

    def info(self) -> dict[str, Any]:
        """Counts, sizes and settings, as plain values.

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
        ids : m different ids that are not in the index, numbers or strings as in the index; or the
            name of a column, if X is a data frame. Default, if ids are numbers: the numbers after
            the largest id that the index has ever had.
        column : the name of the column of vectors, if X is a data frame with other columns
        payload : the payload of these rows, with all columns of the index; needed if the index has
            a payload. In the forms that :meth:`build` takes.
        verbose : 1 shows progress bars for long work, default 0

        Returns
        -------
        the ids of the rows, (m,)

        Raises
        ------
        InputError : if an id is in the index already, or anything else is wrong. The index has not
            changed then.

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
        """Remove rows; ids that are not in the index are ignored.

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
        """Replace the vectors of rows, and their payload if you give one.

        Parameters
        ----------
        ids : m different ids that are in the index; or the name of a column, if X is a data frame
        X : m rows, as :meth:`build` takes them; finite
        column : the name of the column of vectors, if X is a data frame with other columns
        payload : the new payload of these rows, with all columns of the index; default: they keep
            their payload
        verbose : 1 shows progress bars for long work, default 0

        Raises
        ------
        InputError : if an id is not in the index, or anything else is wrong. The index has not
            changed then.
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
        """Replace the rows whose ids are in the index and add the others, in one change.

        Parameters
        ----------
        ids : m different ids, numbers or strings as in the index; or the name of a column, if X is
            a data frame
        X : m rows, as :meth:`build` takes them; finite
        column : the name of the column of vectors, if X is a data frame with other columns
        payload : the payload of these rows, with all columns of the index; needed if the index has
            a payload. In the forms that :meth:`build` takes.
        verbose : 1 shows progress bars for long work, default 0

        Returns
        -------
        Upserted : how many rows were ``added``, and how many ``updated``

        Raises
        ------
        InputError : if you give an id twice, or anything else is wrong. The index has not changed
            then.

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

        Files are compared with their checksums first, so that damage is found and not copied.
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
        Q : q queries, rows of shape (q, d), as :meth:`build` takes them; or one vector: an array or
            tensor of shape (d,), or a list of numbers; finite
        k : how many neighbours, default 10; with ``radius`` alone, all within the radius
        candidates : with codes, how many of the nearest codes are re-ranked; default: what
            :meth:`tune` found, or the square root of the number of rows, from 100 to 2,000, and at
            least 10 k. With signs, how many of the rows with the smallest estimates are compared;
            default: all that may be among the nearest.
        rerank : how candidates are re-ranked. "exact": by the kept vectors. "asymmetric": by codes
            and the margins of the query. None: not at all; distances are Hamming distances, or
            estimates with signs, and with codes if the metric of the index is "ip". "auto"
            (default): "exact" if vectors are kept, otherwise the best way there is.
        metric : "l2", "cosine" or "ip"; default: the metric of the index. With another metric, a
            search compares every row by its kept vector and finds all neighbours. With codes, you
            may give ``candidates`` or ``probes``, too: candidates are then the nearest rows by the
            metric of the index, and re-ranked by the other one.
        filter : which rows a search may find. By the payload: a dict, such as
            ``{"lang": "en", "year": {"$gte": 2020}}``, with
            ``$eq $ne $gt $gte $lt $lte $in $nin $exists $not $and $or``; the same in words, such as
            ``'lang = "en" and year >= 2020'``; or an Expression of pyarrow.
            By ids: an array or a set of ids; a boolean array in the order of ``index.ids``; or a
            function that takes arrays of ids and returns booleans. If k rows match, k are found.
            The index keeps what the last filters have found for the next search, except functions.
        radius : return no row that is farther away. A Hamming radius is searched exactly, any other
            among the candidates.
        exclude_self : the ids of the queries, (q,), or the id of one vector, so that no query is
            its own neighbour; or True, which leaves out the first row that equals the query;
            default False
        recall : with signs, the share of the nearest rows to find, above 0 and at most 1; with 1,
            every row is compared. Default: the recall that :meth:`tune` was asked for, or .97
        probes : with groups, how many groups a query visits; with signs, default: as many as the
            recall needs. With the kind "multi", how many buckets of each table a query looks up, by
            its margins; default: it searches exactly. With "multi" and "ip" it compares all rows.
        n_threads : how many threads, default: one for each CPU
        column : the name of the column of vectors, if Q is a data frame with other columns

        Returns
        -------
        Hits : ``ids`` (q, k) and ``distances`` (q, k), ordered by (distance, id). Exact distances
            are Euclidean for "l2", one minus the cosine for "cosine", and minus the inner product
            for "ip". With signs, ``effort`` says how much the search looked at. For one vector, ids
            and distances have shape (k,).
        Ranges : ``limits`` (q + 1,), ``ids`` and ``distances`` (m,), if you give ``radius`` but no
            ``k``

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
        k : how many neighbours, default 10; a row is not its own neighbour
        mode : what entries are: "connectivity" (default) for ones, or "distance"
        candidates, rerank, probes, n_threads : as in :meth:`search`. If no vectors are kept, codes
            are compared by Hamming distance, in all groups, and the kind "multi" takes no probes.
        verbose : 1 shows a progress bar for long work, default 0

        Returns
        -------
        CSR matrix of shape (n, n). Rows and columns are in the order of ``index.ids``; the entries
        of a row are ordered by distance, as in scikit-learn's ``kneighbors_graph``.

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
        radius : the largest distance of a pair. It is a Hamming distance, and all such pairs are
            found; if the metric is "ip", codes show directions, so lengths may differ. With
            ``rerank="exact"`` it is a distance of vectors, and pairs are looked for among the
            candidates of each row.
        rerank : None (default) or "exact"; an index of signs needs "exact"
        candidates, n_threads : as in :meth:`search`
        verbose : 1 shows a progress bar for long work, default 0

        Returns
        -------
        Pairs : ``ids`` (m, 2), the smaller id of a pair first, and ``distances`` (m,), ordered by
            (distance, ids)

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
        """Measure how far searches must look to reach a recall, and make this their default.

        With codes, this is how many candidates and probes they take.

        Parameters
        ----------
        Q : real array of shape (q, d): a few hundred queries that are not in the index
        recall : the share of the k nearest rows to find, above 0 and at most 1, default .95
        k : how many neighbours, default 10
        metric : the metric of the index (default); another one is an error
        n_threads : how many threads, default: one for each CPU
        verbose : 1 shows progress bars for long work, default 0

        Returns
        -------
        Tuning : the chosen setting, its recall and speed, and all settings that were measured

        Raises
        ------
        InputError : if no setting reaches the recall; the error names the best recall, and the
            index has not changed

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
        array (m, d) of the type in which they are kept; float32 if they are int8 with scales

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
        filter : as in :meth:`search`; None matches every row

        Returns
        -------
        ids in rising order: int64 (m,), or strings in an array of objects

        Examples
        --------
        >>> X, years = np.eye(4), [{"year": year} for year in (1999, 2004, 2011, 2020)]
        >>> Index.build(X, n_bits=8, payload=years).matching({"year": {"$lt": 2010}})
        array([0, 1])
        """
        return matching_ids(self._state, filter)

    def payload(self, ids: ArrayLike) -> pa.Table:
        """The payload of rows: the columns that the index keeps beside their vectors.

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
        # An opened index is pickled as its path: other processes map the same files.
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
            change.check_room(needed)  # before the index learns, which takes long
            state = make(on_disk(change))
            content = change.publish(
                content_of(state), checked=CHECKED, version=state.format_version
            )
        return cls(with_segments_of(state, content), Store.made_by(change))

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
