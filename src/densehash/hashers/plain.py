"""A fitted hasher as plain data: words and numbers for a JSON file, and arrays beside it.

A file can name only the classes that the caller lists, and bring only the attributes that such a
class says it learns. Hashers import this module to be saved, so it cannot import them:
``state.py`` and ``registry.py`` know which hashers there are.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.bits import MAX_BITS, pack
from densehash.errors import FileError, InputError

__all__ = ["built", "described"]

_DEEPEST = 8  # hashers inside hashers
_MOST_FEATURES = 1 << 31

# What every hasher learns, in the words of `Hasher.learnt`.
_COMMON = {"n_bits_": "int", "n_features_in_": "int", "uses_float64_": "bool"}
_NAMES = "feature_names_in_"


# --- to plain data ------------------------------------------------------------------------


def described(hasher: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The description and the arrays of a hasher: see :func:`densehash.hashers.state.state_of`."""
    arrays: dict[str, NDArray[Any]] = {}
    kinds = _kinds_in(hasher)
    description = _describe(hasher, arrays, "", fitted=True)
    try:
        built(description, arrays, kinds)  # saves nothing that could not be opened again
    except FileError as error:
        raise InputError(f"{type(hasher).__name__} cannot be stored: {error}") from error
    return description, arrays


def _kinds_in(hasher: Any) -> dict[str, type[Any]]:
    """The classes of a hasher and of hashers inside it, by name; refuses classes of others."""
    kind = type(hasher)
    if kind.__module__.rpartition(".")[0] != __package__:
        raise InputError(
            f"a hasher of the class {kind.__qualname__} cannot be stored: "
            f"a file names its class, which must be one of {__package__}"
        )
    kinds = {kind.__name__: kind}
    for value in vars(hasher).values():
        if _is_hasher(value):
            kinds |= _kinds_in(value)
    return kinds


def _is_hasher(value: object) -> bool:
    return hasattr(value, "learnt")


def _is_linear(hasher: Any) -> bool:
    return "planes_" in hasher.learnt


def _describe(
    hasher: Any, arrays: dict[str, NDArray[Any]], prefix: str, *, fitted: bool
) -> dict[str, Any]:
    name = type(hasher).__name__
    parameters: dict[str, Any] = {}
    for key, value in hasher.get_params(deep=False).items():
        if _is_hasher(value):
            parameters[key] = _describe(value, arrays, f"{prefix}{key}.", fitted=False)
        elif isinstance(value, (RandomState, ModuleType)):
            parameters[key] = None
        elif np.ndim(value) > 0:
            arrays[f"{prefix}{key}"] = _plain_array(value, f"{name}.{key}")
        else:
            parameters[key] = _plain(value, f"{name}.{key}")
    description = {"class": name, "parameters": parameters}
    if fitted:
        description["learnt"] = _describe_learnt(hasher, name, arrays, prefix)
    return description


def _describe_learnt(
    hasher: Any, name: str, arrays: dict[str, NDArray[Any]], prefix: str
) -> dict[str, Any]:
    if not hasher.__sklearn_is_fitted__():
        raise InputError(f"{name} has not learnt yet: call fit before it is stored")
    learnt: dict[str, Any] = {}
    for key, value in sorted(vars(hasher).items()):
        if not key.endswith("_"):
            continue
        if _is_hasher(value):
            learnt[key] = _describe(value, arrays, f"{prefix}{key}.", fitted=True)
        elif key == _NAMES:
            learnt[key] = [str(one) for one in value]
        elif isinstance(value, np.ndarray):
            arrays[f"{prefix}{key}"] = _plain_array(value, f"{name}.{key}")
        else:
            learnt[key] = _plain(value, f"{name}.{key}")
    return learnt


def _plain(value: object, name: str) -> bool | int | float | str | None:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} must be finite to be stored, got {value!r}")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InputError(f"{name} cannot be stored: it is a {type(value).__name__}")


def _plain_array(value: Any, name: str) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} cannot be stored: it is an array of {array.dtype}")
    if array.dtype.kind in "iu":  # integers have 32 bits on some systems
        return np.ascontiguousarray(array, dtype="<i8")
    if array.dtype.str not in ("<f4", "<f8"):
        return np.ascontiguousarray(array, dtype="<f8")
    return np.ascontiguousarray(array)


