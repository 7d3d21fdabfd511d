"""Imports go one way: each room imports only rooms below it, as drawn in the design."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import densehash

SOURCE = Path(densehash.__file__).parent

# What each room may import of the package. A new room gets a line here.
ROOMS = {
    "errors": set(),
    "choices": set(),
    "locks": set(),
    "source": {"errors", "locks"},
    "stream": {"errors", "source"},
    "columns": {"errors"},
    "checks": {"columns", "errors", "source", "stream"},
    "bits": {"checks", "columns", "errors"},
    "tensors": {"columns", "errors"},
    "hamming": {"_native", "bits", "checks", "columns", "errors", "gpu", "tensors"},
    "parallel": {"locks"},
    "notebook": set(),
    "progress": set(),
    "disk": {"errors"},
    "file_locks": {"disk", "errors", "progress"},
    "mapped": {"_native", "source"},
    "store": {"_native", "disk", "errors", "file_locks", "mapped", "progress", "source"},
    "rows": {
        *("_native", "checks", "columns", "errors", "gpu", "locks", "mapped", "parallel"),
        *("progress", "source"),
    },
    "kmeans": {"checks", "columns", "errors", "rows"},
    "hashers": {
        *("bits", "checks", "columns", "errors", "kmeans", "mapped", "parallel", "progress"),
        *("rows", "source", "store", "tensors"),
    },
    "gpu": {"locks"},
    "truth": {
        *("checks", "choices", "errors", "gpu", "mapped", "parallel", "progress", "rows", "source"),
        "tensors",
    },
    "asymmetric": {"_native", "bits", "checks", "errors"},
    "estimates": {"checks", "errors", "parallel", "rows"},
    "metrics": {"checks", "errors", "hamming", "parallel"},
    "index": {
        *("_native", "bits", "checks", "choices", "columns", "errors", "gpu", "hamming", "hashers"),
        *("kmeans", "locks", "mapped", "notebook", "parallel", "progress", "rows", "source"),
        *("store", "tensors", "truth"),
    },
    "datasets": {
        *("checks", "disk", "errors", "file_locks", "locks", "mapped", "progress", "rows"),
        *("source", "stream"),
    },
    "report": {"disk", "errors"},
    "paper": {
        *("asymmetric", "bits", "checks", "choices", "datasets", "errors", "estimates", "hamming"),
        *("hashers", "index", "locks", "mapped", "metrics", "parallel", "progress", "report"),
        *("rows", "source", "truth"),
    },
    "distributed": {
        *("checks", "choices", "columns", "datasets", "disk", "errors", "hashers", "index"),
        *("locks", "mapped", "rows", "source", "store", "truth"),
    },
    "export": {"bits", "checks", "datasets", "disk", "distributed", "errors", "hashers", "index"},
    "integrations": {"checks", "choices", "errors", "index", "locks", "truth"},
    "demo": {"bits", "checks", "errors", "hamming", "hashers", "paper"},
    "cli": {
        *("__init__", "bits", "checks", "choices", "datasets", "demo", "disk", "distributed"),
        *("errors", "export", "hamming", "hashers", "index", "paper", "progress", "report"),
        *("source", "store"),
    },
    "__init__": {"bits", "errors", "hamming", "hashers", "index", "rows"},
}

# The floors of the index, the lowest first: a file imports only files of floors below, and of its
# own folder. Where rows lie (kinds) knows nothing of what is kept of them (sketches).
INDEX_FLOORS = (
    {"columns", "frames", "lengths"},
    {"gathering", "grouping", "ids", "payload", "placing", "scaling", "stored", "visits", "where"},
    {"given", "matching", "ordering", "queries", "segment"},
    {"native"},
    {"multi_tables"},
    {"kinds"},
    {"sketches"},
    {"state"},
    {"arguments", "candidates", "encoding", "filters"},
    {"building"},
    {"changes"},
    {"fetching"},
    {"hits"},
    {"search"},
    {"measuring", "pairs"},
    {"learning", "tuning"},
    {"editing"},
    {"index"},
    {"neighbors"},
    {"__init__"},
)

# The only rooms that talk to a terminal.
TERMINAL_ROOMS = {"cli", "progress"}
TERMINAL_PACKAGES = {"rich", "typer"}


@cache
def imported_modules(path: Path) -> tuple[str, ...]:
    """Dotted names of all that a file imports, wherever in the file it does."""
    return tuple(_imported_modules(path))


def _imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(dotted: str) -> str:
    """The room of the package that a dotted name lies in: `densehash.pack` is in `__init__`."""
    parts = dotted.split(".")
    known = {*ROOMS, "_native"}
    return parts[1] if len(parts) > 1 and parts[1] in known else "__init__"


FILES = sorted(SOURCE.rglob("*.py"))


def room_of_file(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_file_has_a_room() -> None:
    assert {room_of_file(path) for path in FILES} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_rooms_below(room: str) -> None:
    above = {
        (str(path.relative_to(SOURCE)), dotted)
        for path in FILES
        if room_of_file(path) == room
        for dotted in imported_modules(path)
        if dotted.split(".")[0] == "densehash" and room_of(dotted) not in {room, *ROOMS[room]}
    }
    assert not above


INDEX = SOURCE / "index"
INDEX_FILES = sorted(INDEX.rglob("*.py"))


def room_in_index(path: Path) -> str:
    return path.relative_to(INDEX).parts[0].removesuffix(".py")


def test_every_file_of_the_index_has_a_floor() -> None:
    rooms = [room for floor in INDEX_FLOORS for room in floor]
    assert sorted(rooms) == sorted({room_in_index(path) for path in INDEX_FILES})


@pytest.mark.parametrize("floor", range(len(INDEX_FLOORS)))
def test_files_of_the_index_import_only_floors_below(floor: int) -> None:
    below = set[str]().union(*INDEX_FLOORS[:floor])
    for path in INDEX_FILES:
        room = room_in_index(path)
        if room in INDEX_FLOORS[floor]:
            dotted = [name.split(".") for name in imported_modules(path)]
            imported = {name[2] for name in dotted if name[:2] == ["densehash", "index"]}
            assert imported - {room} <= below, path


def private_names(path: Path, name: str) -> set[str]:
    """Attributes and methods of a class that only its own room may know."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    found = {node.name for node in body.body if isinstance(node, ast.FunctionDef)}
    found |= {node.attr for node in ast.walk(body) if isinstance(node, ast.Attribute)}
    return {one for one in found if one.startswith("_") and not one.endswith("_")}


