"""Every section of the analysis, on recorded answers and on small studies whose numbers are known."""

import json

import pytest
from django.core.management import call_command
from django.http import QueryDict

from grading_app.grading.scoring import grade
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import SECTIONS, build_section_tables
from grading_app.results.scope import ScopeForm
from tests import factories

pytestmark = pytest.mark.django_db


def build_tables(experiment, query=""):
    scope = ScopeForm(QueryDict(query), experiment).get_scope()
    assert scope is not None
    sections = build_section_tables(load_analysis_data(scope))
    tables = [table for of_section in sections.values() for table in of_section]
    assert len({table.name for table in tables}) == len(tables)
    return {table.name: table for table in tables}


@pytest.fixture
def quiz():
    """Return two models on 30 items: b is right on 24, a on 12 of these, and both are wrong on the last 6."""
    experiment = factories.make_experiment(
        "quiz",
        dataset=factories.make_dataset(items=30),
        models=[factories.make_model("a"), factories.make_model("b")],
        scorers=["numeric"],
    )
    for run in factories.make_runs(experiment, status="done"):
        right = 12 if run.condition.model.name == "a" else 24
        factories.plan_trials(run, answer=lambda item, *_, right=right: item.target if item.position < right else "-1")
    grade(experiment, by="test")
    return experiment


@pytest.fixture
def study():
    """Return two models that rate 12 pictures three times: b one point above a, and picture 0 far from the norm."""
    items = [{"key": f"picture-{n}", "category": "AB"[n % 2], "norms": {"valence": 2 + n % 3}} for n in range(12)]
    experiment = factories.make_experiment(
        "study",
        dataset=factories.make_dataset("pictures", items),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence")],
        samples=3,
    )
    for run in factories.make_runs(experiment, status="done"):
        above = run.condition.model.name == "b"
        factories.plan_trials(run, answer=lambda item, _, index, above=above: _rating(item.position, index, above))
    return experiment


def _rating(position, index, above):
    if position == 0:
        return {"answer": "7", "rating": 7}
    rating = 2 + position % 3 + above + (index == 2 and position % 4 == 1)
    return {"answer": str(rating), "rating": rating, "truncated": index == 2, "attempts": 1 + index % 2}


@pytest.mark.slow
def test_right_and_wrong_answers_are_counted_by_item(quiz):
    tables = build_tables(quiz)
    (row,) = tables["right_and_wrong"].rows
    assert [row[name] for name in ("both_right", "gained", "lost", "both_wrong")] == [12, 12, 0, 6]
    assert row["p"] == pytest.approx(2 * 0.5**12)
    (difference,) = tables["differences"].rows
    assert difference["difference"] == pytest.approx(0.4)
    assert difference["difference_ci"][0] > 0
    assert tables["differences"].sentence.startswith("b scores 40.0 percentage points above a on 30 items")


@pytest.mark.slow
def test_items_that_every_condition_answered_wrong_are_listed(quiz):
    table = build_tables(quiz)["failed_by_all"]
    assert [row["item"] for row in table.rows] == [f"item-{n}" for n in range(24, 30)]
    assert table.sentence.startswith("6 of 30 items")


@pytest.mark.slow
def test_a_baseline_reverses_the_sign(quiz):
    b = quiz.conditions.get(model__name="b")
    (row,) = build_tables(quiz, f"baseline={b.pk}")["differences"].rows
    assert (row["a"], row["b"], row["difference"]) == ("b", "a", pytest.approx(-0.4))


def list_cell_texts(table, name):
    """Return the texts of one column, as the page shows them."""
    (at,) = [at for at, column in enumerate(table.columns) if column.name == name]
    return [cells[at] for cells in table.cells()]


@pytest.mark.slow
def test_differences_of_shares_and_their_intervals_are_in_percentage_points(quiz):
    tables = build_tables(quiz)
    assert list_cell_texts(tables["differences"], "difference") == ["+40.0 pp"]
    for table, columns in (("differences", ["difference_ci"]), ("robustness", ["value", "interval"])):
        for column in columns:
            assert all(text.endswith(" pp") for text in list_cell_texts(tables[table], column)), (table, column)
    assert all(text.endswith(" pp") for text in list_cell_texts(tables["designs"], "half_width"))
    assert all(text.endswith(" %") for text in list_cell_texts(tables["descriptives"], "interval"))


