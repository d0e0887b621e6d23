"""The leaderboard of agreement with norms compares conditions over the items that all of them rated."""

import pytest

from tests import factories
from tests.integration.results.test_analysis_sections import build_tables

pytestmark = pytest.mark.django_db


def make_study(skipped):
    """Return two models on 12 pictures with the norm 4: b is off by 1, a by 3 at picture 0 and by 0 or 2 at the others.

    b has no rating of the pictures at the positions `skipped`.
    """
    items = [{"key": f"picture-{n}", "norms": {"valence": 4}} for n in range(12)]
    experiment = factories.make_experiment(
        "study",
        dataset=factories.make_dataset("pictures", items),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence")],
    )
    for run in factories.make_runs(experiment, status="done"):
        is_b = run.condition.model.name == "b"
        factories.plan_trials(run, answer=lambda item, *_, is_b=is_b: rate(item.position, is_b, skipped))
    return experiment


def rate(position, is_b, skipped):
    if is_b and position in skipped:
        return None
    rating = 5 if is_b else 7 if position == 0 else 4 if position % 2 else 6
    return {"answer": str(rating), "rating": rating}


def test_conditions_are_compared_over_their_common_items():
    tables = build_tables(make_study(skipped={0}))
    board = tables["norm_leaderboard"]
    rows = {row["condition"]: row for row in board.rows}
    assert {row["items"] for row in rows.values()} == {11}
    assert any(note.startswith("Only the 11 of 12 items that every condition rated") for note in board.notes)
    assert " over 11 common items." in board.sentence
    assert {label: row["mae"] for label, row in rows.items() if label != "Mean of conditions"} == pytest.approx(
        {"a": 10 / 11, "b": 1.0}
    )
    errors = {row["condition"]: row["items"] for row in tables["norm_errors"].rows}
    assert errors == {"a": 12, "b": 11, "Mean of conditions": 12}


def test_no_condition_is_the_best_over_few_common_items():
    board = build_tables(make_study(skipped=set(range(8))))["norm_leaderboard"]
    assert board.sentence == ""
    assert any("only 4 of 12 items in common" in note for note in board.notes)
    assert {row["condition"]: row["items"] for row in board.rows}["b"] == 4


def test_equal_items_need_no_note():
    board = build_tables(make_study(skipped=set()))["norm_leaderboard"]
    assert not any("items" in note and "condition" in note for note in board.notes)
    assert " over 12 items." in board.sentence