# The class that users see of a room, and the function that shows the other rooms its state.
FACES = {
    "index": ("index/index.py", "Index"),
    "distributed": ("distributed/sharded.py", "ShardedIndex"),
}


@pytest.mark.parametrize("room", FACES)
def test_other_rooms_know_no_private_names_of_an_index(room: str) -> None:
    """Examples in docstrings included. `self._lock` of another class is its own."""
    path, name = FACES[room]
    private = private_names(SOURCE / path, name)
    assert {"_store", "_change"} <= private
    named = re.compile(rf"(?<!\bself)(?<!\bcls)\.({'|'.join(private)})\b")
    others = [path for path in FILES if room in ROOMS[room_of_file(path)]]
    found = {
        f"{path.relative_to(SOURCE)}: {match.group()}"
        for path in others
        for match in named.finditer(path.read_text(encoding="utf-8"))
    }
    assert not found


@pytest.mark.parametrize("room", ["hashers", "store"])
def test_files_of_a_room_import_no_circle(room: str) -> None:
    """Imports inside functions and for types count, too: they only hide a circle."""
    files = {path.stem: path for path in (SOURCE / room).glob("*.py")}
    below: dict[str, set[str]] = {}
    for name, path in files.items():
        dotted = [one.split(".") for one in imported_modules(path)]
        ours = [one[2] for one in dotted if one[:2] == ["densehash", room]]
        below[name] = {one if one in files else "__init__" for one in ours}
    placed: set[str] = set()
    while placed != set(files):
        free = {name for name in files if name not in placed and below[name] <= placed}
        assert free, f"a circle among {sorted(set(files) - placed)}"
        placed |= free


def test_few_rooms_import_terminal_packages() -> None:
    for path in FILES:
        outside = {dotted.split(".")[0] for dotted in imported_modules(path)}
        if room_of_file(path) not in TERMINAL_ROOMS:
            assert not outside & TERMINAL_PACKAGES, path


def test_the_rooms_have_no_cycle() -> None:
    placed = {"_native"}
    while len(placed) <= len(ROOMS):
        # `cli` uses the finished package, and `__init__` does not know `cli`.
        free = {room for room, below in ROOMS.items() if room not in placed and below <= placed}
        assert free, f"a cycle among {set(ROOMS) - placed}"
        placed |= free


def test_one_file_of_the_index_imports_pyarrow() -> None:
    """And late: an index with a payload is searched without it. Others do for their types."""
    found = set()
    for path in INDEX_FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        typed = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
        named = {name for node in typed for name in _imported(node)}
        if {name for name in _imported(tree) if name.startswith("pyarrow")} - named:
            found.add(path.name)
    assert found == {"columns.py"}


def _imported(tree: ast.AST) -> set[str]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return {alias.name for node in nodes for alias in node.names}
