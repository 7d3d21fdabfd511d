"""Lance: a folder with ids, codes as fixed-size binary, and the payload."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from densehash.datasets.reading import import_extra
from densehash.disk import is_there, writing
from densehash.errors import FileError, InputError
from densehash.export.rows import AnyIndex, Export, Snapshot, check_free
from densehash.index.columns import arrow

__all__ = ["to_lance"]

_QUERY = """\
import lance
from densehash import hamming
from densehash.export import codes_of

table = lance.dataset({path!r}).to_table(columns=["id", "code"])
codes = np.stack([np.frombuffer(code, np.uint8) for code in table["code"].to_pylist()])
distances, rows = hamming.top_k(codes_of(index, Q), codes, 10)
"""


def to_lance(
    index: AnyIndex,
    path: str | os.PathLike[str],
    *,
    vectors: bool = False,
    force: bool = False,
) -> Export:
    """Write a Lance dataset with the columns id, code, vector (if ``vectors``), and the payload.

    Codes are as in :func:`densehash.export.to_parquet`.

    Parameters
    ----------
    index : an index of codes, in shards or not
    path : the folder; it appears only when it is complete
    vectors : whether vectors are written, too, as fixed-size lists of float32
    force : whether an existing dataset gets a new version, with these rows in place of its own

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(4), sketch="codes", n_bits=13, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     to_lance(index, Path(folder, "codes.lance")).n_rows
    4
    """
    out = Path(path)
    pa, lance = arrow(), import_extra("lance", "export")
    rows = Snapshot(index, vectors=vectors)
    for name in rows.names:
        if "." in name:
            raise InputError(
                f"Lance has no columns with a dot in their name, and the payload has {name!r}: "
                "export to parquet"
            )
    is_dataset = _check_free(out, force=force)
    batches = (batch for table in rows.tables() for batch in table.to_batches())
    reader = pa.RecordBatchReader.from_batches(rows.schema(), batches)
    with writing(out):
        if is_dataset:  # which stays what it is until the new version is whole
            lance.write_dataset(reader, str(out), mode="overwrite")
        else:
            with TemporaryDirectory(prefix=".densehash-", dir=out.absolute().parent) as folder:
                lance.write_dataset(reader, str(Path(folder, "part")))
                Path(folder, "part").rename(out)
    return Export(len(rows), (out,), _QUERY.format(path=str(out)))


def _check_free(out: Path, *, force: bool) -> bool:
    """Refuse to replace anything but a dataset; whether there is one."""
    with writing(out):
        if not is_there(out):
            check_free([out], force=force)
            return False
    if not (out / "_versions").is_dir():
        raise FileError(f"{out} exists and is no dataset of Lance: choose another folder")
    if not force:
        raise FileError(f"{out} exists already: force=True (--force) replaces it")
    return True
