"""Every page and file shows the same mean, interval, n and p of a condition on a measure.

The measures are those that once had two answers: a judge on a scale from 0 to 10 that gave only 0 and 1, imported
scores from 0 to 100, a repeated share, ratings from 1 to 7, and a panel.
"""

import numpy as np
import pytest
from django.core.cache import cache
from django.urls import reverse
from scipy import stats

from grading_app.analysis.data import load_analysis_data
from grading_app.analysis.sections import build_section_tables
from grading_app.models import GradeCondition
from grading_app.reports.frames import estimate_conditions, load_frames
from grading_app.reports.headlines import load_headlines
from grading_app.reports.leaderboard import BoardQuery, compute_leaderboard
from grading_app.reports.scope import ScopeForm
from grading_app.reports.verdict_stats import read_scores
from grading_app.results.scores import list_measures
from runs_app.models import Experiment
from runs_app.monitoring.progress import annotate_totals
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric

pytestmark = pytest.mark.django_db
ITEMS = 20


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_study(*, samples=1, dimensions=()):
    """Return an experiment of two models. The answers of `b` are a little better."""
    experiment = factories.make_experiment(
        "study", dataset=factories.make_dataset("study-items", ITEMS), samples=samples, dimensions=list(dimensions),
        models=[factories.make_model(name) for name in "ab"],
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        gain = run.condition.model.name == "b"
        factories.plan_trials(
            run,
            answer=lambda item, dimension, sample, gain=gain: {
                "answer": f"{item.position} {sample}",
                **({"rating": 1 + (item.position * 5 + sample) % 6 + gain} if dimension else {}),
            },
        )
    return experiment


def is_better(trial):
    return trial.run.condition.model.name == "b"


def grade_as_strict_judge(experiment):
    rubric = make_scale_rubric(low=0, high=10)
    make_gradings(experiment, "strict", lambda trial: float(trial.item.position % 2 or is_better(trial)), rubric=rubric)


def grade_as_imported_scores(experiment):
    draw = np.random.default_rng(3)
    condition = make_gradings(
        experiment, "acc", lambda trial: 50 + 5 * is_better(trial) + float(draw.normal(0, 12)), kind="rule"
    )
    GradeCondition.objects.filter(pk=condition.pk).update(parameters={"imported": "log"})


def grade_as_imported_shares(experiment):
    condition = make_gradings(
        experiment, "match", lambda trial: float(trial.item.position % 3 > 0 or is_better(trial)), kind="rule"
    )
    GradeCondition.objects.filter(pk=condition.pk).update(parameters={"imported": "log"})


def grade_as_repeated_share(experiment):
    draw = np.random.default_rng(5)
    make_gradings(
        experiment, "exact_match", lambda trial: float(draw.random() < 0.5 + 0.3 * is_better(trial)), kind="rule"
    )


def grade_as_panel(experiment):
    rubric = make_scale_rubric("panel", low=1, high=5)
    make_gradings(experiment, "panel", lambda trial: 1 + (trial.item.position + is_better(trial)) % 5, rubric=rubric)


STUDIES = {
    "judge 0 to 10": (grade_as_strict_judge, {}, False),
    "imported 0 to 100": (grade_as_imported_scores, {}, False),
    "imported 0 and 1": (grade_as_imported_shares, {}, True),
    "repeated share": (grade_as_repeated_share, {"samples": 3}, True),
    "judge 1 to 5": (grade_as_panel, {}, False),
    "ratings 1 to 7": (lambda experiment: None, {}, False),
}


@pytest.fixture(params=STUDIES)
def study(request):
    grade, design, is_share = STUDIES[request.param]
    if request.param == "ratings 1 to 7":
        design = {"dimensions": [factories.make_dimension("valence")]}
    experiment = make_study(**design)
    grade(experiment)
    return experiment, is_share


def list_numbers(experiment):
    """Return (where, mean, low, high, n) of each condition, from each reader of scores."""
    (measure,) = list_measures(experiment)
    board = compute_leaderboard(BoardQuery(experiment))
    for row in board.rows:
        score = row.scores[measure.key]
        yield row.label, "leaderboard", (score.mean, score.low, score.high, score.n)
    frames = load_frames(experiment)
    for line in frames.lines:
        yield line.condition, "scores and figures", (line.score.mean, line.score.low, line.score.high, line.score.n)
    for record in estimate_conditions(experiment):
        yield record["condition"], "status", (record["mean"], record["low"], record["high"], record["n"])
    labels = {row.condition: row.label for row in board.rows}
    for scores in read_scores(list(experiment.grade_conditions.all())).values():
        for one in scores.means:
            yield labels[one.condition], "grading", (one.score.mean, one.score.low, one.score.high, one.score.n)
    for row in build_analysis(experiment)["descriptives"].rows:
        low, high = row["interval"]
        yield row["condition"], "analysis", (row["mean"], low, high, row["n"])


def build_analysis(experiment):
    form = ScopeForm({}, experiment)
    assert form.is_valid(), form.errors
    tables = build_section_tables(load_analysis_data(form.get_scope()))
    return {table.name: table for group in tables.values() for table in group}


def test_each_page_has_the_same_mean_interval_and_n(study):
    experiment, is_share = study
    numbers = {}
    for condition, where, found in list_numbers(experiment):
        numbers.setdefault(condition, {})[where] = found
    assert len(numbers) == 2
    for condition, by_page in numbers.items():
        expected = by_page["leaderboard"]
        mean, low, high, _ = expected
        assert low <= mean <= high
        assert len(by_page) >= 4
        for where, found in by_page.items():
            assert found == pytest.approx(expected, rel=1e-9), (condition, where)
    assert compute_leaderboard(BoardQuery(experiment)).measures[0].is_share == is_share


def test_the_list_of_experiments_shows_the_lowest_and_highest_of_these_means(study):
    experiment, is_share = study
    (totals,) = annotate_totals(Experiment.objects.filter(pk=experiment.pk))
    headline = load_headlines([totals])[experiment.pk]
    means = [record["mean"] for record in estimate_conditions(experiment)]
    assert (headline.low, headline.high, headline.is_share) == (
        pytest.approx(min(means)), pytest.approx(max(means)), is_share,
    )  # fmt: skip


def test_compare_leaderboard_and_analysis_have_the_same_test_that_scipy_recomputes_from_the_rows(study, client):
    experiment, _ = study
    (measure,) = list_measures(experiment)
    (row,) = build_analysis(experiment)["differences"].rows
    by_condition = compute_leaderboard(BoardQuery(experiment, baseline=min(
        row.condition for row in compute_leaderboard(BoardQuery(experiment)).rows
    ))).rows  # fmt: skip
    (baseline,) = [one.baseline[measure.key] for one in by_condition if one.baseline]
    found = (row["difference"], *row["difference_ci"], row["p"])
    assert (baseline.difference, baseline.low, baseline.high, baseline.p) == pytest.approx(found)
    a, b = load_item_means(experiment, measure)
    if row["test"] == "paired t":
        expected = stats.ttest_rel(b, a)
        assert (row["t"], row["df"], row["p"]) == pytest.approx((expected.statistic, expected.df, expected.pvalue))
    elif row["test"] == "exact McNemar test":
        gained, lost = int(((a == 0) & (b == 1)).sum()), int(((a == 1) & (b == 0)).sum())
        assert row["p"] == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)
    else:
        changed = (b - a)[np.abs(b - a) > 1e-9]
        expected = stats.permutation_test((changed,), np.sum, permutation_type="samples", n_resamples=np.inf)
        assert row["test"] == "sign flips"
        assert row["p"] == pytest.approx(expected.pvalue)
    client.force_login(experiment.owner)
    page = client.get(reverse("experiment_results", args=[experiment.slug]))
    assert page.status_code == 200


def load_item_means(experiment, measure):
    """Return the mean of each item under both conditions, from the rows."""
    from runs_app.models import Trial

    rows = Trial.objects.filter(run__experiment=experiment).order_by("run_id", "item_id")
    values = {}
    for trial in rows.select_related("run__condition__model"):
        score = trial.rating if measure.is_rating else trial.gradings.get(condition_id=measure.grade_condition).score
        values.setdefault((trial.run.condition.model.name, trial.item_id), []).append(score)
    columns = [[np.mean(scores) for (name, _), scores in sorted(values.items()) if name == model] for model in "ab"]
    return [np.array(column) for column in columns]
