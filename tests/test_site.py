"""The site: links, examples and figures of its pages, without building it (`make docs` does)."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from test_public import REFERENCE

from densehash.datasets import SUFFIXES
from densehash.export import TARGETS
from densehash.hashers import LinearHasher
from densehash.hashers.registry import HASHERS
from densehash.index.kinds import KINDS
from densehash.index.sketches import SKETCHES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "CHANGELOG.md", ROOT / "README.md"])
NOTEBOOKS = ("text_search", "near_duplicates", "million_rows", "cluster")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and MyST make them."""
    found: set[str] = set()
    for heading in re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S), re.M
    ):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# A heading, *here*\n\n## A heading, *here*\n")
    page = tmp_path / "a.md"
    page.write_text(
        "[1](b.md#a-heading-here) [2](b.md#a-heading-here-1) [3](b.md) [4](https://x.y)"
    )
    assert broken_links(page) == []
    page.write_text("[1](c.md) [2](b.md#nothing) [3](#nothing) `[4](d.md)`")
    assert broken_links(page) == ["c.md", "b.md#nothing", "#nothing"]


def test_every_page_is_in_the_tree() -> None:
    home = text_of(DOCS / "home.md")
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", home, re.M | re.S)
    lines = [line for tree in trees for line in tree.splitlines() if line and line[0] != ":"]
    listed = [re.sub(r".* <(.*)>", r"\1", line) for line in lines]  # or "short title <page>"
    pages = [p.relative_to(DOCS).with_suffix("").as_posix() for p in DOCS.rglob("*.md")]
    pages += [f"../examples/{name}" for name in NOTEBOOKS]
    # A page that is missing here is one that readers do not find: add it to a toctree of home.md.
    assert sorted(listed) == sorted([*(set(pages) - {"home"}), "../CHANGELOG"])


