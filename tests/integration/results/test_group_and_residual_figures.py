"""The figures of groups of conditions and of residuals: their drawings, labels and alternative texts."""

import re

import pytest
from django.http import QueryDict

from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.figures.analysis import make_figures, order_leaves
from grading_app.results.plot_style import NARROW, WIDE, render_svg
from grading_app.results.scope import ScopeForm
from grading_app.results.table import ResultTable
from tests import factories

ABOVE = {"amber": 0, "birch": 0, "cedar": 1, "dune": 2}
"""How many points each model rates above the norm."""


@pytest.fixture(scope="module")
def tables(rows_of_file):
    """Return tables of four models on 12 pictures; amber equals the norm except on picture-4, which it rates 9."""
    experiment = factories.make_experiment(
        "study",
        dataset=factories.make_dataset(
            "pictures", [{"key": f"picture-{n}", "norms": {"valence": 2 + n % 4}} for n in range(12)]
        ),
        models=[factories.make_model(name) for name in ABOVE],
        dimensions=[factories.make_dimension("valence", low=1, high=9)],
        samples=1,
    )
    for run in factories.make_runs(experiment, status="done"):
        name = run.condition.model.name
        factories.plan_trials(run, answer=lambda item, *_, name=name: _answer(name, item.position))
    scope = ScopeForm(QueryDict("category="), experiment).get_scope()
    found = build_section_tables(load_analysis_data(scope))
    return {
        table.name: ResultTable.from_content(table.content()) for of_section in found.values() for table in of_section
    }


def _answer(name, position):
    rating = 9 if (name, position) == ("amber", 4) else 2 + position % 4 + ABOVE[name]
    return {"answer": str(rating), "rating": rating}


def draw(tables, name, width=WIDE):
    (figure,) = [figure for figure in make_figures(tables) if figure.name == f"analysis-{name}"]
    return render_svg(lambda: figure.draw(width)).decode(), figure.alt, figure, figure.table()


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_tree_labels_every_condition_and_joins_similar_conditions_first(tables, width):
    picture, alt, figure, table = draw(tables, "groups", width)
    texts = re.findall(r">([a-z]+)</text>", picture)
    assert sorted(texts) == sorted(ABOVE)
    assert [{texts.index(one) for one in pair} for pair in (("amber", "birch"), ("cedar", "dune"))] in (
        [{0, 1}, {2, 3}],
        [{2, 3}, {0, 1}],
    )
    assert "a tree of 4 conditions" in alt
    assert f"join at {table.rows[-1]['distance']:.2f}" in alt
    assert figure.size(width)[0] == width
    assert "light-dark(" in picture


def test_the_joins_of_the_tree_match_the_steps_in_the_table(tables):
    table = tables["groups"]
    assert [join[2] for join in table.data["joins"]] == [row["distance"] for row in table.rows]
    assert table.rows[0]["distance"] == pytest.approx(7 / 12)


def test_branches_of_the_tree_do_not_cross():
    assert order_leaves(5, [[0, 3, 1.0], [1, 4, 2.0], [2, 5, 3.0], [6, 7, 4.0]]) == [1, 4, 2, 0, 3]


def test_a_tree_of_a_hundred_conditions_has_a_row_for_each():
    labels = [f"condition {at}" for at in range(100)]
    joins = [[0, 1, 0.1], *([at, 98 + at, 0.1 * at] for at in range(2, 100))]
    table = ResultTable("groups", "Groups", [], [], data={"labels": labels, "joins": joins})
    picture, alt, figure, _ = draw({"groups": table}, "groups")
    assert figure.size(WIDE)[1] >= 100 * 15
    assert len(set(re.findall(r">(condition \d+)</text>", picture))) == 100
    assert "100 conditions" in alt


def test_a_tree_too_large_to_read_is_not_drawn():
    labels = [str(at) for at in range(500)]
    table = ResultTable("groups", "Groups", [], [], data={"labels": labels, "joins": [[0, 1, 1.0]]})
    assert not make_figures({"groups": table})


def test_the_item_far_from_its_norm_is_marked_and_named(tables):
    picture, alt, _, table = draw(tables, "residuals")
    found = table.data["residuals"]
    assert found["cells"] == 48
    assert found["far"] == [[2.0, 7.0]]
    assert len(found["near"]) == 47
    assert table.rows[0]["item"] == "picture-4"
    assert re.findall(r">(picture-\d+)</text>", picture) == ["picture-4"], "the others are not far"
    assert "48 cell means" in alt
    assert "picture-4 in amber" in alt


def test_far_residuals_are_those_whose_modified_z_is_beyond_the_limit(tables):
    table = tables["outliers"]
    found = table.data["residuals"]
    low, high = found["limits"]
    assert all(low <= residual <= high for _, residual in found["near"])
    assert all(not low <= residual <= high for _, residual in found["far"])
    far_rows = [row for row in table.rows if row["z"] is not None and abs(row["z"]) > 3.5]
    assert found["far_cells"] == len(far_rows) == 1
