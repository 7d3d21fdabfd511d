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
HELP = "from densehash.cli import main\ntry:\n    main({!r})\nexcept SystemExit:\n    pass"


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
    """Packages that are not Python's own."""
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names


def ours(modules: Set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "densehash"}


def test_the_package_loads_nothing_but_itself() -> None:
    loaded = loaded_by("import densehash")
    assert packages(loaded) == {"densehash"}
    assert ours(loaded) == {"densehash"}
    assert "importlib.metadata" not in loaded  # the version is looked up when it is asked for


@pytest.mark.parametrize(
    "code",
    [
        "from densehash import Index",
        "from densehash.index import Hits, Tuning",
        "from densehash import hamming, pack; hamming.top_k(pack([[1, 0]]), pack([[1, 1]]), 1)",
        "from densehash import truth, datasets, estimates, metrics, stream",
    ],
)
def test_what_needs_numpy_only(code: str) -> None:
    assert packages(loaded_by(code)) == {"densehash", "numpy"}


@pytest.mark.parametrize("kind", ["flat", "grouped"])
def test_a_search_by_signs_needs_numpy_only(tmp_path: Path, kind: str) -> None:
    index = Index.build(X, kind=kind, random_state=0, path=tmp_path / "index")
    code = """
from densehash import Index
index = Index.open(sys.argv[1])
rows = index.vectors([3, 5])
found = index.search(rows, k=4)
again = index.search(rows.tolist(), k=4)
answer = [found.ids.tolist(), again.ids.tolist(), [*set(sys.modules) - before]]
"""
    ids, again, loaded = answer_of(code, str(tmp_path / "index"))
    assert ids == again == index.search(X[[3, 5]], k=4).ids.tolist()
    assert packages(set(loaded)) == {"densehash", "numpy"}


@pytest.mark.parametrize("arguments", [["--help"], ["build", "--help"], ["paper", "--help"]])
def test_help_loads_what_writes_it(arguments: list[str]) -> None:
    loaded = loaded_by(HELP.format(arguments))
    assert not packages(loaded) & {"dask", "numpy", "pandas", "scipy", "sklearn", "threadpoolctl"}
    assert {name for name in ours(loaded) if not name.startswith("densehash.cli")} == {
        "densehash",
        "densehash.distributed",
        "densehash.errors",
        "densehash.paper",
        "densehash.paper.methods",
        "densehash.paper.published",
        "densehash.paper.studies",
        "densehash.progress",
    }


def test_a_command_about_signs_needs_no_scikit_learn(tmp_path: Path) -> None:
    Index.build(X, random_state=0, path=tmp_path / "index")
    np.save(tmp_path / "queries.npy", X[:2])
    index, queries = str(tmp_path / "index"), str(tmp_path / "queries.npy")
    for arguments in (["search", index, queries, "--json"], ["info", index]):
        assert not packages(loaded_by(HELP.format(arguments))) & {"dask", "scipy", "sklearn"}


def test_every_name_is_there_when_it_is_asked_for() -> None:
    code = (
        "from densehash import *\nanswer = sorted(name for name in globals() if name in sys.argv)"
    )
    assert answer_of(code, *densehash.__all__) == sorted(densehash.__all__)
    assert set(densehash.__all__) <= set(dir(densehash))
    assert "HashingNeighbors" in dir(densehash.index)


def test_modules_of_the_package_are_attributes() -> None:
    code = "import densehash\nanswer = [getattr(densehash, name).__name__ for name in sys.argv[1:]]"
    names = ["bits", "errors", "hamming", "hashers", "index"]
    assert answer_of(code, *names) == [f"densehash.{name}" for name in names]


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'densehash' has no attribute 'nothing'"):
        densehash.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="module 'densehash.index' has no attribute 'nothing'"):
        densehash.index.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        from densehash import nothing  # type: ignore[attr-defined]  # noqa: F401


def test_a_pickle_loads_what_it_needs(tmp_path: Path) -> None:
    hasher = LSH(16, random_state=0).fit(X)
    (tmp_path / "hasher").write_bytes(pickle.dumps(hasher))
    np.save(tmp_path / "rows.npy", X[:3])
    code = """
import pickle
from pathlib import Path
import numpy
folder = Path(sys.argv[1])
hasher = pickle.loads((folder / "hasher").read_bytes())
answer = hasher.transform(numpy.load(folder / "rows.npy")).tolist()
"""
    assert answer_of(code, str(tmp_path)) == hasher.transform(X[:3]).tolist()


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
