"""Parquet: a file with ids, codes as fixed-size binary, and the payload."""

from __future__ import annotations

import os
from pathlib import Path

from densehash.datasets.reading import import_extra
from densehash.disk import replacing
from densehash.export.rows import AnyIndex, Export, Snapshot, check_free

__all__ = ["to_parquet"]

_QUERY = """\
import pyarrow.parquet as pq
from densehash import hamming
from densehash.export import codes_of

table = pq.read_table({path!r})
codes = np.stack([np.frombuffer(code, np.uint8) for code in table["code"].to_pylist()])
distances, rows = hamming.top_k(codes_of(index, Q), codes, 10)
"""


def to_parquet(
    index: AnyIndex,
    path: str | os.PathLike[str],
    *,
    vectors: bool = False,
    force: bool = False,
) -> Export:
    """Write a Parquet file with the columns id, code, vector (if ``vectors``), and the payload.

    Codes are fixed-size binary in little bit order: bit i is ``code[i // 8] >> (i % 8) & 1``. The
    metadata of the schema says how many bits there are.

    Parameters
    ----------
    index : an index of codes, in shards or not
    path : the file; it appears only when it is complete
    vectors : whether vectors are written, too, as fixed-size lists of float32
    force : whether an existing file is replaced

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(4), sketch="codes", n_bits=13, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     to_parquet(index, Path(folder, "codes.parquet")).n_rows
    4
    """
    out = Path(path)
    pq = import_extra("pyarrow.parquet", "export")
    rows = Snapshot(index, vectors=vectors)
    check_free([out], force=force)
    with replacing(out) as part, pq.ParquetWriter(str(part), rows.schema()) as writer:
        for table in rows.tables():
            writer.write_table(table)
    return Export(len(rows), (out,), _QUERY.format(path=str(out)))
