"""What an index learns from rows before it keeps any: its kind and its sketch."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.bits import MAX_BITS
from densehash.checks import check_chance, check_choice, check_integer, check_vectors
from densehash.choices import SketchName
from densehash.columns import on_gpu
from densehash.errors import InputError
from densehash.index.columns import Columns
from densehash.index.encoding import as_hashed
from densehash.index.grouping import Centers, n_small_groups_for
from densehash.index.ids import IdType
from densehash.index.kinds import KINDS, Flat, Grouped, Kind
from densehash.index.lengths import rows_of_length
from densehash.index.segment import VECTOR_TYPES
from densehash.index.sketches import SKETCHES, Bits, Codes, Products, Signs, Sketch
from densehash.index.sketches.bits import HAMMING, Unpacked, packed, plain_codes
from densehash.index.sketches.products import Sample
from densehash.index.sketches.signs import can_have
from densehash.index.state import Settings, State
from densehash.parallel import n_threads
from densehash.rows import Rows, rows_of
from densehash.rows.devices import current_device
from densehash.rows.tensors import check_tensor
from densehash.source import Source
from densehash.truth import METRICS

if TYPE_CHECKING:
    from densehash.hashers import Hasher

__all__ = [
    "check_settings",
    "fitted",
    "kept_type",
    "kind_for",
    "learnt",
    "rows_to_build",
    "sketch_for",
    "state_of_codes",
]

_USUAL_BITS = 256

# Below this many rows, a scan of all rows is faster than groups.
_FEW_ROWS = 100_000
_FEW_ROWS_WITHOUT_HASHER = 2_000

_TRIED = 512  # random rows from which a hasher learns, to check its parameters

# The default, if the other settings allow it.
_USUAL_SKETCH = Signs


def rows_to_build(X: Any, metric: str) -> tuple[NDArray[Any] | Source, Any]:
    """Rows of a new index in memory, checked; and, if they are on a GPU, the rows to hash there.

    Examples
    --------
    >>> rows_to_build([[1.0, 2.0]], "l2")
    (array([[1., 2.]]), None)
    """
    if not on_gpu(X):
        return check_vectors(X, "X"), None
    from densehash.gpu.copies import array_of  # noqa: PLC0415  imports torch

    there = check_tensor(X, "X")
    rows_of(there).for_each(lambda *_: None, label="looking for bad rows")
    return array_of(there, n_threads()), as_hashed(there, metric)


def fitted(
    hasher: str | Hasher,
    X: NDArray[Any] | Source,
    *,
    n_bits: int | None,
    random_state: int | RandomState | None,
    verbose: int,
) -> Hasher:
    """A fitted hasher: a copy of the one given, if that is fitted, or one that learns from rows.

    Examples
    --------
    >>> fitted("auto", np.eye(4), n_bits=8, random_state=0, verbose=0)
    ITQ(n_bits=8, n_iter=0, random_state=0)
    """
    # Imported here, because signs do not need scikit-learn.
    from sklearn.base import clone  # noqa: PLC0415

    from densehash.hashers import Hasher  # noqa: PLC0415
    from densehash.hashers.registry import hasher_named  # noqa: PLC0415

    if isinstance(hasher, str):
        bits = _USUAL_BITS if n_bits is None else n_bits
        made = _usual_hasher(bits, X.shape[1]) if hasher == "auto" else hasher_named(hasher, bits)
        seeds = [name for name in made.get_params() if name.rpartition("__")[2] == "random_state"]
        made.set_params(**dict.fromkeys(seeds, random_state), verbose=verbose)
        return made.fit(X)
    if not isinstance(hasher, Hasher):
        raise InputError(
            f"hasher must be the name of a method or a Hasher, got a {type(hasher).__name__}"
        )
    learnt: Hasher = copy(hasher) if hasattr(hasher, "n_bits_") else clone(hasher).fit(X)
    # Rows are plain arrays here, without names of features; scikit-learn would warn each time.
    learnt.__dict__.pop("feature_names_in_", None)
    if n_bits not in (None, learnt.n_bits_):
        raise InputError(f"n_bits is {n_bits}, but the hasher makes {learnt.n_bits_} bits")
    return learnt


def _usual_hasher(n_bits: int, n_features: int) -> Hasher:
    from densehash.hashers import ITQ  # noqa: PLC0415

    # If there are more bits than features, a random rotation finds more of the nearest rows than
    # the rotation of ITQ, and takes no time to learn: .964 against .943 of the 10 nearest of
    # 600,000 SIFT rows are among 400 candidates, with 256 bits.
    return ITQ(n_bits, n_iter=0) if n_bits > n_features else ITQ(n_bits)


def learnt(
    hashed: Any,
    dtype: np.dtype[Any],
    *,
    metric: str,
    id_type: IdType,
    vector_type: str | None,
    payload: Columns | None = None,
    sketch: str = "auto",
    hasher: str | Hasher = "auto",
    n_bits: int | None = None,
    kind: str = "auto",
    n_groups: int | None = None,
    groups_a_row: int | None = None,
    n_tables: int | None = None,
    random_state: int | RandomState | None = None,
    most_groups: int | None = None,
    verbose: bool = False,
) -> State:
    """An empty index that has learnt all that it needs from rows.

    Every index that learns is made here, from rows in memory, in files, on a GPU or on a cluster.

    Parameters
    ----------
    hashed : rows as they are hashed, wherever they are
    dtype : type of the rows as the user gave them
    id_type, vector_type : types in which ids and vectors are kept
    payload : names and types of the columns that are kept beside the vectors
    metric, sketch, hasher, n_bits, kind, n_groups, groups_a_row, n_tables, random_state, verbose :
        as in :meth:`densehash.Index.build`
    most_groups : with signs and no ``n_groups``, the most groups; None: as many as suit the rows

    Examples
    --------
    >>> types = {"id_type": "int64", "vector_type": None}
    >>> rows, dtype = np.eye(8), np.dtype(float)
    >>> learnt(rows, dtype, metric="l2", hasher="lsh", n_bits=8, kind="multi", **types).in_words(0)
    'multi, 0 rows, 8 bits of LSH, no vectors, l2'
    """
    check_choice(metric, "metric", METRICS)
    rows_to_learn = partial(rows_of, hashed, verbose=verbose, device=current_device())
    options = {"n_groups": n_groups, "n_tables": n_tables}
    chosen = sketch_for(sketch, hasher, kind, n_bits)
    made: Sketch
    settings = Settings()
    if not issubclass(chosen, Codes):
        _check_no_hasher(hasher, chosen)
        where, made, reason = _learnt_without_hasher(
            chosen,
            kind,
            rows_to_learn(),
            n_bits,
            options=options,
            most_groups=most_groups,
            metric=metric,
            random_state=random_state,
            second=vector_type is None,
            scaled=chosen.takes_scales and vector_type == "int8" and dtype.kind == "f",
            groups_a_row=groups_a_row,
        )
    else:
        _check_groups_a_row(groups_a_row, chosen)
        for_products = metric == "ip"
        sample = Sample.of(rows_to_learn(), random_state) if for_products else None
        fit = fitted(
            hasher,
            hashed if sample is None else rows_of_length(hashed, sample.length),
            n_bits=n_bits,
            random_state=random_state,
            verbose=int(verbose),
        )
        where, reason = kind_for(
            kind,
            rows_to_learn(),
            fit.n_bits_,
            options=options,
            random_state=random_state,
            for_products=for_products,
        )
        made = chosen(fit) if sample is None else Products.of(fit, sample)
        if sample is not None and isinstance(where, Grouped) and len(sample.rows):
            settings = Settings(probes=where.n_probes_for_products(sample.rows))
    return State(
        made, where, metric, id_type, vector_type, reason=reason, settings=settings, payload=payload
    )


def sketch_for(sketch: str, hasher: str | Hasher, kind: str, n_bits: int | None) -> type[Sketch]:
    """The sketch of a name; "auto" chooses it by the other settings.

    Examples
    --------
    >>> sketch_for("auto", "auto", "auto", None).name, sketch_for("auto", "dsh", "auto", None).name
    ('signs', 'codes')
    """
    check_choice(sketch, "sketch", get_args(SketchName))
    if sketch != "auto":
        return SKETCHES[sketch]
    as_usual = (
        hasher == "auto"
        and kind in ("auto", *_USUAL_SKETCH.kinds)
        and (n_bits is None or can_have(n_bits))
    )
    return _USUAL_SKETCH if as_usual else Codes


def state_of_codes(
    codes: Any,
    *,
    hasher: Hasher | None = None,
    n_bits: int | None = None,
    kind: str = "auto",
    n_groups: int | None = None,
    n_tables: int | None = None,
    random_state: int | RandomState | None = None,
    id_type: IdType = "int64",
    verbose: bool = False,
) -> tuple[State, NDArray[np.uint8]]:
    """An empty index for codes that were made elsewhere, and these codes as it keeps them.

    The parameters are those of :meth:`densehash.Index.from_codes`.

    Examples
    --------
    >>> state, codes = state_of_codes(np.zeros((3, 2), np.uint8))
    >>> state.in_words(len(codes))
    'flat, 3 rows, 16 ready-made bits, no vectors, hamming'
    """
    check_choice(kind, "kind", ("auto", *KINDS))
    if hasher is not None:
        if not hasattr(hasher, "n_bits_") or not hasattr(hasher, "transform"):
            raise InputError("hasher must be the fitted Hasher that made the codes")
        if n_bits not in (None, hasher.n_bits_):
            raise InputError(f"n_bits is {n_bits}, but the hasher makes {hasher.n_bits_} bits")
        n_bits = hasher.n_bits_
        hasher = copy(hasher)
        hasher.__dict__.pop("feature_names_in_", None)  # as in `fitted`
    kept, bits = packed(plain_codes(codes, "codes"), n_bits, "codes")
    if len(kept) == 0:
        raise InputError("codes are empty, at least 1 row is needed")
    sketch = Bits(bits, hasher)
    chosen = kind
    if kind == "auto":
        chosen = Flat.name if n_groups is None else Grouped.name
    where, reason = kind_for(
        chosen,
        Rows(Unpacked(kept, bits), verbose=verbose),
        bits,
        options={"n_groups": n_groups, "n_tables": n_tables},
        random_state=random_state,
    )
    if kind == "auto" and n_groups is None:
        reason = "flat: all codes are compared, so none is missed; for speed, give n_groups"
    return State(sketch, where, HAMMING, id_type, None, reason=reason), kept


def _learnt_without_hasher(
    sketch: type[Sketch],
    kind: str,
    rows: Rows,
    n_bits: int | None,
    *,
    options: Mapping[str, int | None],
    most_groups: int | None,
    metric: str,
    random_state: int | RandomState | None,
    second: bool,
    scaled: bool,
    groups_a_row: int | None,
) -> tuple[Kind, Sketch, str]:
    """The kind of an index, its sketch, which takes no hasher, and why they were chosen."""
    if rows.n_rows < 2:
        raise InputError("an index learns from at least 2 rows, got n_samples = 1")
    chosen, n_copies = _kind_without_hasher(
        sketch, kind, rows.n_rows, options=options, second=second, groups_a_row=groups_a_row
    )
    bits = sketch.n_bits_for(rows.n_features, n_bits)
    given = dict(options)
    if "n_groups" in KINDS[chosen].options and given.get("n_groups") is None:
        suited = n_small_groups_for(rows.n_rows)
        given["n_groups"] = suited if most_groups is None else max(min(suited, most_groups), 2)
    where, reason = kind_for(
        chosen,
        rows,
        bits,
        options=given,
        random_state=random_state,
        for_products=metric == "ip",
    )
    if kind == "auto":
        reason = (
            f"{chosen}: from {_FEW_ROWS_WITHOUT_HASHER:,} rows on it is {sketch.kinds[-1]}, "
            f"below it is {sketch.kinds[0]}"
        )
    if isinstance(where, Grouped):  # signs describe float32 numbers, so the shift is float32, too
        old = where.centers
        shift = old.shift.astype(np.float32).astype(np.float64)
        where = Grouped(Centers(old.centers, shift, old.longest))
    made = sketch.learn(
        rows,
        where,
        n_bits=bits,
        metric=metric,
        random_state=check_chance(random_state),
        n_copies=min(n_copies, len(where.centers)) if isinstance(where, Grouped) else 1,
        second=second,
        scaled=scaled,
    )
    if n_bits is None:
        reason += f"; {bits} bits of {sketch.name}, as suits {rows.n_features} features"
    return where, made, reason


def _kind_without_hasher(
    sketch: type[Sketch],
    kind: str,
    n_rows: int,
    *,
    options: Mapping[str, int | None],
    second: bool,
    groups_a_row: int | None,
) -> tuple[str, int]:
    """The name of the kind, and in how many groups a row lies."""
    check_choice(kind, "kind", ("auto", *KINDS))
    if kind not in ("auto", *sketch.kinds):
        raise InputError(
            f"sketch={sketch.name!r} works with the kinds {' and '.join(sketch.kinds)}; for "
            f"kind={kind!r}, use sketch='codes'"
        )
    n_copies = _check_groups_a_row(groups_a_row, sketch)
    chosen = kind
    if kind == "auto":
        few = n_rows < _FEW_ROWS_WITHOUT_HASHER and options.get("n_groups") is None
        chosen = sketch.kinds[0 if few else -1]
    if n_copies == 2 and not KINDS[chosen].has_groups:
        raise InputError(f"groups_a_row=2 is for the grouped kind, this one is {chosen}")
    if n_copies == 2 and second:
        raise InputError("groups_a_row=2 is for an index that keeps vectors, this index keeps none")
    return chosen, n_copies


def check_settings(
    n_features: int,
    n_rows: int,
    *,
    sketch: str,
    hasher: str,
    n_bits: int | None,
    kind: str,
    options: Mapping[str, int | None],
    keeps_vectors: bool,
    groups_a_row: int | None,
) -> None:
    """Refuse settings with which an index could not learn, before there are rows.

    Parameters
    ----------
    n_features : features of the rows that will be added
    n_rows : how many rows there will be at least
    keeps_vectors : whether vectors are kept after it has learnt
    sketch, hasher, n_bits, kind, options, groups_a_row : as in :func:`learnt`

    Examples
    --------
    >>> told = {"sketch": "auto", "hasher": "auto", "n_bits": None, "kind": "grouped"}
    >>> told |= {"keeps_vectors": True, "groups_a_row": None}
    >>> check_settings(8, 1000, options={"n_groups": 40}, **told)
    >>> check_settings(8, 1000, options={"n_groups": 4000}, **told)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: n_groups must be from 1 to 1000, got 4000
    """
    chosen = sketch_for(sketch, hasher, kind, n_bits)
    if not issubclass(chosen, Codes):
        _check_no_hasher(hasher, chosen)
        kind, _ = _kind_without_hasher(
            chosen,
            kind,
            n_rows,
            options=options,
            second=not keeps_vectors,
            groups_a_row=groups_a_row,
        )
        bits = chosen.n_bits_for(n_features, n_bits)
    else:
        _check_groups_a_row(groups_a_row, chosen)
        bits = _USUAL_BITS if n_bits is None else check_integer(n_bits, "n_bits", 1, MAX_BITS)
        if hasher != "auto":  # each hasher has its own rules
            made_up = RandomState(0).standard_normal((min(n_rows, _TRIED), n_features))
            bits = fitted(hasher, made_up, n_bits=n_bits, random_state=0, verbose=0).n_bits_
    _, _, given = _kind_told(kind, n_rows, options)
    check_integer(given.get("n_groups", 1), "n_groups", 1, n_rows)
    check_integer(given.get("n_tables", 1), "n_tables", 1, bits)


def _check_no_hasher(hasher: str | Hasher, sketch: type[Sketch]) -> None:
    if hasher != "auto":
        raise InputError(
            f"sketch={sketch.name!r} learns by itself and takes no hasher: leave hasher out, or "
            "use sketch='codes'"
        )


def _check_groups_a_row(groups_a_row: int | None, sketch: type[Sketch]) -> int:
    """In how many groups a row lies."""
    if groups_a_row is None:
        return 1
    if sketch.most_groups_a_row == 1:
        of = next(one.name for one in SKETCHES.values() if one.most_groups_a_row > 1)
        raise InputError(f"groups_a_row is for sketch={of!r}, this is sketch={sketch.name!r}")
    return check_integer(groups_a_row, "groups_a_row", 1, sketch.most_groups_a_row)


def kind_for(
    kind: str,
    rows: Rows,
    n_bits: int,
    *,
    options: Mapping[str, int | None],
    random_state: int | RandomState | None,
    for_products: bool = False,
) -> tuple[Kind, str]:
    """The kind of an index, and why it was chosen.

    Parameters
    ----------
    kind : its name, or "auto"
    rows : the rows of the index
    n_bits : bits that are kept of a row
    options : options of all kinds, by name; an option of another kind is an error, unless it is
        None
    random_state : seed or generator for what is learnt
    for_products : whether queries look for large inner products instead of near rows

    Examples
    --------
    >>> kind_for("multi", Rows(np.eye(4)), 8, options={"n_tables": 2}, random_state=0)[1]
    'multi, as was asked for'
    """
    chosen, reason, given = _kind_told(kind, rows.n_rows, options)
    learnt = KINDS[chosen].learn(
        rows, given, n_bits=n_bits, random_state=random_state, for_products=for_products
    )
    return learnt, reason


def _kind_told(
    kind: str, n_rows: int, options: Mapping[str, int | None]
) -> tuple[str, str, dict[str, int]]:
    """The name of the kind, why it was chosen, and the options that were given."""
    check_choice(kind, "kind", ("auto", *KINDS))
    reason = f"{kind}, as was asked for"
    given = {name: value for name, value in options.items() if value is not None}
    if kind == "auto":
        few = n_rows < _FEW_ROWS
        kind = "flat" if few and "n_groups" not in given else "grouped"
        reason = (
            f"flat: for {n_rows:,} rows, a scan of all codes is faster than groups; from "
            f"{_FEW_ROWS:,} rows on it is grouped"
            if kind == "flat"
            else f"grouped: with {n_rows:,} rows, a query looks only at the nearest groups; "
            f"below {_FEW_ROWS:,} rows it is flat"
        )
    for name in given:
        if name not in KINDS[kind].options:
            of = next(one.name for one in KINDS.values() if name in one.options)
            raise InputError(f"{name} is for the {of} kind, this one is {kind}")
    return kind, reason, given


def kept_type(dtype: np.dtype[Any], keep_vectors: bool | str) -> str | None:
    """The type in which vectors of some type are kept; None if they are not kept.

    Examples
    --------
    >>> kept_type(np.dtype("uint8"), True), kept_type(np.dtype("float64"), True)
    ('uint8', 'float32')
    """
    if keep_vectors is False:
        return None
    if keep_vectors is True:
        return dtype.name if dtype.name in VECTOR_TYPES else "float32"
    if keep_vectors not in VECTOR_TYPES:
        raise InputError(
            f"keep_vectors must be True, False or one of {', '.join(VECTOR_TYPES)}, "
            f"got {keep_vectors!r}"
        )
    return keep_vectors