# --- from plain data ----------------------------------------------------------------------


def built(description: Any, arrays: Any, kinds: Mapping[str, type[Any]]) -> Any:
    """The hasher of a description: see :func:`densehash.hashers.state.hasher_of`.

    Parameters
    ----------
    description, arrays : from a file, for instance; they are not trusted
    kinds : the classes that a description may name
    """
    if not isinstance(arrays, Mapping) or not all(
        isinstance(array, np.ndarray) for array in arrays.values()
    ):
        raise _wrong("arrays", "arrays by name", arrays)
    left = dict(arrays)
    hasher = _build(description, _Given(left, kinds), "", fitted=True)
    if left:
        raise FileError(f"a hasher has unknown arrays: {', '.join(sorted(map(repr, left)))}")
    return hasher


class _Given(NamedTuple):
    """What hashers are made from: arrays, each of which is used once, and classes by name."""

    arrays: dict[str, NDArray[Any]]
    kinds: Mapping[str, type[Any]]


def _build(description: Any, given: _Given, prefix: str, *, fitted: bool) -> Any:
    parts = {"class", "parameters"} | ({"learnt"} if fitted else set())
    where = prefix.rstrip(".") or "hasher"
    if prefix.count(".") >= _DEEPEST:
        raise FileError(f"a hasher lies inside more than {_DEEPEST} others")
    if not isinstance(description, dict) or set(description) != parts:
        raise _wrong(where, f"an object of {', '.join(sorted(parts))}", description)
    name = description["class"]
    if not isinstance(name, str) or name not in given.kinds:
        raise _wrong(f"{where}: class", f"one of {', '.join(given.kinds)}", name)
    kind = given.kinds[name]
    hasher = kind(**_read_parameters(kind, description["parameters"], given, prefix))
    if fitted:
        learnt = _read_learnt(kind, description["learnt"], given, prefix)
        names = learnt.pop(_NAMES, None)
        hasher.__dict__.update(learnt)
        _try(hasher)
        if names is not None:
            hasher.__dict__[_NAMES] = names
    return hasher


def _read_parameters(kind: type[Any], found: Any, given: _Given, prefix: str) -> dict[str, Any]:
    where = f"{prefix}parameters"
    if not isinstance(found, dict):
        raise _wrong(where, "an object", found)
    known = dict(inspect.signature(kind).parameters)
    read: dict[str, Any] = {}
    for key, parameter in known.items():
        if key in found:
            read[key] = found[key]
            if key == "hasher":
                read[key] = _build(found[key], given, f"{prefix}{key}.", fitted=False)
                if not _is_linear(read[key]):
                    raise _wrong(f"{where}.{key}", "a linear hasher", read[key])
            elif not _is_like(found[key], key, parameter.default):
                like = "an integer or null" if key == "random_state" else repr(parameter.default)
                raise _wrong(f"{where}.{key}", f"something like {like}", found[key])
        elif key == "init" and f"{prefix}{key}" in given.arrays:
            read[key] = np.array(given.arrays.pop(f"{prefix}{key}"))
            if read[key].size == 0:
                raise _wrong(f"{where}.{key}", "an array of some rows", read[key].shape)
        else:
            raise FileError(f"{where} has no {key!r}")
    if unknown := sorted(set(found) - set(known)):
        raise FileError(f"{where} has an unknown {unknown[0]!r}")
    return read


def _is_like(value: Any, key: str, default: object) -> bool:
    """Whether a value has the type of a parameter with this default."""
    if key == "random_state":
        return value is None or type(value) is int
    if isinstance(default, str):
        return isinstance(value, str)
    if isinstance(default, int):
        return isinstance(value, int)
    if value is None:
        return default is None
    return isinstance(value, (int, float)) and math.isfinite(value)


