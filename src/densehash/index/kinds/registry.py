"""All kinds: those of :data:`densehash.choices.KindName`.

The kind "flat" is the class ``Flat`` in ``flat.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, get_args

from densehash.choices import KindName
from densehash.errors import FileError
from densehash.index.kinds.kind import Kind

__all__ = ["KINDS", "kind_from"]

KINDS: dict[str, type[Kind]] = {
    name: getattr(import_module(f"{__package__}.{name}"), name.capitalize())
    for name in get_args(KindName)[1:]  # the first is "auto"
}
"""Kinds by name."""


def kind_from(name: Any, settings: Mapping[str, Any], *, n_bits: int, n_features: int) -> Kind:
    """The kind from a file.

    Examples
    --------
    >>> kind_from("cloudy", {}, n_bits=8, n_features=2)
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: there is no kind 'cloudy' of index
    """
    if not isinstance(name, str) or name not in KINDS:
        raise FileError(f"there is no kind {name!r} of index")
    return KINDS[name].from_settings(settings, n_bits=n_bits, n_features=n_features)
