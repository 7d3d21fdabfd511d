"""faiss: codes as a binary index, and a linear hasher as a transform of faiss."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from densehash.bits import pack
from densehash.datasets.reading import import_extra
from densehash.disk import replacing
from densehash.errors import InputError
from densehash.export.numbers import ids_path, keys_of, write_ids
from densehash.export.rows import AnyIndex, Export, Snapshot, check_free
from densehash.hashers.base import Hasher, LinearHasher
from densehash.index.kinds import Grouped
from densehash.index.sketches import Products
from densehash.index.sketches.bits import HAMMING

__all__ = ["faiss_transform", "to_faiss"]

_QUERY = """\
import faiss, numpy as np

index = faiss.read_index_binary({path!r})
{codes}
distances, keys = index.search(codes, 10)
"""
_BY_TRANSFORM = """\
transform = faiss.read_VectorTransform({path!r})  # of float32 queries Q{scaled}
codes = np.packbits(transform.apply(Q) >= 0, axis=1, bitorder="little")"""
_BY_DENSEHASH = """\
codes = densehash.export.codes_of(densehash.Index.open(...), Q)"""
_STRINGS = "ids = np.array(json.loads(Path({path!r}).read_text()), object)[keys]\n"


def to_faiss(index: AnyIndex, path: str | os.PathLike[str], *, force: bool = False) -> Export:
    """Write codes as a binary index of faiss.

    It is an ``IndexBinaryFlat`` with ids, in an ``IndexBinaryIDMap2``. An index of the grouped kind
    becomes an ``IndexBinaryIVF`` with the same groups, which finds the groups of a query by the
    codes of their centres. Its ``nprobe`` says how many a query visits, the same number as in the
    index.

    Ids of faiss are numbers. If those of the index are strings, faiss gets the numbers of rows,
    and ``PATH.ids.json`` lists the ids in that order. A linear hasher is written to
    ``PATH.transform``, with which faiss makes codes of queries: see :func:`faiss_transform`. Codes
    in faiss have whole bytes: 13 bits become 16, and three of these are always zero.

    Parameters
    ----------
    index : an index of codes, in shards or not; faiss gets neither vectors nor payload
    path : the file, for ``faiss.read_index_binary``; it appears only when it is complete
    force : whether existing files are replaced

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(4), sketch="codes", n_bits=13, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in to_faiss(index, Path(folder, "codes.faiss")).paths]
    ['codes.faiss', 'codes.faiss.transform']
    """
    out = Path(path)
    faiss = import_extra("faiss", "export")
    rows = Snapshot(index, payload=False)
    strings = ids_path(out, rows)
    planes = [out.with_name(f"{out.name}.transform")] if _is_linear(rows.hasher) else []
    check_free([out, *strings, *planes], force=force)
    made = _index_of(faiss, rows)
    write_ids(strings, rows)
    for place in planes:
        with replacing(place) as file:
            faiss.write_VectorTransform(faiss_transform(rows.hasher), str(file))
    with replacing(out) as file:
        faiss.write_index_binary(made, str(file))
    scaled = ", scaled to length one" if rows.metric == "cosine" else ""
    if isinstance(rows.sketch, Products):
        scaled = f", scaled to length {rows.sketch.length}"
    by = _BY_TRANSFORM.format(path=str(planes[0]), scaled=scaled) if planes else _BY_DENSEHASH
    query = _QUERY.format(path=str(out), codes=by)
    query += "".join(_STRINGS.format(path=str(place)) for place in strings)
    return Export(len(rows), (out, *strings, *planes), query)


def _index_of(faiss: Any, rows: Snapshot) -> Any:
    n_bits, labels = 8 * rows.width, rows.labels
    if not isinstance(rows.kind, Grouped) or labels is None:
        flat = faiss.IndexBinaryIDMap2(faiss.IndexBinaryFlat(n_bits))
        for part in rows.parts():
            flat.add_with_ids(part.codes, keys_of(part))
        return flat
    centers = rows.kind.centers
    groups = faiss.IndexBinaryFlat(n_bits)
    points = centers.centers + centers.shift
    if rows.metric == HAMMING:
        groups.add(pack(points >= 0.5))
    else:
        groups.add(rows.sketch.encode(points[:, : rows.n_features], None)["codes"])
    made = faiss.IndexBinaryIVF(groups, n_bits, len(centers))
    made.is_trained, made.nprobe = True, rows.kind.n_probes(rows.probes)
    for part in rows.parts():
        arrays = part.codes, keys_of(part), labels[part.start : part.start + len(part.ids)]
        made.add_core(len(part.ids), *map(faiss.swig_ptr, arrays))
    return made


def faiss_transform(hasher: Hasher) -> Any:
    """A linear hasher as a ``LinearTransform`` of faiss, which returns margins.

    Bit l is ``transform.apply(x)[:, l] >= 0``, and
    ``numpy.packbits(transform.apply(x) >= 0, axis=1, bitorder="little")`` are codes. faiss computes
    in float32, in an order of its own, so a margin that is almost zero may get another sign.

    Parameters
    ----------
    hasher : LSH, PCAH, ITQ, DSH or Refined, fitted

    Examples
    --------
    >>> from densehash import LSH
    >>> X = np.random.default_rng(0).standard_normal((9, 4), dtype=np.float32)
    >>> hasher = LSH(8, random_state=0).fit(X)
    >>> margins = faiss_transform(hasher).apply(X)
    >>> bool(np.allclose(margins, hasher.project(X), atol=1e-5))
    True
    """
    faiss = import_extra("faiss", "export")
    if not isinstance(hasher, LinearHasher):
        raise InputError(
            f"{type(hasher).__name__} is not linear, and faiss has linear transforms only: make "
            "codes of queries with densehash.export.codes_of"
        )
    if not _is_linear(hasher):
        raise InputError(
            "this hasher computes in float64, because its rows lie far from zero, and faiss in "
            "float32: make codes of queries with densehash.export.codes_of"
        )
    n_bits, n_features = hasher.planes_.shape
    transform = faiss.LinearTransform(n_features, n_bits, True)
    faiss.copy_array_to_vector(hasher.planes_.astype(np.float32).reshape(-1), transform.A)
    faiss.copy_array_to_vector(-hasher.thresholds_.astype(np.float32), transform.b)
    transform.is_trained = True
    return transform


def _is_linear(hasher: Hasher) -> bool:
    return isinstance(hasher, LinearHasher) and not hasher.uses_float64_
