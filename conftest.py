"""Files and examples that need an extra are left out where it is not installed."""

from importlib.util import find_spec
from sqlite3 import Connection

import pytest

collect_ignore_glob = [] if find_spec("distributed") else ["src/densehash/distributed/*.py"]
if not find_spec("dask"):
    collect_ignore_glob.append("src/densehash/rows/dask.py")
if not find_spec("torch"):
    collect_ignore_glob.append("src/densehash/gpu/*.py")
if not find_spec("triton"):
    collect_ignore_glob += [f"src/densehash/gpu/{name}.py" for name in ("kernels", "matrices")]
if not find_spec("pyarrow"):
    files = ("columns", "fetching", "given", "matching", "payload")
    collect_ignore_glob += [f"src/densehash/index/{name}.py" for name in files]
# By the file of an export or an adapter, the package that its example needs.
exports = {"faiss": "faiss", "usearch": "usearch", "lance": "lance", "duckdb": "duckdb"}
exports |= dict.fromkeys(("parquet", "pgvector", "sql"), "pyarrow")
for name, package in exports.items():
    if not find_spec(package):
        collect_ignore_glob.append(f"src/densehash/export/{name}.py")
adapters = {"documents": "pyarrow", "langchain": "langchain_core", "llama_index": "llama_index"}
for name, package in adapters.items():
    if not find_spec(package):
        collect_ignore_glob.append(f"src/densehash/integrations/{name}.py")
if not find_spec("sqlite_vec") or not (
    hasattr(Connection, "enable_load_extension") or find_spec("sqlean")
):
    collect_ignore_glob.append("src/densehash/export/sqlite_vec.py")


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
