"""Comparing methods on anybody's vectors, from Python and from the command line."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hasher_cases import mixture
from test_cli import run

import densehash
import densehash.datasets
from densehash import truth
from densehash.choices import MetricName
from densehash.cli import output
from densehash.datasets import DataSet
from densehash.errors import InputError, MissingExtraError
from densehash.index import Index
from densehash.paper import runner
from densehash.paper.compare import (
    Built,
    Comparison,
    Line,
    advice,
    compare,
    comparison_page,
    ranking_table,
)
from densehash.paper.problem import Problem
from densehash.paper.records import Records
from densehash.paper.results import Results
from densehash.paper.runs import Run, measure
from densehash.paper.studies import Plan
from densehash.report import Figure

PLAN = Plan(("LSH", "PCAH", "ITQ"), (8, 16), 1, ())


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "mine.npy"
    np.save(path, mixture(600).astype(np.float32))
    return path


def a_problem() -> Problem:
    return Problem.of(DataSet("mixture", mixture(800), None), n_queries=40)


def test_lines_are_ranked_by_recall_within_a_length() -> None:
    found = compare(a_problem(), PLAN, Records(None))
    assert [line.n_bits for line in found.lines] == [8] * 3 + [16] * 3
    for n_bits in (8, 16):
        recalls = [line.recall for line in found.lines if line.n_bits == n_bits]
        assert recalls == sorted(recalls, reverse=True)
    assert {line.bytes_a_row for line in found.lines} == {1, 2}
    assert all(0 < line.mean_average_precision < 1 for line in found.lines)
    assert all(line.fit_seconds > 0 and line.encode_seconds > 0 for line in found.lines)


def test_without_chance_a_method_is_run_once_for_all_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[Run] = []

    def counted(problem: Problem, run: Run) -> Any:
        runs.append(run)
        return measure(problem, run)

    monkeypatch.setattr(runner, "measure", counted)
    compare(a_problem(), Plan(("LSH", "PCAH"), (8,), 3, ()), Records(None))
    assert [run.method for run in runs] == ["LSH", "PCAH", "LSH", "LSH"]


def test_more_candidates_find_more() -> None:
    problem, records = a_problem(), Records(None)
    few = compare(problem, PLAN, records, n_candidates=20)
    many = compare(problem, PLAN, records, n_candidates=200)
    by_name = {(line.method, line.n_bits): line.recall for line in few.lines}
    for line in many.lines:
        assert line.recall > by_name[line.method, line.n_bits]


def test_what_is_refused_is_told_and_the_rest_is_compared() -> None:
    found = compare(a_problem(), Plan(("PCAH", "LSH"), (32,), 1, ()), Records(None))
    assert [line.method for line in found.lines] == ["LSH"]
    assert "24" in found.refused["PCAH, 32 bits"]
    with pytest.raises(
        InputError, match="no method could be run on mixture: PCAH, 32 bits: PCAH has"
    ):
        compare(a_problem(), Plan(("PCAH",), (32,), 1, ()), Records(None))


@pytest.mark.parametrize("candidates", [0, 9, 761])
def test_candidates_that_cannot_be(candidates: int) -> None:
    with pytest.raises(InputError, match="candidates must be"):
        compare(a_problem(), PLAN, Records(None), n_candidates=candidates)


def made(*lines: Line, recall: float = 0.99) -> Comparison:
    built = Built("Index(flat)", recall, 20.0, 1.0, 100.0)
    return Comparison(built, lines, {}, 100, 10, Results({}, Records(None)))


def test_advice_names_the_index_then_the_best_the_fastest_and_the_shortest() -> None:
    best = Line("Refined(DSH)", 128, 0.6, 0.98, 0.981, 0.99, 20.0, 1e-6, 16)
    fast = Line("ITQ", 128, 0.6, 0.95, 0.96, 0.98, 4.0, 1e-6, 16)
    short = Line("Refined(DSH)", 64, 0.5, 0.94, 0.95, 0.96, 10.0, 1e-6, 8)
    poor = Line("LSH", 64, 0.2, 0.40, 0.50, 0.70, 0.1, 1e-6, 8)
    signs = Line("signs", 128, 0.7, 0.999, None, None, 1.0, 1e-6, 16)
    sentences = advice(made(poor, short, best, fast, signs))
    assert sentences[0].startswith(
        "Index.build makes Index(flat) of these rows. Its searches found"
    )
    assert "99.0% of the 10 nearest" in sentences[0]
    assert sentences[1].startswith("Of codes alone, Refined(DSH) at 128 bits has most of them")
    assert sentences[1].endswith("98.0% by Hamming distance, 16 bytes a row, and 99.0% by "
                                 "estimates, 20 bytes a row.")  # fmt: skip
    assert "ITQ finds nearly as much (95.0%) and learns in 4 s instead of 20 s." in sentences
    assert "Refined(DSH) finds nearly as much with 64 bits (94.0%)." in sentences
    # No search ranks by margins before it re-ranks: nobody is told to.
    assert not any("margins" in sentence for sentence in sentences)
    assert not any("tune" in sentence for sentence in sentences)
    assert any("densehash tune" in sentence for sentence in advice(made(poor, recall=0.9)))
    assert len(advice(made(signs))) == 1


def test_rankings_are_by_bytes_and_estimates_find_more() -> None:
    plan = replace(PLAN, methods=("ITQ", "LSH", "signs"), bits=(40, 64))
    found = compare(a_problem(), plan, Records(None))
    rows = ranking_table(found, plan).rows
    assert [row[0] for row in rows] == sorted([5, 5, 9, 5, 8, 8, 12, 8])
    by_name: dict[Any, Any] = {(row[1], row[2]): row[3:] for row in rows}
    hasher = max((line for line in found.lines if line.n_bits == 64 and line.method != "signs"),
                 key=lambda line: line.recall).method  # fmt: skip
    assert by_name[f"{hasher}, estimates", 64] > by_name[hasher, 64]
    assert all(list(shares) == sorted(shares) for shares in by_name.values())
    line = next(line for line in found.lines if line.method == hasher and line.n_bits == 64)
    assert line.estimated_recall is not None
    assert line.estimated_recall > line.recall


def test_signs_rank_as_an_index_without_vectors_does() -> None:
    """One group, as many signs: the ranking that is measured is that of a search."""
    problem = a_problem()
    plan = replace(PLAN, methods=("signs",), bits=(96,))
    found = compare(problem, plan, Records(None))
    index = Index.build(
        problem.base, sketch="signs", n_bits=64, kind="flat", keep_vectors=False, random_state=0
    )
    names = index.search(problem.queries, 50).ids
    hits = np.mean([np.isin(*both).mean() for both in zip(problem.near, names, strict=True)])
    measured = found.results.get(replace(plan, estimates=True).run("signs", 96))
    assert measured is not None
    assert measured.bytes_a_row == 12
    assert measured.recall(50) == pytest.approx(hits, abs=0.02)


def test_what_signs_cannot_do_is_told() -> None:
    plan = replace(PLAN, methods=("LSH", "signs"), bits=(32, 44))
    refused = compare(a_problem(), plan, Records(None)).refused
    assert "got 32 bits in all" in refused["signs, 32 bits"]
    assert "got 44 bits in all" in refused["signs, 44 bits"]


def test_the_page_has_a_figure_for_each_question() -> None:
    found = compare(a_problem(), PLAN, Records(None))
    page = comparison_page(found, PLAN, "densehash compare x.npy")
    figures = [item for section in page.sections for item in section.items]
    names = [figure.name for figure in figures]
    assert len(set(names)) == len(names)
    assert {"recall-mixture-8", "recall-mixture-16", "map-mixture", "fit-mixture"} <= set(names)
    assert all(figure.series for figure in figures if isinstance(figure, Figure))
    assert page.facts["command"] == "densehash compare x.npy"


# The command


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = run(capsys, "compare", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_json_is_all_there_is_on_stdout(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--bits", "8,16", "--methods", "lsh,itq", "--out", str(out)]
    found = asked(capsys, str(vectors), *options)
    assert [line["method"] for line in found["lines"]].count("ITQ") == 2
    assert found["set"]["set"] == "mine"
    assert found["advice"]
    before = (out / "records.jsonl").read_bytes()
    assert asked(capsys, str(vectors), *options)["lines"] == found["lines"]
    assert (out / "records.jsonl").read_bytes() == before
    assert json.loads((out / "report.json").read_text())["title"] == "Which hasher for mine"


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_the_command_to_copy_makes_the_index_that_was_measured(
    capsys: pytest.CaptureFixture[str],
    vectors: Path,
    tmp_path: Path,
    metric: MetricName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    X = mixture(640)[600:].astype(np.float32)
    np.save("queries.npy", X)
    options = ["--bits", "16", "--methods", "lsh", "--queries", "queries.npy", "--metric", metric]
    found = asked(capsys, str(vectors), *options)
    shell, python = found["build"]
    words = shlex.split(shell)
    assert run(capsys, *words[1:])[0] == 0
    near = truth.nearest(X, np.load(vectors), k=10, metric=metric)
    made_by_hand = eval(python, {"densehash": densehash})
    for index in (Index.open("mine.dh"), made_by_hand):
        names = index.search(X, 10).ids
        hits = np.mean([np.isin(*both).mean() for both in zip(near, names, strict=True)])
        assert found["index"]["recall"] == pytest.approx(hits)
        assert str(index) == found["index"]["index"]
    assert f"{found['index']['recall']:.1%} of the 10 nearest" in found["advice"][0]


def test_the_table_is_on_stdout(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    options = ["--bits", "8", "--methods", "lsh", "--out", str(tmp_path / "out")]
    code, out, _ = run(capsys, "compare", str(vectors), *options)
    assert code == 0
    assert "LSH" in out
    assert "Index.build makes" in out
    assert "has most of them among" in out


def test_signs_in_the_name_of_a_file_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    named = vectors.rename(tmp_path / "[red]<b>&.npy")
    options = ["--bits", "8", "--methods", "lsh", "--out", str(tmp_path / "out")]
    code, out, _ = run(capsys, "compare", str(named), *options)
    assert code == 0
    assert "[red]<b>&, 540 × 24" in out


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_metrics_and_query_files(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path, metric: MetricName
) -> None:
    queries = tmp_path / "queries.npy"
    np.save(queries, mixture(700)[600:].astype(np.float32))
    options = ["--bits", "16", "--methods", "itq", "--out", str(tmp_path / "out")]
    found = asked(capsys, str(vectors), "--queries", str(queries), "--metric", metric, *options)
    assert found["set"]["metric"] == metric
    assert (found["set"]["rows"], found["set"]["queries"]) == (600, 100)


def test_without_the_extra_there_is_a_table_and_a_word_on_stderr(
    capsys: pytest.CaptureFixture[str],
    vectors: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: object) -> None:
        raise MissingExtraError("pip install 'densehash[report]'")

    monkeypatch.setattr(output, "write_report", missing)
    options = ["--bits", "8", "--methods", "lsh", "--out", str(tmp_path / "out")]
    code, out, err = run(capsys, "compare", str(vectors), *options)
    assert code == 0
    assert "LSH" in out
    assert "densehash[report]" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npy"], "missing.npy"),
        (["digits", "--bits", "32,x"], "--bits must be numbers from 1 to 4096"),
        (["digits", "--bits", "0"], "--bits must be"),
        (["digits", "--bits", "99999"], "--bits must be"),
        (["digits", "--methods", "DHS"], "there is no method 'DHS'"),
        (["digits", "--metric", "l1"], "metric must be 'l2' or 'cosine' or 'ip'"),
        (["digits", "--seeds", "0"], "--seeds must be"),
        (["digits", "--queries", "missing.npy"], "missing.npy"),
        (["digits", "--rows", "3"], "most_rows must be"),
        (["digits", "--candidates", "1", "--methods", "lsh"], "candidates must be"),
        ([], "VECTORS"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, "compare", *arguments, "--out", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert err.startswith("densehash: ")
    assert err.count("\n") == 1
    assert message.lower() in err.lower()


def test_a_file_in_the_place_of_the_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("")
    code, out, err = run(capsys, "compare", "digits", "--out", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert "cannot be written to" in err


def test_not_a_number_is_named_by_its_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = mixture(600).copy()
    rows[123, 4] = np.nan
    np.save(tmp_path / "bad.npy", rows)
    code, out, err = run(capsys, "compare", str(tmp_path / "bad.npy"), "--out", str(tmp_path / "o"))
    assert (code, out) == (2, "")
    assert "123" in err
