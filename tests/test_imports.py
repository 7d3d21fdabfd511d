"""A quick start: what is loaded by what, each in a process of its own."""

import json
import pickle
import subprocess
import sys
from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hasher_cases import mixture
from threadpoolctl import ThreadpoolController

import densehash
from densehash import LSH, Index

X = mixture(400, dtype=np.float32)
COMMANDS = """
from densehash.cli import main
for command in {}:
    try:
        main(command)
    except SystemExit as end:
        assert not end.code
"""


def answer_of(code: str, *arguments: str) -> Any:
    """What some code leaves in `answer`, in a fresh process."""
    code = (
        f"import json, sys\nbefore = set(sys.modules)\n{code}\nprint()\nprint(json.dumps(answer))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def loaded_by(code: str, *arguments: str) -> set[str]:
    """Modules that some code loads."""
    return set(answer_of(f"{code}\nanswer = [*set(sys.modules) - before]", *arguments))


def packages(modules: Set[str]) -> set[str]:
    """Packages that are not Python's own, without what Cython makes inside numpy."""
    every = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    return {name for name in every if "cython" not in name}


def ours(modules: Set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "densehash"}


def test_the_package_loads_nothing_but_itself() -> None:
    loaded = loaded_by("import densehash")
    assert packages(loaded) == {"densehash"}
    assert ours(loaded) == {"densehash"}
    assert "importlib.metadata" not in loaded  # the version is looked up when it is asked for


def test_what_needs_numpy_only() -> None:
    code = """
from densehash import Index, datasets, estimates, hamming, metrics, pack, stream, truth
hamming.top_k(pack([[1, 0]]), pack([[1, 1]]), 1)
"""
    assert packages(loaded_by(code)) == {"densehash", "numpy"}


@pytest.mark.parametrize("kind", ["flat", "grouped"])
def test_a_search_by_signs_needs_numpy_only(tmp_path: Path, kind: Any) -> None:
    index = Index.build(X, kind=kind, random_state=0, path=tmp_path / "index")
    np.save(tmp_path / "queries.npy", X[:2])
    code = """
import numpy
from densehash import Index
queries = numpy.load(sys.argv[2])
index = Index.open(sys.argv[1])
found = [index.search(asked, k=4).ids.tolist() for asked in (queries, queries.tolist())]
answer = found, [*set(sys.modules) - before]
"""
    found, loaded = answer_of(code, str(tmp_path / "index"), str(tmp_path / "queries.npy"))
    assert found == [index.search(X[:2], k=4).ids.tolist()] * 2
    assert packages(set(loaded)) == {"densehash", "numpy"}


def test_help_loads_what_writes_it() -> None:
    loaded = loaded_by(COMMANDS.format([["--help"], ["build", "--help"], ["paper", "--help"]]))
    assert not packages(loaded) & {"dask", "numpy", "pandas", "scipy", "sklearn", "threadpoolctl"}
    assert {name for name in ours(loaded) if not name.startswith("densehash.cli")} == {
        "densehash",
        "densehash.choices",
        "densehash.distributed",
        "densehash.errors",
        "densehash.export",
        "densehash.progress",
    }


def test_a_command_about_signs_needs_no_scikit_learn(tmp_path: Path) -> None:
    Index.build(X, random_state=0, path=tmp_path / "index")
    np.save(tmp_path / "queries.npy", X[:2])
    index, queries = str(tmp_path / "index"), str(tmp_path / "queries.npy")
    loaded = loaded_by(COMMANDS.format([["search", index, queries, "--json"], ["info", index]]))
    assert not packages(loaded) & {"dask", "scipy", "sklearn"}
    # The paper, its report and downloads wait until they are asked for.
    assert "densehash.datasets.files" in loaded
    late = ("paper", "report", "demo", "datasets.download", "datasets.connect", "datasets.archive")
    assert not {name for name in loaded if name.removeprefix("densehash.").startswith(late)}
    assert not loaded & {"ftplib", "http.client", "tarfile"}


def test_names_and_pickles_load_what_they_need(tmp_path: Path) -> None:
    hasher = LSH(16, random_state=0).fit(X)
    (tmp_path / "hasher").write_bytes(pickle.dumps(hasher))
    code = """
import pickle
from pathlib import Path
hasher = pickle.loads(Path(sys.argv[1]).read_bytes())
import densehash
modules = [densehash.bits, densehash.errors, densehash.hamming, densehash.hashers, densehash.index]
from densehash import *
answer = [
    hasher.transform(hasher.planes_).tolist(),
    [module.__name__.removeprefix("densehash.") for module in modules],
    [name in globals() for name in sys.argv[2:]],
]
"""
    codes, modules, names = answer_of(code, str(tmp_path / "hasher"), *densehash.__all__)
    assert codes == hasher.transform(hasher.planes_).tolist()
    assert modules == ["bits", "errors", "hamming", "hashers", "index"]
    assert all(names)
    assert set(densehash.__all__) <= set(dir(densehash))
    assert "HashingNeighbors" in dir(densehash.index)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'densehash' has no attribute 'nothing'"):
        densehash.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="module 'densehash.index' has no attribute 'nothing'"):
        densehash.index.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        from densehash import nothing  # type: ignore[attr-defined]  # noqa: F401


def test_a_limit_of_threads_holds_for_libraries_that_come_later() -> None:
    """scipy is loaded inside, and its BLAS has not heard of the limit."""
    if not any("numpy" in library.filepath for library in blas_libraries()):
        pytest.skip("numpy has no BLAS of its own")
    code = """
import numpy
from threadpoolctl import threadpool_limits
from densehash.parallel import n_threads
with threadpool_limits(1):
    answer = [n_threads(), "scipy" in sys.modules]
"""
    assert answer_of(code) == [1, True]


def blas_libraries() -> list[Any]:
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
