"""Edits of the files of an index, which must be refused when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from numpy.typing import NDArray

from densehash.errors import FileError
from densehash.index import Index
from densehash.index.state import content_of, state_from

Edit = Callable[[dict[str, Any]], Any]


def editable(index: Index) -> dict[str, Any]:
    """The content of the files of an index of signs; edits do not change the index itself."""
    content = content_of(index._state)
    content["segments"] = [dict(one) for one in content["segments"]]
    content["sketch_settings"] = dict(content["sketch_settings"])
    return content


def changed(name: str, **new: Any) -> Edit:
    """An edit that sets other values in a part of the settings of a sketch."""

    def edit(content: dict[str, Any]) -> None:
        content["sketch_settings"][name] = {**content["sketch_settings"][name], **new}

    return edit


def column(name: str, make: Callable[[NDArray[Any]], Any]) -> Edit:
    """An edit that replaces a column of the first segment."""

    def edit(content: dict[str, Any]) -> None:
        part = content["segments"][0]
        part[name] = make(part[name].copy())

    return edit


def check_refused(index: Index, edit: Edit, message: str) -> None:
    """Check that the index can be opened, and is refused after the edit."""
    content = editable(index)
    state_from(content)
    edit(content)
    with pytest.raises(FileError, match=message):
        state_from(content)
