"""Where rows are: on this machine, in a tensor on any device, or on the workers of a cluster."""

from __future__ import annotations

from typing import Any, Protocol

from densehash.columns import is_tensor
from densehash.rows.local import Rows

__all__ = ["DaskCollection", "is_dask", "rows_of"]


class DaskCollection(Protocol):
    """What every collection of Dask has, for type checkers."""

    def __dask_graph__(self) -> Any: ...
    def __dask_keys__(self) -> list[Any]: ...


def is_dask(X: Any) -> bool:
    """Whether rows are a collection of Dask: an array, a data frame, or a column of one.

    Examples
    --------
    >>> is_dask([[1.0]])
    False
    """
    # By its attributes, because importing Dask takes a second, which few users need.
    return hasattr(X, "__dask_graph__") and hasattr(X, "__dask_keys__")


def rows_of(X: Any, *, verbose: bool = False, name: str = "X", device: str | None = None) -> Rows:
    """Rows of vectors in any supported form.

    Parameters
    ----------
    X, verbose, name : as in :class:`Rows`
    device : name in torch of the device to compute on; None computes without torch. Tensors stay
        on their own device

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
