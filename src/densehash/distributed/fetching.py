"""Payloads of rows by their ids, which workers read from their shards."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from densehash.distributed.shards import Home, open_shard, together
from densehash.distributed.workers import at_worker, shards_of_workers
from densehash.errors import FileError, InputError
from densehash.index.changes import locate
from densehash.index.columns import Columns, arrow, schema_of
from densehash.index.fetching import payload_of
from densehash.index.hits import kept_ids
from densehash.index.ids import shown
from densehash.rows.dask import compute

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PayloadOfShards", "payload_in"]


class PayloadOfShards(NamedTuple):
    """Where the payload of hits is.

    Attributes
    ----------
    home : where the shards are
    names : names of the shards that were searched
    columns : columns of the payload
    id_type : "int64" or "string"

    Examples
    --------
    >>> from pathlib import Path
    >>> columns = (("year", "int64"),)
    >>> payload = PayloadOfShards(Home(Path("no-such-folder"), {}), (), columns, "int64")
    >>> payload.of(np.array([-1]), np.array([True])).to_pydict()
    {'year': [None]}
    """

    home: Home
    names: tuple[str, ...]
    columns: Columns
    id_type: str

    def of(self, ids: NDArray[Any], missing: NDArray[np.bool_]) -> pa.Table:
        """The payload of ids (m,) as users see them; nulls for a missing row."""
        try:
            kept = kept_ids(ids, self.id_type)
            return payload_in(self.home, self.names, self.columns, kept, missing)
        except InputError as error:
            raise FileError(
                f"{error}: shards of {self.home.folder} have changed since they were searched; "
                "search again"
            ) from None


def payload_in(
    home: Home,
    names: Sequence[str],
    columns: Columns,
    ids: NDArray[Any],
    missing: NDArray[np.bool_] | None = None,
) -> pa.Table:
    """The payload of rows, in the order of ``ids``.

    Parameters
    ----------
    home : where the shards are
    names : names of the shards
    columns : columns of their payload
    ids : int64 or bytes array (m,), as they are kept; an id that is in no shard is an error
    missing : bool (m,), ids that stand for a missing row; its columns are null
    """
    pa = arrow()
    _let_tables_travel()
    if missing is None:
        missing = np.zeros(len(ids), np.bool_)
    wanted, back = np.unique(ids[~missing], return_inverse=True)  # several queries find a row
    tasks = []
    for worker, some in shards_of_workers(names).items():
        with at_worker(worker):
            tasks.append(delayed(_rows_in, pure=False)(home, some, wanted))
    none = np.empty(0, np.intp), schema_of(columns).empty_table()
    places, tables = zip(none, *compute(tasks), strict=True)
    order = np.full(len(wanted), -1)
    found = np.concatenate(places)
    order[found] = np.arange(len(found))
    if bool((order < 0).any()):
        raise InputError(f"id {shown(wanted[int((order < 0).argmax())])!r} is not in the index")
    rows = np.zeros(len(ids), np.int64)
    rows[~missing] = order[back]
    return pa.concat_tables(tables).combine_chunks().take(pa.array(rows, mask=missing))


def _rows_in(
    home: Home, names: Sequence[str], ids: NDArray[Any]
) -> tuple[NDArray[np.intp], pa.Table]:
    """On a worker: which of some ids its shards have, and the payload of these rows."""
    _let_tables_travel()
    state = together(home, {name: open_shard(home, name, payload=True) for name in names})
    here = np.flatnonzero(locate(state, ids)[0] >= 0)
    return here, payload_of(state, ids[here])


def _let_tables_travel() -> None:
    """Dask of 2025 sends and receives tables by a module of pyarrow that it does not import."""
    import_module("pyarrow.fs")