@pytest.mark.slow
def test_the_expected_score_of_an_item_stays_on_the_scale(quiz):
    rows = build_tables(quiz)["outliers"].rows
    assert rows
    assert all(0 <= row["expected"] <= 1 for row in rows)
    assert all(row["residual"] == pytest.approx(row["score"] - row["expected"]) for row in rows)


@pytest.mark.slow
def test_the_item_far_from_its_norm_comes_first(study):
    table = build_tables(study)["outliers"]
    assert {row["item"] for row in table.rows[:2]} == {"picture-0"}
    assert table.rows[0]["residual"] == pytest.approx(5)
    assert "item=" in table.links[0]["item"]


@pytest.mark.slow
def test_robustness_varies_one_choice_at_a_time(study):
    table = build_tables(study)["robustness"]
    rows = {row["variant"]: row for row in table.rows}
    assert rows["As chosen"]["n"] == 72
    assert rows["Without truncated answers"]["n"] == 50
    assert rows["First attempts only"]["n"] == 50
    assert rows["Without category A"]["items"] == 6
    assert table.sentence == "The sign of the difference is the same under every choice."


@pytest.mark.slow
def test_the_variances_of_items_and_repetitions_are_separated(study):
    table = build_tables(study, "margin=0.5")
    shares = {row["source"]: row["share"] for row in table["variance_components"].rows}
    assert set(shares) == {"Items", "Conditions", "Items × conditions", "Repetitions"}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["Items"] > shares["Repetitions"]
    assert all(0 <= row["power"] <= 1 for row in table["designs"].rows)


@pytest.mark.slow
def test_equivalence_is_tested_within_the_readers_margin(study):
    assert "equivalence_p" not in build_tables(study)["norm_differences"].rows[0]
    rows = build_tables(study, "margin=3")["norm_differences"].rows
    assert all(0 <= row["equivalence_p"] <= 1 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", "category=A", "missing=wrong", "exclude=truncated", "exclude=retried&margin=1"])
def test_every_table_is_written_in_every_format(study, query):
    for table in build_tables(study, query).values():
        for file_format in ("csv", "json", "md", "latex"):
            assert table.render(file_format)


def test_ratings_of_0_and_1_on_a_longer_scale_are_not_treated_as_wrong_and_right():
    experiment = factories.make_experiment(
        "pain",
        dataset=factories.make_dataset("pains", 20),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("pain", low=0, high=10)],
        samples=1,
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: {"answer": "0", "rating": item.position % 2})
    tables = build_tables(experiment)
    assert "right_and_wrong" not in tables
    assert tables["differences"].rows[0]["test"] != "McNemar's score test"
    assert {column.kind for column in tables["descriptives"].columns if column.name == "mean"} == {"number"}


def test_a_single_condition_or_item_is_not_an_error():
    experiment = factories.make_experiment(
        "tiny", dataset=factories.make_dataset("one", 1), dimensions=[factories.make_dimension("valence")], samples=1
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda *_: {"answer": "4", "rating": 4})
    tables = build_tables(experiment)
    assert tables["descriptives"].rows[0]["interval"] is None
    assert set(tables) == {"descriptives", "scale_points", "robustness"}


def test_the_introduction_of_every_section_is_a_question():
    assert all(section.intro.endswith("?") for section in SECTIONS)


@pytest.mark.slow
def test_recorded_word_problems_of_two_models_give_the_published_table(tmp_path):
    from tests.factories.recordings import make_word_problems

    experiment, rows = make_word_problems()
    grade(experiment, by="test")
    out = tmp_path / "table.json"
    call_command("analyse", "word-problems", "--table", "right_and_wrong", "--out", str(out))
    (sections,) = json.loads(out.read_text())["rows"]
    right = [(row["6b_finetuning"]["is_correct"], row["6b_verification"]["is_correct"]) for row in rows]
    expected = {
        "both_right": (True, True), "gained": (False, True), "lost": (True, False), "both_wrong": (False, False)
    }  # fmt: skip
    assert {name: sections[name] for name in expected} == {name: right.count(pair) for name, pair in expected.items()}
    assert sections["both_right"] + sections["lost"] == 286
    assert sections["both_right"] + sections["gained"] == 515
    assert sections["p"] < 1e-20
