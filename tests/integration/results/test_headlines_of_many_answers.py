"""Headlines of a list are computed in bounded time: of few answers in a request."""

import pytest
from django.core.cache import cache

from grading_app.models import CachedAggregate
from grading_app.publish.figures.figure_set import FigureSource
from grading_app.results import cached_aggregates, headlines, status_report
from grading_app.results.headlines import load_headlines
from grading_app.results.status_report import build_status_report
from grading_app.tasks import grade_experiment
from runs_app.models import Experiment
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings

pytestmark = pytest.mark.django_db
ITEMS = 30


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_graded(slug, items=ITEMS, **fields):
    experiment = make_answered_experiment(slug, items=items, **fields)
    make_gradings(experiment, "exact", lambda trial: float(trial.item.position % 2), kind="rule")
    return experiment


def test_a_request_computes_headlines_of_a_limited_number_of_answers(monkeypatch):
    first, second = make_graded("first"), make_graded("second")
    monkeypatch.setattr(headlines, "MAX_ANSWERS_PER_REQUEST", ITEMS + 1)
    rows = list(Experiment.objects.with_totals().order_by("pk"))
    assert load_headlines(rows, first.owner).keys() == {first.pk}
    assert load_headlines(rows, first.owner).keys() == {first.pk, second.pk}


def test_results_that_are_stored_for_the_same_rows_give_the_headline_and_the_scores_of_the_status(monkeypatch):
    experiment = make_graded("study")
    grade_experiment(experiment.pk)  # As a worker does after the last answer.
    with monkeypatch.context() as without_stored:
        without_stored.setattr(headlines, "_load_stored_headlines", lambda *_found, **_options: {})
        without_stored.setattr("grading_app.results.status_report.find_fresh", lambda *_query: None)
        own_headline = load_headlines(list(Experiment.objects.with_totals()), experiment.owner)
        own_report = build_status_report(experiment, reads_stored=True)
    assert CachedAggregate.objects.filter(experiment=experiment, name="results").exists()

    cache.clear()  # Another process.
    monkeypatch.setattr(headlines, "_compute_headlines", None)
    monkeypatch.setattr("grading_app.results.frames.load_measure_scores", None)
    assert load_headlines(list(Experiment.objects.with_totals()), experiment.owner) == own_headline
    assert build_status_report(experiment, reads_stored=True) == own_report


def test_results_stored_before_a_new_grade_are_not_read(monkeypatch):
    experiment = make_graded("study")
    grade_experiment(experiment.pk)
    make_gradings(experiment, "substring", lambda trial: 1.0, kind="rule")
    cache.clear()
    computed = []
    compute = headlines._compute_headlines
    monkeypatch.setattr(
        headlines, "_compute_headlines", lambda found, measures: computed.extend(found) or compute(found, measures)
    )
    load_headlines(list(Experiment.objects.with_totals()), experiment.owner)
    assert computed == [experiment]
    measures = {line["measure"] for line in build_status_report(experiment, reads_stored=True)["scores"]}
    assert len(measures) > 1


def test_a_worker_stores_no_results_while_answers_are_to_come():
    experiment = make_graded("study")
    experiment.runs.update(n_pending=1)
    grade_experiment(experiment.pk)
    assert not CachedAggregate.objects.filter(experiment=experiment, name="results").exists()


def test_counts_over_rows_are_stored_with_the_results_and_counted_again_after_a_call_or_a_grade(monkeypatch):
    experiment = make_graded("study")
    grade_experiment(experiment.pk)
    cache.clear()  # Another process.
    counted = []
    count = status_report._count_rows
    monkeypatch.setattr(status_report, "_count_rows", lambda query: counted.append(query) or count(query))
    report = build_status_report(experiment, reads_stored=True)
    assert counted == []
    (rule,) = report["rules"]
    assert (rule["scored"], rule["unread"], report["runs"][0]["refused"]) == (ITEMS, {}, 0)

    (run,) = factories.make_runs(experiment, wave=1, status="done")
    factories.plan_trials(run, answer=lambda *_: {"answer": "I cannot say.", "refused": True})
    assert [line["refused"] for line in build_status_report(experiment)["runs"]] == [0, ITEMS]
    make_gradings(experiment, "substring", lambda trial: None, kind="rule")
    assert build_status_report(experiment)["rules"][1]["unread"] == {"no_score_in_json": 2 * ITEMS}
    assert len(counted) == 2
    build_status_report(experiment)
    assert len(counted) == 2


def test_the_first_reader_of_figures_computes_nothing_that_a_worker_has_stored(monkeypatch):
    experiment = make_graded("study")
    make_gradings(experiment, "judge-a", lambda trial: float(trial.item.position % 3 > 0))
    grade_experiment(experiment.pk)
    stored = set(CachedAggregate.objects.filter(experiment=experiment).values_list("name", flat=True))
    assert stored == {"results", "row_counts", "item_scores", "calibration", "agreement", "lengths"}
    names = {figure.name for figure in FigureSource(experiment).list_figures()}

    cache.clear()  # Another process.
    monkeypatch.setattr(cached_aggregates, "_keep", None)  # Called with each value that is computed.
    with cached_aggregates.store_all_values():
        assert {figure.name for figure in FigureSource(experiment).list_figures()} == names > {"calibration", "length"}