def test_images_are_there_for_light_and_dark() -> None:
    for page in PAGES:
        shown = re.findall(
            r"^```\{image\} (\S+)-(light|dark)\.svg\n:class: only-(\w+)$", text_of(page), re.M
        )
        assert [look for _, look, _ in shown] == [wanted for *_, wanted in shown]
        assert [look for _, look, _ in shown] == ["light", "dark"] * (len(shown) // 2)
        for name, look, _ in shown:
            assert (page.parent / f"{name}-{look}.svg").exists()


# --- figures ---


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


figures = load(DOCS / "figures.py")


@pytest.mark.parametrize("name", sorted(figures.FIGURES))
def test_figures_are_drawn_from_the_tables_as_they_are(name: str) -> None:
    panels = figures.FIGURES[name].panels()
    for look in figures.COLOURS:
        drawn = text_of(DOCS / "figures" / f"{name}-{look}.svg")
        assert drawn.endswith(figures.mark(panels) + "\n"), "run: make figures"
    for panel in panels:
        for line in panel.lines:
            assert len(line.x) == len(line.y) >= 3


def test_figures_read_numbers_of_tables() -> None:
    (sift, *_), (scale, _) = figures.codes(), figures.scale()
    assert sift.lines[0].name == "Refined(DSH)"
    assert sift.lines[0].y == [0.312, 0.453, 0.536, 0.595, 0.670, 0.719]
    assert scale.lines[0].x == [1e6, 5e6, 20e6]
    speeds = {line.name: line for line in figures.recall_and_speed()[0].lines}
    assert min(speeds["densehash"].x) >= 0.8
    assert speeds["densehash"].y == sorted(speeds["densehash"].y, reverse=True)


# --- the reference ---


@pytest.mark.parametrize("page", sorted(REFERENCE))
def test_the_reference_has_every_public_name(page: str) -> None:
    text = text_of(DOCS / "reference" / f"{page}.md")
    for module in REFERENCE[page]:
        if f".. automodule:: {module}\n   :members:" in text:
            continue  # all that __all__ names
        shown = {name.split(".")[-1] for name in re.findall(r"\.\. auto\w+:: ([\w.]+)", text)}
        assert set(importlib.import_module(module).__all__) <= shown


def test_the_reference_has_every_name_of_the_package() -> None:
    import densehash

    text = "".join(text_of(page) for page in (DOCS / "reference").glob("*.md"))
    shown = {name.split(".")[-1] for name in re.findall(r"\.\. auto\w+:: ([\w.]+)", text)}
    shown |= {
        name
        for module in ("bits", "errors", "hashers")
        for name in importlib.import_module(f"densehash.{module}").__all__
    }
    assert set(densehash.__all__) - shown == {"__version__"}


def test_the_table_of_hashers_has_all_of_the_registry() -> None:
    table = re.findall(r"^\| `(\w+)` \|.*\| (yes )?\|$", text_of(DOCS / "codes.md"), re.M)
    expected = {name: issubclass(kind, LinearHasher) for name, kind in HASHERS.items()}
    assert {name: bool(linear) for name, linear in table} == expected


def test_the_tables_of_kinds_and_sketches_have_all_of_their_registries() -> None:
    page = text_of(DOCS / "index.md")
    for heading, registry in (("## What is kept of a row", SKETCHES), ("## Where rows lie", KINDS)):
        section = page[page.index(heading) :].partition("\n\n")[2].partition("\n\n")[0]
        assert set(re.findall(r"^\| `(\w+)`", section, re.M)) == set(registry), heading


def test_the_tables_of_formats_and_exports_have_all_of_their_registries() -> None:
    rows = re.findall(r"^\| ((?:`\.\w+` ?)+)\|", text_of(DOCS / "datasets.md"), re.M)
    assert re.findall(r"\.\w+", " ".join(rows)) == list(SUFFIXES)
    page = text_of(DOCS / "export.md")
    table = page[page.index("| `--to` |") :].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w[\w-]*)` \|", table, re.M) == list(TARGETS)
    assert set(re.findall(r"--to ([\w-]+) -o", page)) == set(TARGETS)


def test_the_reference_has_every_command() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(DOCS)!r}); import command_pages as c; print(c.page())"
    )
    # In a process of its own, where no other test has loaded the commands.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    page = done.stdout
    assert re.findall(r"^## (.*)$", page, re.M)[:2] == ["densehash add", "densehash build"]
    assert "| `-o`, `--out` | The folder of the index. Required. |" in page
    assert "densehash build vectors.npy -o photos.dh" in page


# --- examples ---


def examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text_of(DOCS / page), re.S)


def run(page: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for example in examples(page):
        exec(example, names)
    return names


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_examples_of_the_start_run() -> None:
    pytest.importorskip("pyarrow", reason="payloads need the extra payload")
    names = run("start.md")
    assert len(names["index"]) == 1797 - 2 + 1
    assert names["new"].tolist() == list(range(1700, 1797))
    assert all(hit["even"] for hit in names["found"].to_dicts()[0])


def test_the_examples_of_the_first_page_run() -> None:
    assert run("home.md")["hits"].ids.shape == (97, 10)


def test_the_examples_of_recall_run() -> None:
    names = run("recall.md")
    assert names["recall"] > 0.9
    assert names["tuning"].recall >= 0.95


def test_the_examples_of_operating_run() -> None:
    names = run("operating.md")
    assert len(names["reader"]) == len(names["writer"]) == 3010


def test_the_plan_is_what_an_index_takes() -> None:
    names = run("planning.md")
    rng = np.random.default_rng(0)
    for rows, features in ((1000, 64), (3000, 130)):
        X = rng.standard_normal((rows, features), dtype=np.float32)
        info = names["Index"].build(X, random_state=0).info()
        sizes = names["plan"](rows, features)
        assert sizes["vectors"] == info["bytes_of_vectors"]
        assert sizes["rest"] == pytest.approx(info["bytes_without_vectors"], rel=0.03)
    table = re.findall(
        r"^\| ([\d,]+) × ([\d,]+) \| ([\d.]+) GB .*?\| ([\d.]+) GB \| [^|]*\|$",
        text_of(DOCS / "planning.md"),
        re.M,
    )
    assert len(table) == 5
    for rows, features, vectors, rest in table:
        sizes = names["plan"](int(rows.replace(",", "")), int(features.replace(",", "")))
        assert sizes["vectors"] / 1e9 == pytest.approx(float(vectors), abs=0.05, rel=0.01)
        assert sizes["rest"] / 1e9 == pytest.approx(float(rest), abs=0.006)


@pytest.mark.parametrize("package", ["faiss", "hnswlib", "usearch", "chromadb"])
def test_both_libraries_find_the_same(package: str) -> None:
    pytest.importorskip(package, reason=f"the example needs {package}")
    pytest.importorskip("pyarrow", reason="payloads need the extra payload")
    set_up, *pairs = examples("migrating.md")
    theirs, ours = next(
        (a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=True) if package in a
    )
    names: dict[str, Any] = {}
    exec(set_up, names)
    exec(theirs, names)
    expected = np.asarray(names["ids"]).astype(int)
    exec(ours, names)
    found = names["hits"].ids if package == "faiss" else np.asarray(names["ids"]).astype(int)
    assert expected.shape == found.shape == (5, 10)
    assert np.array_equal(found[:, 0], expected[:, 0])  # the row that the query is next to
    shared = [len(set(a) & set(b)) for a, b in zip(expected.tolist(), found.tolist(), strict=True)]
    assert np.mean(shared) > 7


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_say_how_many_rows_and_have_a_title(name: str) -> None:
    text = text_of(ROOT / "examples" / f"{name}.py")
    assert re.search(r"^# %% \[markdown\]\n# # \w", text, re.M)
    assert text.count("# %%\n") >= 3
    compile(text, name, "exec")


def test_a_notebook_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    # The others are run by `make docs`, which takes minutes.
    text = text_of(ROOT / "examples" / "million_rows.py")
    small = text.replace("ROWS = 1_000_000", "ROWS = 5_000")
    assert small != text
    exec(small, {"__name__": "__main__"})
    asked = re.findall(r"recall ([\d.]+): found ([\d.]+)", capsys.readouterr().out)
    assert [recall for recall, _ in asked] == ["0.9", "0.97", "0.99"]
    assert all(float(found) > float(recall) - 0.05 for recall, found in asked)
