"""What the repository promises outside the package: commands, texts, no private paths."""

import re
import shutil
import subprocess
from importlib.metadata import requires
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

ROOT = Path(__file__).parents[1]
# Put together here, so that this file does not find itself.
PRIVATE_PATH = re.compile("(?<![A-Za-z0-9._-])/" + "(work|root|home|Users|opt|mnt)/")


def our_files() -> list[Path]:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_the_readme_gives_both_commands_early() -> None:
    start = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:60]
    assert any("make demo" in line for line in start)
    assert any("make test" in line for line in start)


def test_ci_runs_make_test_and_nothing_more() -> None:
    script = ROOT / ".ci" / "run"
    if not script.exists():
        pytest.skip("the sdist has no CI")
    assert script.stat().st_mode & 0o111
    commands = script.read_text(encoding="utf-8").splitlines()
    assert commands[-1] == "make test"
    # Beside that, it installs a browser and torch for the tests that need them, and nothing else.
    made = [line.split(" || ")[0].strip() for line in commands if line.lstrip().startswith("make")]
    environment = "make .venv/.installed-test"
    assert made == [f"{environment} BESIDE=torch==2.13.0", environment, "make test"]
    (browser,) = (line for line in commands if " install " in line)
    assert browser.count("chromium") == 1


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in our_files()
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="ignore").splitlines(), start=1
        )
        if PRIVATE_PATH.search(line)
    ]
    assert found == []


def test_the_search_for_private_paths_finds_one() -> None:
    assert PRIVATE_PATH.search("see " + "/" + "root/notes")
    assert not PRIVATE_PATH.search("https://example.org/work/")


def test_the_makefile_builds_with_what_pyproject_asks_for() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = re.findall(r"^requires = \[(.*)\]$", pyproject, re.M)[0].split(", ")
    used = re.findall(r"^BUILD_REQUIRES := (.*)$", makefile, re.M)[0].split(" ")
    assert set(asked) <= set(used)


def test_the_oldest_versions_are_those_that_are_allowed() -> None:
    # Of the package and of all extras that the tests use; linters are always the newest.
    extras = ("", "report", "images", "hdf5", "parquet", "dask", "test")
    form = r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)(?:; extra == ['\"](\w+)['\"])?"
    asked = [re.fullmatch(form, line) for line in requires("densehash") or []]
    lowest = {m[1]: m[2] for m in asked if m and (m[3] or "") in extras}
    pinned = dict(
        re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "tests" / "oldest.txt").read_text("utf-8"), re.M)
    )
    assert {name: numbers(version) for name, version in pinned.items()} == {
        name: numbers(version) for name, version in lowest.items() if name not in ("mypy", "ruff")
    }


def numbers(version: str) -> list[int]:
    """1.26 and 1.26.0 are one version."""
    found = [int(part) for part in version.split(".")]
    return found + [0] * (3 - len(found))


@pytest.mark.parametrize(
    "target",
    [
        *("demo", "test", "check", "bench", "sanitize", "wheel", "test-wheel", "test-oldest"),
        *("test-export", "test-integrations", "docs", "docs-links", "figures", "clean"),
        *("coverage", "mutants"),
    ],
)
def test_the_makefile_has_its_targets(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)


def test_the_changelog_has_a_place_for_what_comes() -> None:
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", readme, re.S):
        exec(example, names)
    digits = load_digits().target
    # A digit's nearest rows are mostly of the same digit: the examples do what they say.
    assert names["hits"].ids.shape == names["hits"].distances.shape == (97, 10)
    assert (digits[names["hits"].ids] == digits[1700:, np.newaxis]).mean() > 0.9
    assert len(names["index"]) == 1797 - 2


def test_the_examples_of_the_codes_run() -> None:
    text = (ROOT / "docs" / "codes.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(example, names)
    digits = load_digits().target
    assert names["codes"].shape == (1700, 8)
    assert names["asked"].shape == (97, 8)
    assert names["distances"].shape == names["indices"].shape == (97, 10)
    assert names["limits"].shape == (98,)
    assert names["near"].shape == names["where"].shape == (names["limits"][-1],)
    assert names["counts"].shape == (97, 65)
    assert (digits[names["indices"]] == digits[1700:, np.newaxis]).mean() > 0.8


def test_the_examples_of_the_index_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(example, names)
    assert len(names["index"]) == 1796


def test_the_examples_of_the_payload_run() -> None:
    pytest.importorskip("pyarrow", reason="payloads need the extra payload")
    pytest.importorskip("dask", reason="the examples have shards, which need the extra dask")
    text = (ROOT / "docs" / "payload.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(example, names)
    assert names["frame"]["title"][0] == "Article 0"
    assert set(names["recent"].payload["lang"].to_pylist()) == {"en"}
    assert names["recent"].ids.tolist() == names["same"].ids.tolist()
    assert names["index"].payload([7, 1000])["title"].to_pylist() == ["Corrected", "New"]


def test_the_example_of_the_evaluation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(example, {})
    by_bits, by_margins = map(float, capsys.readouterr().out.split())
    assert 0.4 < by_bits < by_margins < 1


def checks() -> Any:
    path = ROOT / ".github" / "checks.py"
    if not path.exists():
        pytest.skip("the sdist has no workflows")
    spec = spec_from_file_location("checks", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_change_of_the_package_needs_a_line_in_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    monkeypatch.chdir(tmp_path)
    check = checks().changelog

    def commit(*names: str) -> None:
        for name in names:
            path = Path(name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(path.read_text() + "more" if path.exists() else "new")
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        for command in (["add", "."], [*who, "commit", "-qm", "more"]):
            subprocess.run(["git", *command], check=True)

    subprocess.run(["git", "init", "-q", "."], check=True)
    commit("src/a.py", "docs/a.md", "CHANGELOG.md")
    base = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert check(base) is None
    commit("docs/a.md")
    assert check(base) is None
    commit("src/a.py")
    assert "src/a.py" in check(base)
    commit("CHANGELOG.md")
    assert check(base) is None


def test_the_version_is_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = checks().release
    monkeypatch.chdir(ROOT)
    version = re.findall(r'^version = "(.*)"$', Path("pyproject.toml").read_text("utf-8"), re.M)[0]
    assert re.search(rf"^version: {version}$", Path("CITATION.cff").read_text("utf-8"), re.M)
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("pyproject.toml", 'version = "1.2.0"\n'),
        ("CITATION.cff", "version: 1.2.0\n"),
        ("CHANGELOG.md", "## [1.2.0] - 2030-01-01\n"),
    ):
        (tmp_path / name).write_text(text)
    assert check("v1.2.0") is None
    for wrong in ("v1.2", "v1.2.1", "v1x2.0"):
        assert "pyproject.toml" in check(wrong)
    for name in ("CITATION.cff", "CHANGELOG.md"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace("1.2.0", "1.1.0"))
        assert name in check("v1.2.0")
        (tmp_path / name).write_text(text)
