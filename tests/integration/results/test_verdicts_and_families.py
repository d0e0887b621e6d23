"""A verdict names its question, its family of tests, and the missing answers that it depends on."""

import csv
import io
from html import unescape

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.http import QueryDict
from django.urls import reverse

from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.scope import ScopeForm
from grading_app.results.statistic_format import format_p_equation, format_points_interval
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_study(right, slug="pilot", *, items=30, samples=1):
    """Return models that answer items by `right[name](position, repetition)`: 1, 0, or None without a score."""
    experiment = make_answered_experiment(slug, items=items, samples=samples, models=tuple(right))
    names = dict(experiment.conditions.values_list("pk", "model__name"))
    make_gradings(
        experiment,
        "exact_match",
        lambda trial: right[names[trial.run.condition_id]](trial.item.position, trial.sample_idx),
        kind="rule",
    )
    return experiment


@shared_rows
def four_models():
    """Return four models: b gains 7 items over a and loses one (p = .070), c gains 7 (p = .016)."""
    return make_study(
        {
            "a": lambda at, _: float(at < 15),
            "b": lambda at, _: float(at < 22 and at != 0),
            "c": lambda at, _: float(at < 22),
            "d": lambda at, _: float(at < 16),
        },
        "four",
    )


def get_compare(client, experiment, a, b, **query):
    client.force_login(experiment.owner)
    keys = {name: pk for pk, name in experiment.conditions.values_list("pk", "model__name")}
    sides = {"a": f"{experiment.slug}:{keys[a]}", "b": f"{experiment.slug}:{keys[b]}"}
    return client.get(reverse("compare"), sides | query)


def build_table(experiment, query="", name="differences"):
    sections = build_section_tables(load_analysis_data(ScopeForm(QueryDict(query), experiment).get_scope()))
    return next(table for tables in sections.values() for table in tables if table.name == name)


def test_compare_says_that_it_tests_one_of_six_pairs_and_prints_the_p_of_the_report(client, four_models):
    response = get_compare(client, four_models, "a", "c", table="difference", format="csv")
    (row,) = csv.DictReader(io.StringIO(response.content.decode().lstrip("\ufeff")))
    labels = {pair: entry for entry in build_table(four_models).rows if (pair := (entry["a"][0], entry["b"][0]))}
    entry = labels["a", "c"]
    assert (float(row["p"]), float(row["p_holm"])) == pytest.approx((entry["p"], entry["p_holm"]))
    assert float(row["p"]) < 0.05 < float(row["p_holm"])
    text = page_text(get_compare(client, four_models, "a", "c"))
    assert "One of 6 pairs of this design" in text
    corrected = f"p {format_p_equation(entry['p_holm'])} after Holm's correction over the 6 pairs of the design"
    assert corrected in unescape(text)
    assert "This pair is significant only without the correction." in text
    assert "beats" not in text


def test_a_design_with_one_pair_has_no_correction(client):
    study = make_study({"a": lambda at, _: float(at < 8), "b": lambda at, _: float(at < 24)})
    text = page_text(get_compare(client, study, "a", "b"))
    assert "beats" in text
    assert "pairs of this design" not in text


def test_a_verdict_that_depends_on_refused_answers_says_so_on_both_pages(client):
    study = make_study(
        {"a": lambda at, _: float(at < 4 or at > 11), "b": lambda at, _: 1.0 if at < 12 else None}, items=20
    )
    sentence = "This depends on answers without a score: if they count as wrong, no difference is significant."
    assert sentence in page_text(get_compare(client, study, "a", "b"))
    assert sentence in build_table(study).sentence
    assert "This depends on" not in build_table(study, "missing=wrong").sentence
    assert "This depends on" not in page_text(get_compare(client, study, "a", "b", missing="wrong"))


def test_no_difference_is_a_verdict_that_missing_answers_can_change():
    study = make_study({"a": lambda at, _: 1.0, "b": lambda at, _: 1.0 if at < 10 else None})
    sentence = build_table(study).sentence
    assert sentence.startswith("No pair of conditions differs")
    assert "if they count as wrong, a" in sentence


@shared_rows
def repeated():
    """Return two models on 20 items with 6 repetitions: b gains on half of the items and loses on the others."""
    return make_study(
        {
            "a": lambda at, n: float((at + n) % 2),
            "b": lambda at, n: float(n > 0 if at % 2 or at < 4 else n > 4),
        },
        "repeated",
        items=20,
        samples=6,
    )


