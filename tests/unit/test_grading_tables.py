"""The cells of the tables of snapshots, rating queues and pairwise strengths."""

from types import SimpleNamespace

import pytest
from django.utils.html import strip_tags

from grading_app.grading.rating.queue_results import QuestionResult
from grading_app.models import RatingQueue, Rubric, Snapshot
from grading_app.results.raters.grader_rows import make_strength_table
from grading_app.results.raters.pairwise_stats import RankedCondition
from grading_app.views.files import SnapshotTable
from grading_app.views.tables.rating import make_question_table


def read_cells(table, *names):
    return [tuple(strip_tags(str(row.get_cell(name))).strip() for name in names) for row in table.rows]


def test_a_strength_without_an_interval_shows_a_dash():
    ranked = [RankedCondition("b", 0.51234, 0.1, 0.9), RankedCondition("a", -0.51234, None, None)]
    table = make_strength_table("strengths", ranked)
    assert table.cells() == [["b", "0.51", "0.10 to 0.90"], ["a", "−0.51", "–"]]


def test_a_snapshot_shows_its_whole_digest_and_its_size():
    digest = "0123456789abcdef" * 4
    counts = {"rows": {"trials": 1200, "gradings": 3}}
    row = Snapshot(label="paper", reason="as submitted", digest=digest, size=2048, counts=counts)
    table = SnapshotTable([row], "pilot")
    assert read_cells(table, "reason", "trials", "gradings", "digest", "size") == [
        ("paper as submitted", "1\u202f200", "3", digest, "zip, 2.0\xa0KB")
    ]
    assert f"/experiments/pilot/snapshots/{digest}.zip" in table.rows[0].get_cell("size")


@pytest.fixture
def result():
    icc = SimpleNamespace(estimate=0.5, low=-0.1, high=0.9)
    alpha = SimpleNamespace(estimate=-0.25)
    return QuestionResult("valence", n=8, items=4, raters=2, mean=3.005, sd=None, within=0.5, alpha=alpha, icc=icc)


def test_the_results_of_a_queue_show_the_interval_of_the_icc(result):
    table = make_question_table([result], RatingQueue())
    assert [column.label for column in table.columns] == [
        "Dimension", "Ratings", "Items", "Raters", "Mean", "SD of items", "SD of raters", "Alpha, ordinal", "ICC(2,1)",
        "95 % interval",
    ]  # fmt: skip
    assert table.cells() == [["valence", "8", "4", "2", "3.00", "–", "0.50", "−.25", ".50", "−.10 to .90"]]
    (row,) = table.records()
    assert (row["mean"], row["icc_interval_low"]) == (3.005, -0.1)


def test_the_results_of_pairs_have_no_means(result):
    table = make_question_table([result], RatingQueue(rubric=Rubric(kind=Rubric.Kind.PAIRWISE)))
    assert [column.label for column in table.columns] == ["Question", "Ratings", "Pairs", "Raters", "Alpha, nominal"]
