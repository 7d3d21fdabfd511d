"""``densehash paper``, from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from hasher_cases import mixture
from test_cli import run

from densehash.cli import output, paper
from densehash.paper.studies import BITS, PARTS, QUICK

OPTIONS = ["--methods", "lsh,pcah,dsh", "--bits", "16,32", "--seeds", "2", "--parts", "2,times,p"]


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "mine.npy"
    np.save(path, mixture(600).astype(np.float32))
    return path


def test_results_go_to_stdout_and_files_to_the_folder(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    vectors: Path,
    tmp_path: Path,
) -> None:
    pytest.importorskip("vl_convert", reason="the report needs the extra 'report'")
    out = tmp_path / "out"
    code, text, err = run(capsys, "paper", "--data", str(vectors), "--out", str(out), *OPTIONS)
    assert code == 0, err
    assert "DSH" in text
    assert str(out / "report.html") in text.replace("\n", "")
    assert (out / "report.html").stat().st_size > 100_000
    names = {path.name for path in (out / "figures").iterdir()}
    assert {"figure-1-dsh.svg", "figure-2-mine.png", "figure-4-mine.svg"} <= names
    before = (out / "records.jsonl").read_bytes()
    monkeypatch.setattr(output, "write_page", lambda *_: None)  # once is enough
    again = run(capsys, "paper", "--data", str(vectors), "--out", str(out), *OPTIONS, "--json")
    assert again[0] == 0
    found = json.loads(again[1])
    assert (out / "records.jsonl").read_bytes() == before
    assert 0 < found["mean_average_precision"]["mine"]["DSH"]["32"] < 1
    assert found["claims"]["MAP rises with p (Figure 4)"]


def test_two_sets_of_one_name_are_told_apart(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "mine.npy"
    other.parent.mkdir()
    np.save(other, mixture(500).astype(np.float32))
    data = ["--data", str(vectors), "--data", str(other)]
    options = ["--methods", "lsh", "--bits", "16", "--seeds", "1", "--parts", "2", "--json"]
    code, out, err = run(capsys, "paper", *data, *options, "--out", str(tmp_path / "out"))
    assert code == 0, err
    assert sorted(json.loads(out)["mean_average_precision"]) == ["mine", "mine (2)"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parts", "7"], "there is no part '7'; the parts are 2, 3, times"),
        (["--data", "nowhere.npy"], "nowhere.npy"),
        (["--methods", "x"], "there is no method 'x'"),
        (["--n-queries", "0"], "--n-queries must be"),
        (["--metric", "l1"], "metric must be"),
        (["--seeds", "0"], "--seeds must be"),
        (["--what"], "--what"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, "paper", *arguments, "--out", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert err.startswith("densehash: ")
    assert err.count("\n") == 1
    assert message in err


def test_quick_is_a_smaller_plan_of_all_parts() -> None:
    assert QUICK.parts == PARTS
    assert {16, 32, 64, 96} <= set(QUICK.bits)


def test_the_help_names_what_there_is() -> None:
    assert ",".join(map(str, BITS)) == paper.BITS
    assert ", ".join(PARTS) == paper.PARTS
