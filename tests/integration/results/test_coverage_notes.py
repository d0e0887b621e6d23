"""Notes on intervals with a simulated coverage below 93 %, and no notes on other intervals."""

import pytest
from django.core.cache import cache
from django.urls import reverse
from django.utils.html import escape

from grading_app.models import GradeCondition
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.scope import ScopeForm
from grading_app.statistics.intervals import describe_correlation_coverage, describe_share_coverage
from tests import factories
from tests.factories.gradings import build_numbered_answer, make_answered_experiment, make_gradings, make_scale_rubric
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
NOTE = "The interval of a share of items asked once covers about {} % instead of 95 %"


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_graded(*, items, samples=1):
    experiment = make_answered_experiment(items=items, samples=samples)
    make_gradings(experiment, "exact_match", lambda trial: float(trial.item.position % 3 > 0), kind="rule")
    return experiment


def open_page(client, experiment, page):
    client.force_login(experiment.owner)
    return page_text(client.get(reverse(page, args=[experiment.slug])))


@pytest.mark.parametrize(("items", "samples", "per_cent"), [(12, 1, 91), (100, 1, 93), (12, 2, None)])
def test_a_share_over_few_single_answers_shows_its_coverage(client, items, samples, per_cent):
    experiment = make_graded(items=items, samples=samples)
    for page in ("experiment_results", "experiment_grading"):
        text = open_page(client, experiment, page)
        if per_cent is None:
            assert "covers about" not in text, page
        else:
            assert NOTE.format(per_cent) in text, page


def test_the_leaderboard_shows_coverage_on_the_page_and_in_its_file(client):
    experiment = make_graded(items=12)
    text = open_page(client, experiment, "experiment_results")
    assert text.count(NOTE.format(91)) == 1
    file = client.get(reverse("experiment_results", args=[experiment.slug]), {"table": "leaderboard", "format": "md"})
    assert NOTE.format(91) in file.content.decode()


def test_alpha_over_few_items_shows_its_coverage(client):
    experiment = make_answered_experiment(items=12)
    rubric = make_scale_rubric()
    make_gradings(experiment, "judge-a", lambda trial: 1 + trial.item.position % 7, rubric=rubric)
    make_gradings(experiment, "judge-b", lambda trial: 1 + (trial.item.position * 5 // 4) % 7, rubric=rubric)
    client.force_login(experiment.owner)
    response = client.get(reverse("experiment_agreement", args=[experiment.slug]))
    (note,) = response.context["tables"]["measures"]["table"].notes
    notes = {part.partition(" covers about ")[2]: part for part in note.split(". ")}
    (of_alpha,) = [note for rest, note in notes.items() if rest.startswith("91 %")]
    assert "Krippendorff's alpha, ordinal" in of_alpha
    (of_categories,) = [note for rest, note in notes.items() if rest.startswith("40 %")]
    assert "Krippendorff's alpha, nominal" in of_categories
    assert "if one category is rare" in of_categories
    assert "Cohen's kappa, quadratic weights" in of_alpha
    assert "Kendall's W" not in note
    text = page_text(response)
    assert text.count(escape(of_alpha)) == 1


def build_tables(experiment):
    form = ScopeForm({}, experiment)
    assert form.is_valid(), form.errors
    tables = build_section_tables(load_analysis_data(form.get_scope()))
    return {table.name: table for group in tables.values() for table in group}


def test_the_analysis_shows_coverage_below_shares():
    assert any(NOTE.format(91) in note for note in build_tables(make_graded(items=12))["descriptives"].notes)


def test_the_analysis_says_what_odd_items_do_to_the_interval_of_r():
    items = [{"key": f"picture-{n}", "norms": {"valence": 1.0 + (n == 11) * 5 + n / 50}} for n in range(12)]
    experiment = factories.make_experiment(
        dataset=factories.make_dataset("pictures", items), dimensions=[factories.make_dimension("valence")]
    )
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=build_numbered_answer)
    notes = build_tables(experiment)["norm_agreement"].notes
    assert any("far off, the interval of r covers about 55 % instead of 95 %" in note for note in notes)


def test_a_share_of_items_with_different_numbers_of_answers_shows_its_coverage(client):
    experiment = make_answered_experiment(items=20, samples=3)
    make_gradings(
        experiment,
        "exact_match",
        lambda trial: None if trial.sample_idx and trial.item.position < 5 else float(trial.item.position % 2),
        kind="rule",
    )
    text = open_page(client, experiment, "experiment_results")
    assert text.count("If hard items have more answers than easy ones, the interval of a share covers about 85 %") == 1


def test_scores_without_a_scale_show_what_skew_does_to_their_interval(client):
    experiment = make_answered_experiment(items=12)
    rule = make_gradings(experiment, "latency", lambda trial: 1.0 + 3 * trial.item.position**2, kind="rule")
    GradeCondition.objects.filter(pk=rule.pk).update(parameters={"imported": "true"})
    note = "interval covers about 73 % instead of 95 %"
    assert open_page(client, experiment, "experiment_results").count(note) == 1
    assert note in open_page(client, experiment, "experiment_grading")
    assert any(note in one for one in build_tables(experiment)["descriptives"].notes)


def test_no_notes_without_low_coverage():
    assert describe_share_coverage([]) == describe_correlation_coverage([]) == ""
    assert describe_share_coverage([1000]) == ""
    assert describe_correlation_coverage([400]) == ""
