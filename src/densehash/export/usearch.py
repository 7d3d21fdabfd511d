"""usearch: codes as an index of single bits (b1) by Hamming distance."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from densehash.datasets.reading import import_extra
from densehash.disk import replacing
from densehash.export.numbers import ids_path, keys_of, write_ids
from densehash.export.rows import AnyIndex, Export, Snapshot, check_free

__all__ = ["to_usearch"]

_QUERY = """\
from usearch.index import Index

codes = densehash.export.codes_of(densehash.Index.open(...), Q)
matches = Index.restore({path!r}).search(codes, 10)
matches.keys, matches.distances
"""
_STRINGS = "ids = np.array(json.loads(Path({path!r}).read_text()), object)[matches.keys]\n"


def to_usearch(index: AnyIndex, path: str | os.PathLike[str], *, force: bool = False) -> Export:
    """Write codes as an index of usearch: ``metric="hamming"``, ``dtype="b1"``.

    usearch makes a graph of the codes. Its searches are approximate, unless you search with
    ``exact=True``. Keys of usearch are numbers. If ids are strings, it gets the numbers of rows,
    and ``PATH.ids.json`` lists the ids in that order. Codes in usearch have whole bytes.

    Parameters
    ----------
    index : an index of codes, in shards or not; usearch gets neither vectors nor payload
    path : the file, for ``usearch.index.Index.restore``; it appears only when it is complete
    force : whether existing files are replaced

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(4), sketch="codes", n_bits=13, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     to_usearch(index, Path(folder, "codes.usearch")).n_rows
    4
    """
    out = Path(path)
    usearch = import_extra("usearch.index", "export")
    rows = Snapshot(index, payload=False)
    strings = ids_path(out, rows)
    check_free([out, *strings], force=force)
    made = usearch.Index(ndim=8 * rows.width, metric="hamming", dtype="b1")
    for part in rows.parts():
        made.add(keys_of(part).astype(np.uint64), part.codes)
    write_ids(strings, rows)
    with replacing(out) as file:
        made.save(str(file))
    query = _QUERY.format(path=str(out))
    query += "".join(_STRINGS.format(path=str(place)) for place in strings)
    return Export(len(rows), (out, *strings), query)
