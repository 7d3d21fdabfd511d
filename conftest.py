"""Files that need an extra are left out where it is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("distributed") else ["src/densehash/distributed/*.py"]
if not find_spec("dask"):
    collect_ignore_glob.append("src/densehash/rows/dask.py")