def test_a_difference_is_given_for_items_like_these_and_for_these_items(client, repeated):
    table = build_table(repeated)
    row = table.rows[0]
    assert row["fixed_ci"][1] - row["fixed_ci"][0] < row["difference_ci"][1] - row["difference_ci"][0]
    alone = build_table(repeated, name="all_tests").notes[0]
    assert "On these items: the items are fixed" in alone
    assert "Cochran 1977" in alone
    assert any("on items like these" in note for note in table.notes)
    text = page_text(get_compare(client, repeated, "a", "b"))
    assert "This is for items like these. On these items alone, the interval of B − A is [" in text
    assert "95 %, these items" in text
    client.force_login(repeated.owner)
    page = client.get(reverse("experiment_results", args=[repeated.slug]))
    (conclusion,) = page.context["screen"].conclusions
    ends = format_points_interval(*row["fixed_ci"])
    assert conclusion.scope.startswith("On items like these: 20 items, 240 of 240 answers with a score.")
    assert conclusion.scope.endswith(f"On these items alone, the interval is {ends}.")


def test_the_analyse_command_writes_both_intervals(repeated, capsys):
    call_command("analyse", repeated.slug, table="all_tests", format="csv")
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(row["fixed_ci_low"]) > float(row["difference_ci_low"])
    assert float(row["p_fixed"]) < float(row["p"])


def test_answers_without_repetitions_have_one_interval_which_names_its_question(four_models):
    table = build_table(four_models)
    assert "fixed_ci" not in [column.name for column in table.columns]
    assert any("on items like these" in note for note in table.notes)


@shared_rows
def two_measures():
    experiment = make_study({"a": lambda at, _: float(at < 15), "b": lambda at, _: float(at < 22)}, "two")
    make_gradings(experiment, "numeric", lambda trial: float(trial.item.position % 2), kind="rule")
    return experiment


def test_measures_are_separate_families_and_the_table_says_so(two_measures):
    table = build_table(two_measures, "measure=exact_match")
    assert table.correction == "The other measure is a separate family of tests."
    assert table.rows[0]["p_holm"] == table.rows[0]["p"]


def test_one_family_over_all_measures_corrects_for_all_tests(two_measures, capsys):
    table = build_table(two_measures, "measure=exact_match&family=measures")
    assert table.correction == (
        "Holm and Benjamini–Hochberg over the 2 comparisons of all 2 measures; 1 of them are in this table."
    )
    assert table.rows[0]["p_holm"] == pytest.approx(2 * table.rows[0]["p"])
    call_command("analyse", two_measures.slug, table="differences", format="csv", family="measures")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["p_holm"]) for row in rows] == pytest.approx([2 * table.rows[0]["p"], 1.0])


def test_the_analysis_page_offers_one_family(client, two_measures):
    client.force_login(two_measures.owner)
    text = page_text(client.get(reverse("experiment_analysis", args=[two_measures.slug])))
    assert "Correct p over" in text
    assert ">All measures</option>" in text


def test_effects_of_factors_and_differences_by_category_say_if_they_depend_on_refusals():
    """Of 20 items, `refuser` answers 12, all right; the others are right on 10. Wrong for refused, nothing differs."""
    study = make_study(
        {
            "refuser": lambda at, _: 1.0 if at < 12 else None,
            "other": lambda at, _: float(6 <= at < 16),
            "third": lambda at, _: float(4 <= at < 14),
        },
        items=20,
    )
    dependence = "This depends on answers without a score: if they count as wrong, no term has an effect."
    sentence = build_table(study, name="factors").sentence
    assert sentence.startswith("After Holm's correction, these terms have an effect: Model (F(2, 18) = ")
    assert sentence.endswith(dependence)
    assert build_table(study, "missing=wrong", "factors").sentence.startswith("No term has an effect")
    assert any("a mean can differ" in note for note in build_table(study, name="marginal_means").notes)


def test_no_difference_in_any_category_says_if_it_depends_on_refusals():
    study = make_study({"whole": lambda at, _: 1.0, "refuser": lambda at, _: None if at % 8 > 3 else 1.0}, items=48)
    sentence = build_table(study, name="category_differences").sentence
    assert sentence.startswith("No condition differs from refuser in any category")
    assert "if they count as wrong, whole is higher on even; whole is higher on odd." in sentence


def test_ratings_that_differ_from_norms_say_if_they_depend_on_missing_ratings():
    items = [{"key": f"picture-{n}", "norms": {"valence": 2.0 + n % 3}} for n in range(12)]
    study = factories.make_experiment(
        dataset=factories.make_dataset("pictures", items), dimensions=[factories.make_dimension("valence")]
    )
    for run in factories.make_runs(study, status="done"):
        factories.plan_trials(
            run,
            answer=lambda item, *_: (
                {"answer": str(3 + item.position % 3), "rating": 3 + item.position % 3}
                if item.position < 9
                else {"status": "failed", "error_class": "content_refused", "answer": ""}
            ),
        )
    sentence = build_table(study, name="norm_differences").sentence
    assert "This depends on answers without a score: if they are at the ends of the scale, " in sentence
