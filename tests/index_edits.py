"""Edits of what an index has on disk, which must be refused when it is opened."""

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
    """What the files of an index of signs say; edits leave the index as it is."""
    content = content_of(index._state)
    content["segments"] = [dict(one) for one in content["segments"]]
    content["sketch_settings"] = dict(content["sketch_settings"])
    return content


def changed(name: str, **new: Any) -> Edit:
    """Other values in a part of the settings of a sketch."""

    def edit(content: dict[str, Any]) -> None:
        content["sketch_settings"][name] = {**content["sketch_settings"][name], **new}

    return edit


def column(name: str, make: Callable[[NDArray[Any]], Any]) -> Edit:
    """Another column in the first segment."""

    def edit(content: dict[str, Any]) -> None:
        part = content["segments"][0]
        part[name] = make(part[name].copy())

    return edit


def check_refused(index: Index, edit: Edit, message: str) -> None:
    """The index is opened as it is, and refused after the edit."""
    content = editable(index)
    state_from(content)
    edit(content)
    with pytest.raises(FileError, match=message):
        state_from(content)