def _read_learnt(kind: type[Any], found: Any, given: _Given, prefix: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise _wrong(f"{prefix}learnt", "an object", found)
    known = {**_COMMON, **kind.learnt}
    read: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for key, said in known.items():
        where, form = f"{prefix}{key}", said.removeprefix("? ")
        if key in found:
            read[key] = _read_value(found[key], given, where, form, sizes)
        elif where in given.arrays and form.split()[0] not in ("bool", "float", "hasher", "int"):
            read[key] = _read_array(given.arrays.pop(where), where, form, sizes)
        elif form == said:
            raise FileError(f"a hasher has no {where}")
        if key == "n_bits_" and not 1 <= read[key] <= MAX_BITS:
            raise _wrong(where, f"an integer from 1 to {MAX_BITS}", read[key])
        if key == "n_features_in_" and not 1 <= read[key] < _MOST_FEATURES:
            raise _wrong(where, "a positive integer", read[key])
        if key in ("n_bits_", "n_features_in_"):
            sizes["L" if key == "n_bits_" else "d"] = read[key]
    if _NAMES in found:
        read[_NAMES] = _read_names(found[_NAMES], sizes["d"], f"{prefix}{_NAMES}")
    if unknown := sorted(set(found) - {*known, _NAMES}):
        raise FileError(f"{prefix}learnt has an unknown {unknown[0]!r}")
    return read


def _read_value(value: Any, given: _Given, where: str, form: str, sizes: dict[str, int]) -> Any:
    if form == "hasher":
        hasher = _build(value, given, f"{where}.", fitted=True)
        if _is_linear(hasher):
            return hasher
    elif form == "float":
        if type(value) in (int, float) and math.isfinite(value):
            return float(value)
    elif (form == "bool" and type(value) is bool) or (form == "int" and type(value) is int):
        return value
    elif form.startswith("int ") and type(value) is int:
        most = sizes.get(form[4:], 0)
        if 1 <= value <= most:
            return value
        raise _wrong(where, f"an integer from 1 to {most}", value)
    raise _wrong(where, f"a value of the form {form!r}", value)


def _read_array(
    array: NDArray[Any], where: str, form: str, sizes: dict[str, int]
) -> NDArray[np.float64] | NDArray[np.int64]:
    words = form.split()
    kind = words.pop(0) if words[0] == "int64" or words[0].startswith("<") else "float64"
    dtype = np.dtype(np.float64 if kind == "float64" else np.int64)
    shape = tuple(
        int(word) if word.isdecimal() else sizes.get(word, length)
        for word, length in zip(words, array.shape, strict=False)
    )
    if array.dtype != dtype or array.shape != shape or array.ndim != len(words):
        raise FileError(
            f"{where} must be {dtype} of shape ({', '.join(words)}), with L = {sizes['L']} and "
            f"d = {sizes['d']}, got {array.dtype} of shape {array.shape}"
        )
    for word, length in zip(words, shape, strict=True):
        if length == 0 and not word.endswith("*"):
            raise FileError(
                f"{where} must have lengths ({', '.join(words)}) of at least 1, "
                f"got the shape {array.shape}"
            )
    sizes.update(zip(words, shape, strict=True))
    if kind.startswith("<"):
        least, most = int(array.min()), int(array.max())
        if least < 0 or most >= sizes[kind[1:]]:
            raise _wrong(where, f"positions below {sizes[kind[1:]]}", f"{least} to {most}")
    return np.array(array, order="C")  # a copy, which does not map a file


def _read_names(names: Any, d: int, where: str) -> NDArray[np.object_]:
    if (
        not isinstance(names, list)
        or len(names) != d
        or not all(isinstance(one, str) for one in names)
    ):
        raise _wrong(where, f"a list of {d} names", names)
    return np.array(names, dtype=object)


def _try(hasher: Any) -> None:
    """Refuse a hasher that cannot hash: two rows of zeros show whether its arrays fit together."""
    dtype = np.float64 if hasher.uses_float64_ else np.float32
    shape = (2, hasher.n_bits_)
    try:
        with np.errstate(all="ignore"):
            margins = hasher._margins(np.zeros((2, hasher.n_features_in_), dtype))
            pack(margins >= 0)
    except Exception as error:  # wrong arrays can raise anything
        raise FileError(f"{type(hasher).__name__} cannot hash: {error}") from error
    if margins.shape != shape or np.isnan(margins).any():
        raise FileError(
            f"{type(hasher).__name__} cannot hash: two rows have margins of shape "
            f"{margins.shape}, expected {shape} and no NaN"
        )


def _wrong(where: str, expected: str, found: object) -> FileError:
    text = repr(found)
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    return FileError(f"{where} must be {expected}, got {shown}")
