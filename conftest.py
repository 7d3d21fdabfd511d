"""Files and examples that need an extra are left out where it is not installed."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from sqlite3 import Connection

import pytest

# By the file or folder of the package whose examples need it, the package that they need.
NEEDED = {
    "distributed": "distributed",
    "gpu": "torch",
    "gpu/kernels.py": "triton",
    "gpu/matrices.py": "triton",
    "rows/dask.py": "dask",
    "integrations/langchain.py": "langchain_core",
    "integrations/llama_index.py": "llama_index",
}
NEEDED |= {f"export/{name}.py": name for name in ("duckdb", "faiss", "lance", "usearch")}
NEEDED |= {
    f"{name}.py": "pyarrow"
    for name in (
        *("export/parquet", "export/pgvector", "export/sql", "integrations/documents"),
        *(f"index/{name}" for name in ("columns", "fetching", "given", "matching", "payload")),
    )
}
MISSING = {file for file, package in NEEDED.items() if not find_spec(package)}
if not find_spec("sqlite_vec") or not (
    hasattr(Connection, "enable_load_extension") or find_spec("sqlean")
):
    MISSING.add("export/sqlite_vec.py")


# Tests write 3 GB, most of it removed at once. In memory, they do not wait for the disk.
_ROOM = 8 << 30


def pytest_configure() -> None:
    """Put temporary folders into memory, if a file system there has room."""
    memory = "/dev/shm"  # noqa: S108  pytest makes a folder there that only we can read
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files of the package, from its sources or where it is installed."""
    return any(collection_path.match(f"densehash/{file}") for file in MISSING) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip examples in docstrings that have a payload."""
    if find_spec("pyarrow"):
        return
    words = ("payload=", ".to_arrow(", ".to_pandas(")
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.dtest is not None:
            source = "".join(example.source for example in item.dtest.examples)
            if any(word in source for word in words):
                item.add_marker(pytest.mark.skip(reason="payloads need the extra payload"))
