"""Checks whether tests notice wrong code: makes small changes, one at a time, and runs the tests.

`make mutants` runs it. For each module it lists changes (a comparison reversed, a number plus one,
a line left out), draws some of them, and runs the tests of the module with each until one fails. A
change that no test notices is printed: either it does not matter, or a test is missing.

Files do not change: processes that find DENSEHASH_MUTANT load the changed text instead.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "densehash"

_STORE = (
    *("test_store.py", "test_store_attack.py", "test_store_care.py", "test_store_faults.py"),
    "test_models.py",
)
TESTS = {
    "bits": ("test_bits.py",),
    "metrics": ("test_metrics.py",),
    "store.arrays": _STORE,
    "store.changing": _STORE,
    "store.folder": _STORE,
    "store.lockfile": _STORE,
    "store.manifest": _STORE,
    "store.maps": _STORE,
    "store.reading": _STORE,
}
"""By module, the files of its tests; its own examples are run as well."""

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}

# Loaded by every Python process, because its folder is on the path.
_CUSTOMIZE = """
import importlib.abc, importlib.machinery, os, sys
name, text, origin = os.environ["DENSEHASH_MUTANT"].split("|")
class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        with open(text, encoding="utf-8") as file:
            return compile(file.read(), origin, "exec", dont_inherit=True)
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname == name:
            return importlib.util.spec_from_file_location(name, origin, loader=Loader(name, origin))
import importlib.util
sys.meta_path.insert(0, Finder())
"""


@dataclass(frozen=True)
class Mutant:
    """A change: its module, its line, what it is, and the whole changed text."""

    module: str
    line: int
    what: str
    text: str


def mutants_of(module: str) -> list[Mutant]:
    """All possible changes of a module, one at a time."""
    path = SOURCE / f"{module.replace('.', '/')}.py"
    text = path.read_text(encoding="utf-8")
    found = []
    for at, (line, what) in enumerate(_changes(ast.parse(text), -1)):
        tree = ast.parse(text)
        assert list(_changes(tree, at))[at] == (line, what)
        found.append(Mutant(module, line, what, ast.unparse(ast.fix_missing_locations(tree))))
    return found


def _changes(tree: ast.Module, make: int) -> Iterator[tuple[int, str]]:
    """Lines and descriptions of all changes; change number ``make`` is made in the tree."""
    number = -1
    for node in list(_nodes(tree)):
        for line, what, change in _ways(node):
            number += 1
            if number == make:
                change()
            yield line, what


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run: no annotations, docstrings, or code only for type checkers."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Assign) and "__all__" in ast.unparse(child.targets[0]):
                continue
            if isinstance(child, ast.Raise):  # texts of errors are not code
                yield child
                continue
            yield child
            yield from _nodes(child)


def _ways(node: ast.AST) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """How a node can be changed: the line, a description, and a function that does it."""
    if isinstance(node, ast.Compare):
        for at, old in enumerate(node.ops):
            new = _COMPARED[type(old)]()
            words = f"{type(old).__name__} -> {type(new).__name__} in {ast.unparse(node)}"
            yield node.lineno, words, partial(node.ops.__setitem__, at, new)
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _COMPUTED:
        new_op = _COMPUTED[type(node.op)]()
        words = f"{type(node.op).__name__} -> {type(new_op).__name__} in {ast.unparse(node)}"
        yield node.lineno, words, lambda: setattr(node, "op", new_op)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        words = f"{type(node.op).__name__} -> {type(other).__name__} in {ast.unparse(node)}"
        yield node.lineno, words, lambda: setattr(node, "op", other)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        same = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        double = ast.UnaryOp(ast.Not(), same)
        yield node.lineno, f"no {ast.unparse(node)}", lambda: setattr(node, "operand", double)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        turned = not node.value
        yield node.lineno, f"{node.value} -> {turned}", lambda: setattr(node, "value", turned)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        more = node.value + 1  # type: ignore[operator]
        yield node.lineno, f"{node.value!r} -> {more}", lambda: setattr(node, "value", more)
    elif isinstance(node, (ast.If, ast.While, ast.For, ast.With, ast.FunctionDef, ast.Try)):
        for statements in (node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])):
            for at, one in enumerate(statements):
                called = isinstance(one, ast.Expr) and not isinstance(one.value, ast.Constant)
                if called or isinstance(one, ast.Raise):
                    words = f"without {ast.unparse(one)}"
                    yield one.lineno, words, partial(statements.__setitem__, at, ast.Pass())


def survives(mutant: Mutant, folder: Path, limit: float) -> bool:
    """Whether all tests pass with the change; if they take far too long, it was noticed."""
    path = SOURCE / f"{mutant.module.replace('.', '/')}.py"
    text = folder / "mutant.py"
    text.write_text(mutant.text, encoding="utf-8")
    environment = {
        **os.environ,
        "DENSEHASH_MUTANT": f"densehash.{mutant.module}|{text}|{path}",
        "PYTHONPATH": str(folder),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }
    tests = [str(ROOT / "tests" / name) for name in TESTS[mutant.module]]
    # Plain asserts: to rewrite them, pytest would read the unchanged file itself.
    command = [sys.executable, "-m", "pytest", "-xq", "--assert=plain", "-pno:cacheprovider"]
    process = subprocess.Popen(
        [*command, *tests, str(path)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main() -> None:
    """Draw changes, run the tests with each, and print those that no test noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(TESTS), help="as bits or store.folder")
    parser.add_argument("--most", type=int, default=40, help="of each module, default 40; 0 is all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of one")
    options = parser.parse_args()
    n_seen = n_tried = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(_CUSTOMIZE, encoding="utf-8")
        for module in options.modules:
            every = mutants_of(module)
            drawn = random.Random(options.seed).sample(every, len(every))[: options.most or None]
            whole = Mutant(module, 0, "", (SOURCE / f"{module.replace('.', '/')}.py").read_text())
            if not survives(whole, folder, options.limit):
                sys.exit(f"{module}: its tests fail, or are too slow, without any change")
            begun, alive = time.monotonic(), 0
            for mutant in sorted(drawn, key=lambda one: one.line):
                if survives(mutant, folder, options.limit):
                    alive += 1
                    print(f"  {module}:{mutant.line}: {mutant.what}", flush=True)  # noqa: T201
            n_tried, n_seen = n_tried + len(drawn), n_seen + len(drawn) - alive
            print(  # noqa: T201
                f"{module}: {len(drawn) - alive} of {len(drawn)} seen, of {len(every)} possible, "
                f"in {time.monotonic() - begun:.0f} s",
                flush=True,
            )
    print(f"{n_seen} of {n_tried} changes were seen, {n_seen / max(n_tried, 1):.0%}")  # noqa: T201


if __name__ == "__main__":
    main()
