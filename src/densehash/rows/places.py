"""Where rows lie: here, in a tensor of any device, or on the workers of a cluster."""

from __future__ import annotations

from typing import Any, Protocol

from densehash.columns import is_tensor
from densehash.rows.local import Rows

__all__ = ["DaskCollection", "is_dask", "rows_of"]


class DaskCollection(Protocol):
    """What every collection of Dask has, for those who check types."""

    def __dask_graph__(self) -> Any: ...
    def __dask_keys__(self) -> list[Any]: ...


def is_dask(X: Any) -> bool:
    """Whether rows are a collection of Dask: an array, a data frame, or a column of one.

    Examples
    --------
    >>> is_dask([[1.0]])
    False
    """
    # Asked of the object, since importing Dask takes a second that few need.
    return hasattr(X, "__dask_graph__") and hasattr(X, "__dask_keys__")


def rows_of(X: Any, *, verbose: bool = False, name: str = "X", device: str | None = None) -> Rows:
    """Rows of anything that vectors come in.

    Parameters
    ----------
    X, verbose, name : as of :class:`Rows`
    device : what torch calls the device to compute on; None does without torch. Tensors are
        computed with where they are

    Examples
    --------
    >>> rows_of([[1.0, 2.0]]).n_features
    2
    """
    if is_dask(X):
        from densehash.rows.dask import DaskRows  # noqa: PLC0415  an extra

        return DaskRows(X, verbose=verbose, name=name, device=device)
    if is_tensor(X):
        from densehash.rows.tensors import TensorRows  # noqa: PLC0415  few have tensors

        return TensorRows(X, verbose=verbose, name=name)
    if device is not None:
        from densehash.rows.devices import StreamedRows  # noqa: PLC0415  few have a GPU

        return StreamedRows(X, device, verbose=verbose, name=name)
    return Rows(X, verbose=verbose, name=name)
