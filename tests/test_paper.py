"""The paper's studies: what is run, what is kept of it, and what is drawn from that."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hasher_cases import mixture
from sklearn.metrics import average_precision_score

from densehash import hamming
from densehash.datasets import DataSet
from densehash.errors import InputError
from densehash.metrics import recall_after_reranking
from densehash.paper import claims, published, runner, toy
from densehash.paper.claims import claims_table
from densehash.paper.figures import draw
from densehash.paper.methods import METHODS, PAPER, PEERS
from densehash.paper.pages import paper_page
from densehash.paper.problem import Problem
from densehash.paper.records import Records
from densehash.paper.results import Measured, Results
from densehash.paper.runner import complete, planned
from densehash.paper.runs import Run, measure
from densehash.paper.studies import BITS, STUDIES, Plan, runs_of
from densehash.paper.tables import cost_table, map_table, parameter_table, times_table
from densehash.report import Figure, PlaneFigure, Series

SMALL = Plan(("LSH", "PCAH", "DSH"), (8, 16), n_seeds=2, parts=("2", "times"))


def a_problem(n: int = 800, **changes: Any) -> Problem:
    return Problem.of(DataSet("mixture", mixture(n), None), n_queries=40, **changes)


# The problem


def test_drawn_queries_leave_the_database_and_nothing_is_lost() -> None:
    problem = a_problem()
    whole = np.vstack([problem.base, problem.queries])
    assert problem.queries.shape == (40, 24)
    np.testing.assert_array_equal(np.sort(whole, axis=0), np.sort(mixture(800), axis=0))


def test_queries_of_the_set_are_taken_as_they_are() -> None:
    data = DataSet("own", mixture(800), mixture(900)[800:])
    problem = Problem.of(data, n_queries=30)
    np.testing.assert_array_equal(problem.queries, mixture(900)[800:830])
    np.testing.assert_array_equal(problem.base, mixture(800))


def test_fewer_rows_can_be_drawn() -> None:
    problem = a_problem(most_rows=300)
    assert (len(problem.base), len(problem.queries)) == (270, 30)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_hashers_see_vectors_whose_euclidean_neighbours_are_those_of_the_metric(
    metric: str,
) -> None:
    problem = a_problem(metric=metric)
    base, queries = problem.vectors.astype(float), problem.asked.astype(float)
    squared = ((base[np.newaxis] - queries[:, np.newaxis]) ** 2).sum(axis=2)
    found = np.sort(np.argsort(squared, axis=1, kind="stable")[:, :10], axis=1)
    np.testing.assert_array_equal(found, problem.near)


def test_identities_differ_by_every_number() -> None:
    rows = mixture(800).copy()
    before = Problem("x", rows, rows[:10]).identity
    rows[700, 3] = np.nextafter(rows[700, 3], np.inf)
    assert Problem("x", rows, rows[:10]).identity["checksum"] != before["checksum"]
    assert Problem("x", rows, rows[:10], metric="ip").identity["metric"] == "ip"


def test_too_few_rows_and_other_widths_are_refused() -> None:
    with pytest.raises(InputError, match="mixture has 19 rows, at least 20 are needed"):
        a_problem(19)
    with pytest.raises(InputError, match="queries have 3 features but own has 24"):
        Problem.of(DataSet("own", mixture(800), np.zeros((5, 3))))


# A run


def brute_force(problem: Problem, run: Run) -> tuple[Any, Any]:
    """Hamming distances of every query to every row, and which rows are true."""
    hasher = run.hasher().fit(problem.vectors)
    codes, asked = hasher.transform(problem.vectors), hasher.transform(problem.asked)
    distances = hamming.distances(asked, codes).astype(int)
    true = np.zeros(distances.shape, bool)
    np.put_along_axis(true, problem.relevant, True, axis=1)
    return distances, true


def test_a_record_gives_what_the_definitions_say() -> None:
    problem, run = a_problem(), Run("DSH", 16, asymmetric=True)
    measured = Measured(measure(problem, run), len(problem.queries), len(problem.base))
    distances, true = brute_force(problem, run)
    # Without ties, order is all: break them at random, many times, and take the mean.
    rng = np.random.default_rng(0)
    draws = [
        average_precision_score(truth, -(row + rng.random(len(row))))
        for _ in range(30)
        for row, truth in zip(distances, true, strict=True)
    ]
    assert measured.mean_average_precision == pytest.approx(np.mean(draws), abs=0.005)
    near = np.zeros_like(true)
    np.put_along_axis(near, problem.near, True, axis=1)
    shares = [
        near[query, np.lexsort((rng.random(len(row)), row))[:50]].mean() * 50 / 10
        for _ in range(30)
        for query, row in enumerate(distances)
    ]
    assert measured.recall(50) == pytest.approx(np.mean(shares), abs=0.01)
    counts = np.array([np.bincount(row, minlength=17) for row in distances])
    near_distances = np.take_along_axis(distances, problem.near, axis=1)
    for n in (10, 50, 333):
        expected = recall_after_reranking(counts, near_distances, n)
        assert measured.recall(n) == pytest.approx(expected)
    assert measured.recall(len(problem.base)) == measured.asymmetric_recall(len(problem.base)) == 1
    within = distances <= 2
    lookup = [t[w].mean() if w.any() else 0.0 for t, w in zip(true, within, strict=True)]
    assert measured.precision_within(2) == pytest.approx(np.mean(lookup))
    assert measured.bytes_a_row == 2


def test_the_asymmetric_ranking_is_that_of_the_margins() -> None:
    problem, run = a_problem(), Run("ITQ", 16, asymmetric=True)
    measured = Measured(measure(problem, run), len(problem.queries), len(problem.base))
    hasher = run.hasher().fit(problem.vectors)
    margins, base = hasher.project(problem.asked), hasher.project(problem.vectors)
    _, true = brute_force(problem, run)
    rng = np.random.default_rng(0)
    agreement = [((base >= 0) == (margin >= 0)) @ np.abs(margin) for margin in margins]
    draws = [  # equal codes are tied: their order is drawn
        average_precision_score(truth, row + 1e-6 * rng.random(len(row)))
        for _ in range(30)
        for row, truth in zip(agreement, true, strict=True)
    ]
    assert measured.asymmetric_mean_average_precision == pytest.approx(np.mean(draws), abs=0.005)


def test_what_a_method_refuses_is_a_record_too() -> None:
    records = Records(None)
    problem = a_problem()
    run = Run("PCAH", 128)
    assert complete(problem, [run], records) == 1
    assert complete(problem, [run], records) == 0
    results = Results(problem.identity, records)
    found = results.get(run)
    assert found is not None
    assert "24" in (found.refused or "")
    assert results.mean(run, 1, lambda each: each.fit_seconds) is None


def test_times_alone_are_measured_on_fewer_rows_and_features() -> None:
    problem = a_problem()
    record = measure(problem, Run("DSH", 8, n_rows=200, n_features=5, ranks=False))
    assert "arrays" not in record
    assert record["seconds"]["fit"] > 0


def test_keys_hold_every_parameter_and_no_seed_without_chance() -> None:
    identity = {"set": "x"}
    assert Run("DSH", 8).key(identity)["parameters"]["alpha"] == 1.5
    usual = Run("DSH", 8).key(identity)
    assert Run("DSH", 8, parameters=(("p", 3),)).key(identity) == usual
    for other in (
        Run("DSH", 8, parameters=(("p", 4),)),
        Run("DSH", 8, seed=1),
        Run("DSH", 16),
        Run("DSH", 8, n_rows=10),
        Run("DSH", 8, asymmetric=True),
        Run("LSH", 8),
    ):
        assert other.key(identity) != usual
    assert Run("SpH", 8, seed=1).key(identity) == Run("SpH", 8).key(identity)
    inside = Run("Refined(DSH)", 8, seed=2).key(identity)["parameters"]
    assert inside["hasher"] == "DSH"
    assert not [name for name in inside if "random_state" in name or "n_bits" in name]


# Running


def test_a_cut_run_goes_on_and_a_second_one_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, path = a_problem(), tmp_path / "records.jsonl"
    runs = planned(SMALL, problem)
    calls: list[Run] = []
    cut_at: int | None = 3

    def counted(problem: Problem, run: Run) -> Any:
        if len(calls) == cut_at:
            raise KeyboardInterrupt
        calls.append(run)
        return measure(problem, run)

    monkeypatch.setattr(runner, "measure", counted)
    with pytest.raises(KeyboardInterrupt):
        complete(problem, runs, Records(path))
    cut_at = None
    assert complete(problem, runs, Records(path)) == len(runs) - 3
    assert calls == runs
    monkeypatch.setattr(runner, "measure", None)
    assert complete(a_problem(), planned(SMALL, a_problem()), Records(path)) == 0


def test_figures_are_made_from_records_alone(tmp_path: Path) -> None:
    problem, path = a_problem(), tmp_path / "records.jsonl"
    records = Records(path)
    complete(problem, planned(SMALL, problem), records)
    first = paper_page([Results(problem.identity, records)], SMALL, command="x")
    again = paper_page([Results(dict(problem.identity), Records(path))], SMALL, command="x")
    assert first == again
    names = {item.name for section in first.sections for item in section.items}
    assert {"figure-2-mixture", "map-mixture", "tables-1-3-mixture", "figure-1-dsh"} <= names


def test_a_figure_shows_means_and_spreads() -> None:
    problem, records = a_problem(), Records(None)
    complete(problem, planned(SMALL, problem), records)
    results = Results(problem.identity, records)
    figure = draw(STUDIES[0], results, SMALL)
    assert figure is not None
    lines = {line.name: line for line in figure.series}
    assert set(lines) == set(SMALL.methods)
    for method, line in lines.items():
        assert list(line.x) == [8, 16]
        maps = [
            measured.mean_average_precision
            for measured in results.seeds(SMALL.run(method, 16), SMALL.n_seeds)
        ]
        assert line.y[1] == pytest.approx(np.mean(maps))
        if method == "PCAH":  # no chance, no spread
            assert line.spread == (None, None)
        else:
            assert line.spread[1] == pytest.approx(np.std(maps, ddof=1))


def test_every_study_draws_something() -> None:
    problem, records = a_problem(2000), Records(None)
    plan = Plan(("LSH", "DSH", "ITQ"), (16, 32, 64), n_seeds=1)
    complete(problem, planned(plan, problem), records)
    results = Results(problem.identity, records)
    for study in STUDIES:
        figure = draw(study, results, plan)
        assert figure is not None, study.name
        assert all(np.isfinite(line.y).all() for line in figure.series), study.name
    asymmetric = draw(next(s for s in STUDIES if s.asymmetric), results, plan)
    assert asymmetric is not None
    assert "ITQ, asymmetric" in {line.name for line in asymmetric.series}
    table = cost_table([results], plan)
    assert table is not None
    assert table.rows[-1][1:] == (1.0, 1.0, 1.0)
    assert claims_table([results], plan) is not None
    fourth = parameter_table("table-4", [results], plan, published.TRAINING_BY_P)
    assert fourth is not None
    assert [row[0] for row in fourth.rows] == ["mixture", "GIST1M", "Flickr1M", "SIFT1M"]


def test_the_times_stand_beside_the_papers() -> None:
    problem, records = a_problem(), Records(None)
    plan = replace(SMALL, bits=(16, 32))
    complete(problem, planned(plan, problem), records)
    table = times_table(Results(problem.identity, records), plan)
    assert table is not None
    theirs = [row for row in table.rows if row[1] == "SIFT1M, in the paper"]
    assert ("DSH", "SIFT1M, in the paper", 8.4, 12.2, 0.5, 1.2) in theirs
    assert map_table(Results(problem.identity, records), plan).columns[1].title == "16 bits"


# The studies as data


def test_studies_are_those_of_the_paper() -> None:
    by_name = {study.name: study for study in STUDIES}
    assert by_name["figure-2"].methods == PAPER
    assert BITS == (8, 12, 16, 24, 32, 48, 64, 96, 128)
    assert [*by_name["figure-3-48"].bits, *by_name["figure-3-96"].bits] == [48, 96]
    assert list(by_name["figure-4"].values) == [1, 2, 3, 4, 5, 6]
    assert list(by_name["figure-6"].values) == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert list(by_name["figure-5"].values) == list(range(1, 11))
    assert len({study.name for study in STUDIES}) == len(STUDIES)
    assert {method for study in STUDIES for method in study.methods} == {*METHODS, *PEERS}


@pytest.mark.parametrize("name", published.TIMES)
def test_the_papers_times_are_complete(name: str) -> None:
    assert tuple(published.TIMES[name]) == PAPER
    # What two tables of the paper both have: DSH at 64 bits with p = 3 and alpha = 1.5.
    training = published.TIMES[name]["DSH"].training[2]
    assert published.TRAINING_BY_P[name][2] == published.TRAINING_BY_ALPHA[name][2] == training


def test_lengths_that_the_paper_has_not_can_be_asked_for() -> None:
    plan = Plan(("DSH",), bits=(20, 40))
    assert [x for x, _ in runs_of(STUDIES[0], plan, "DSH", {})] == [20, 40]


def test_fixed_lengths_are_not_cut_by_those_asked_for() -> None:
    plan = Plan(("DSH",), bits=(16,))
    study = next(study for study in STUDIES if study.name == "figure-5")
    assert {run.n_bits for _, run in runs_of(study, plan, "DSH", {})} == {64}


# Figure 1


def test_dsh_gives_each_gaussian_a_code_of_its_own_and_the_others_do_not() -> None:
    points, gaussians = toy.four_gaussians()
    for name, hasher in toy.hashers().items():
        codes = hasher.transform(points)[:, 0]
        by_gaussian = [set(codes[gaussians == each].tolist()) for each in range(4)]
        own = all(len(each) == 1 for each in by_gaussian) and len(set.union(*by_gaussian)) == 4
        assert own == (name == "DSH")


def test_the_lines_of_figure_1_are_where_bits_change() -> None:
    for figure, hasher in zip(toy.section().items, toy.hashers().values(), strict=True):
        assert isinstance(figure, PlaneFigure)
        for (x0, y0, x1, y1), plane, threshold in zip(
            figure.lines, hasher.planes_, hasher.thresholds_, strict=True
        ):
            for end in ((x0, y0), (x1, y1)):
                assert np.dot(plane, end) == pytest.approx(threshold, abs=1e-6)
            assert (x0, y0) != (x1, y1)


# Claims


def judged(claim: str, **lines: Series) -> str | None:
    """The verdict of one claim on made-up figures, keyed study__method."""

    class Made:
        figures: dict[str, dict[str, Series]]

        def __init__(self) -> None:
            self.figures = {}
            for line in lines.values():
                study, _, method = line.name.partition("/")
                self.figures.setdefault(study, {})[method] = replace(line, name=method)

        def line(self, study: str, method: str) -> Series | None:
            return self.figures.get(study, {}).get(method)

    found = claims.CLAIMS[claim](Made())  # type: ignore[arg-type]
    return None if found is None else found.holds


def made(name: str, *y: float, x: tuple[float, ...] | None = None) -> Series:
    return Series(name, x or tuple(float(2 ** (3 + i)) for i in range(len(y))), y)


def test_claims_are_judged_by_figures() -> None:
    best = "DSH is above the six others at every length (Figure 2)"
    dsh, lsh = made("figure-2/DSH", 0.2, 0.3), made("figure-2/LSH", 0.1, 0.2)
    assert judged(best, a=dsh, b=lsh) == "yes"
    assert judged(best, a=dsh, b=made("figure-2/LSH", 0.1, 0.4)) == "partly"
    assert judged(best, a=dsh, b=made("figure-2/LSH", 0.3, 0.4)) == "no"
    assert judged(best, a=lsh) is None
    rises = "MAP rises with p (Figure 4)"
    assert judged(rises, a=made("figure-4/DSH", 0.30, 0.35, x=(1, 6))) == "yes"
    assert judged(rises, a=made("figure-4/DSH", 0.300, 0.305, x=(1, 6))) == "no, flat"
    assert judged(rises, a=made("figure-4/DSH", 0.35, 0.30, x=(1, 6))) == "no, it falls"
    r = "MAP is stable for r below 5, then falls (Figure 5)"
    assert judged(r, a=made("figure-5/DSH", 0.3, 0.3, 0.2, x=(1, 4, 10))) == "yes"
    assert judged(r, a=made("figure-5/DSH", 0.3, 0.3, 0.3, x=(1, 4, 10))) == "partly"
    assert judged(r, a=made("figure-5/DSH", 0.3, 0.2, 0.2, x=(1, 4, 10))) == "no"
    falls = "PCAH falls with the code length"
    assert judged(falls, a=made("figure-2/PCAH", 0.3, 0.2)) == "yes"
    assert judged(falls, a=made("figure-2/PCAH", 0.2, 0.3)) == "no"
    rise = "LSH, KLSH and SIKH start low and rise with the code length"
    assert judged(rise, a=lsh) == "yes"
    assert judged(rise, a=lsh, b=made("figure-2/KLSH", 0.3, 0.1)) == "no"
    flat = "SpH and AGH gain little from longer codes"
    assert judged(flat, a=lsh, b=made("figure-2/SpH", 0.2, 0.2)) == "yes"
    assert (
        judged(flat, a=made("figure-2/LSH", 0.1, 0.2, 0.3), b=made("figure-2/SpH", 0.1, 0.2, 0.4))
        == "no"
    )
    fast = "hashing a query costs what it costs with LSH (section 3.4)"
    assert (
        judged(fast, a=made("cost-test/DSH", 2.0, 3.0), b=made("cost-test/LSH", 2.0, 3.0)) == "yes"
    )
    assert (
        judged(fast, a=made("cost-test/DSH", 4.0, 6.0), b=made("cost-test/LSH", 2.0, 3.0)) == "no"
    )


def test_figures_have_one_line_a_name() -> None:
    problem, records = a_problem(), Records(None)
    complete(problem, planned(SMALL, problem), records)
    page = paper_page([Results(problem.identity, records)], SMALL, command="x")
    for section in page.sections:
        for item in section.items:
            if isinstance(item, Figure):
                assert len({line.name for line in item.series}) == len(item.series)
