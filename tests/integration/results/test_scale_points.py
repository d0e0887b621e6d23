"""The share of each point of a rating scale, by condition and category, against shares counted by hand."""

import csv
import io

import pytest
from django.core.management import call_command
from django.http import QueryDict

from grading_app.grading.scoring import grade
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.scope import ScopeForm
from tests import factories

pytestmark = pytest.mark.django_db

RATINGS = {
    "a": [[1, 1, 3], [1, 2, None], [4, 4, 4], [2, 2, 1]],
    "b": [[4, 4, 4], [4, 4, 4], [4, 4, 4], [4, 4, 4]],
}
"""By model, the three ratings of four items; items 0 and 2 are of category A. None is an answer without a rating."""


def make_study(low=1, high=4, ratings=RATINGS):
    experiment = factories.make_experiment(
        "study",
        dataset=factories.make_dataset(
            "pictures", [{"key": f"picture-{n}", "category": "AB"[n % 2]} for n in range(4)]
        ),
        models=[factories.make_model(name) for name in ratings],
        dimensions=[factories.make_dimension("valence", low=low, high=high)],
        samples=3,
    )
    for run in factories.make_runs(experiment, status="done"):
        rated = ratings[run.condition.model.name]
        factories.plan_trials(run, answer=lambda item, _, index, rated=rated: _answer(rated[item.position][index]))
    return experiment


def _answer(rating):
    return {"answer": "unsure" if rating is None else str(rating), "rating": rating, "truncated": rating == 3}


def read_shares(experiment, table, query=""):
    """Return the number of scores and the shares, row by row."""
    scope = ScopeForm(QueryDict(query), experiment).get_scope()
    rows = build_section_tables(load_analysis_data(scope))["descriptives"]
    (chosen,) = [one for one in rows if one.name == table]
    points = [column.name for column in chosen.columns if column.name.startswith("point")]
    return {(row["condition"], row["category"]): (row["n"], [row[name] for name in points]) for row in chosen.rows}


def test_the_share_of_a_point_is_relative_to_all_scores_of_the_condition():
    rows = read_shares(make_study(), "scale_points")
    n, shares = rows["a", None]
    assert n == 11
    assert shares == pytest.approx([4 / 11, 3 / 11, 1 / 11, 3 / 11])
    assert rows["b", None] == (12, [0, 0, 0, 1])


def test_categories_have_shares_of_their_own():
    rows = read_shares(make_study(), "category_points")
    assert rows["a", "A"] == (6, pytest.approx([2 / 6, 0, 1 / 6, 3 / 6]))
    assert rows["a", "B"] == (5, pytest.approx([2 / 5, 3 / 5, 0, 0]))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("missing=wrong", (12, [5 / 12, 3 / 12, 1 / 12, 3 / 12])),
        ("exclude=truncated", (10, [4 / 10, 3 / 10, 0, 3 / 10])),
        ("category=B", (5, [2 / 5, 3 / 5, 0, 0])),
    ],
)
def test_the_scope_chooses_the_scores(query, expected):
    n, shares = read_shares(make_study(), "scale_points", query)["a", None]
    assert (n, shares) == (expected[0], pytest.approx(expected[1]))


def test_an_excluded_item_does_not_count():
    experiment = make_study()
    out = experiment.dataset.items.get(key="picture-2").pk
    assert read_shares(experiment, "scale_points", f"without={out}")["a", None] == (
        8,
        pytest.approx([4 / 8, 3 / 8, 1 / 8, 0]),
    )


def test_points_of_a_long_scale_share_columns():
    rows = read_shares(make_study(0, 100, {"a": [[0, 4, 5], [99, 99, 100], [50, 50, 50], [9, 10, 14]]}), "scale_points")
    n, shares = rows["a", None]
    assert (n, len(shares)) == (12, 21)
    counts = {0: 2, 1: 2, 2: 2, 10: 3, 19: 2, 20: 1}
    assert shares == pytest.approx([counts.get(at, 0) / 12 for at in range(21)])


def test_the_command_writes_the_shares(tmp_path):
    make_study()
    out = tmp_path / "shares.csv"
    call_command("analyse", "study", "--table", "scale_points", "--format", "csv", "--out", str(out))
    first, second = csv.DictReader(io.StringIO(out.read_text()))
    assert float(first["point_1"]) == pytest.approx(4 / 11)
    assert float(second["point_4"]) == 1


def test_right_and_wrong_have_no_scale_points():
    experiment = factories.make_experiment("quiz", dataset=factories.make_dataset(items=3), scorers=["numeric"])
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: item.target)
    grade(experiment, by="test")
    scope = ScopeForm(QueryDict(""), experiment).get_scope()
    names = {one.name for one in build_section_tables(load_analysis_data(scope))["descriptives"]}
    assert names == {"descriptives", "categories"}
