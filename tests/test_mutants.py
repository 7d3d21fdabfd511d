"""`make mutants`: what changes it makes, and that a changed module is what tests load."""

import ast
import subprocess
import sys
from pathlib import Path

import mutants
import pytest

of_sources = pytest.mark.skipif(
    not mutants.SOURCE.is_dir(), reason="the sources are not beside these tests"
)


def made_of(text: str) -> dict[str, str]:
    """By what was changed, the text with the change."""
    n = len(list(mutants._changes(ast.parse(text), -1)))
    found = {}
    for at in range(n):
        tree = ast.parse(text)
        what = [what for _, what in mutants._changes(tree, at)][at]
        found[what] = ast.unparse(ast.fix_missing_locations(tree))
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", {"a <= b"}),
        ("a == b and c", {"a != b and c", "a == b or c"}),
        ("x = a + 1", {"x = a - 1", "x = a + 2"}),
        ("x += y", {"x -= y"}),
        ("x = not a", {"x = not (not bool(a))"}),
        ("f(True)", {"f(False)"}),
        ("if a:\n    raise E(1 + 1)", {"if a:\n    pass"}),
        (
            "def f(x: A[1]) -> B[2]:\n    'text'\n    g(x)",
            {"def f(x: A[1]) -> B[2]:\n    'text'\n    pass"},
        ),
        ("__all__ = [1]\nif TYPE_CHECKING:\n    x = 1", set()),
    ],
)
def test_each_change_is_made_alone(before: str, after: set[str]) -> None:
    assert set(made_of(before).values()) == {ast.unparse(ast.parse(text)) for text in after}


@of_sources
def test_every_change_of_a_module_is_another_program() -> None:
    every = mutants.mutants_of("bits")
    plain = ast.unparse(ast.parse((mutants.SOURCE / "bits.py").read_text(encoding="utf-8")))
    texts = {one.text for one in every}
    assert len(texts) == len(every) > 30
    assert plain not in texts
    for text in texts:
        compile(text, "bits.py", "exec")


@of_sources
def test_all_modules_and_tests_are_there() -> None:
    for module, names in mutants.TESTS.items():
        assert (mutants.SOURCE / f"{module.replace('.', '/')}.py").is_file()
        assert all((mutants.ROOT / "tests" / name).is_file() for name in names)


def test_a_process_loads_the_changed_text(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(mutants._CUSTOMIZE, encoding="utf-8")
    (tmp_path / "mutant.py").write_text("MAX_BITS = -5\n", encoding="utf-8")
    place = f"densehash.bits|{tmp_path / 'mutant.py'}|{mutants.SOURCE / 'bits.py'}"
    code = "import densehash.bits, densehash.errors; print(densehash.bits.MAX_BITS)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path), "DENSEHASH_MUTANT": place},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "-5\n"
