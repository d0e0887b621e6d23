"""Norms and adjudicated scores are compared with raters, and do not count as raters or people."""

import numpy as np
import pytest
from django.core.cache import cache
from django.urls import reverse

from grading_app.models.rubrics import Scale
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.figures import norms
from grading_app.results.frames import load_frames
from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from grading_app.results.raters.agreement_report import RESAMPLES, SEED
from grading_app.results.raters.disagreements import adjudicate
from grading_app.results.scope import ScopeForm
from grading_app.statistics.agreement_coefficients import krippendorff_alpha
from grading_app.statistics.judge_bias import compare_judge_with_people
from grading_app.statistics.ratings import Ratings
from tests import factories
from tests.factories.gradings import list_generated_trials, make_answered_experiment, make_gradings, make_scale_rubric
from tests.factories.queues import make_queue, make_rater, rate_all

pytestmark = pytest.mark.django_db
ITEMS, PEOPLE, SAMPLES = 14, 6, 3


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


@pytest.fixture
def drawn_ratings():
    """Return ratings of 14 items from 1 to 7: three by a model, one by each of six people, and a norm."""
    draw = np.random.default_rng(7)
    truth = draw.uniform(1.5, 6.5, ITEMS)

    def draw_ratings(n, noise):
        return np.clip(np.round(truth[:, None] + noise * draw.standard_normal((ITEMS, n))), 1, 7)

    return {"model": draw_ratings(SAMPLES, 0.7), "people": draw_ratings(PEOPLE, 1.0), "norm": np.round(truth, 2)}


@pytest.fixture
def study(drawn_ratings):
    valence = factories.make_dimension("valence")
    items = [
        {**factories.build_question(at), "norms": {"valence": float(drawn_ratings["norm"][at])}} for at in range(ITEMS)
    ]
    dataset = factories.make_dataset("photos", items)
    experiment = factories.make_experiment("affect", dataset=dataset, dimensions=[valence], samples=SAMPLES)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(
        run, answer=lambda item, _, at: {"answer": "x", "rating": int(drawn_ratings["model"][item.position, at])}
    )
    queue = make_queue("feelings", dataset=dataset, dimensions=[valence], raters_wanted=PEOPLE)
    for person in range(PEOPLE):
        rate_all(
            make_rater(queue, started=True), lambda due, p=person: int(drawn_ratings["people"][due.item.position, p])
        )
    query = f"units=items:valence&rater=q{queue.pk}-{valence.pk}&rater=norm&rater=c{run.condition_id}"
    return experiment, query


def open_measured(client, study, page="experiment_agreement"):
    experiment, query = study
    client.force_login(experiment.owner)
    return client.get(f"{reverse(page, args=[experiment.slug])}?{query}")


@pytest.mark.slow
def test_a_norm_does_not_count_as_a_person(client, study, drawn_ratings):
    page = open_measured(client, study)
    against = page.context["result"].report.judge_comparison
    text = " ".join(page.content.decode().split())
    assert against.people == PEOPLE
    assert "6 raters</span>" in text
    model = drawn_ratings["model"].mean(axis=1, keepdims=True)
    with_people = compare_judge_with_people(
        Ratings.from_table(np.hstack([model, drawn_ratings["people"]])),
        0,
        "concordance",
        seed=SEED,
        resamples=RESAMPLES,
    )
    with_norm = compare_judge_with_people(
        Ratings.from_table(np.hstack([model, drawn_ratings["people"], drawn_ratings["norm"][:, None]])),
        0,
        "concordance",
        seed=SEED,
        resamples=RESAMPLES,
    )
    gap = against.standings[0].gap
    assert gap.estimate == pytest.approx(with_people.gap.estimate)
    assert abs(gap.estimate - with_norm.gap.estimate) > 0.01
    assert against.bias.estimate == pytest.approx((model[:, 0] - drawn_ratings["people"].mean(axis=1)).mean())


@pytest.mark.slow
def test_a_norm_does_not_enter_pooled_alpha(client, study, drawn_ratings):
    lines = {line.name: line.estimate for line in open_measured(client, study).context["result"].report.measures}
    report = lines["Krippendorff's alpha, interval"]
    table = np.hstack([drawn_ratings["people"], drawn_ratings["model"].mean(axis=1, keepdims=True)])
    assert report.raters == PEOPLE + 1
    assert report.estimate == pytest.approx(krippendorff_alpha(Ratings.from_table(table), "interval").estimate)


@pytest.mark.slow
def test_raters_are_compared_with_the_norm_separately(client, study, drawn_ratings):
    page = open_measured(client, study)
    lines = page.context["result"].report.references
    assert [(line.rater[0], line.people) for line in lines] == [*[("p", 0)] * PEOPLE, ("c", 0), ("p", PEOPLE)]
    model, mean = lines[-2], lines[-1]
    assert model.bias.estimate == pytest.approx((drawn_ratings["model"].mean(axis=1) - drawn_ratings["norm"]).mean())
    assert mean.r.estimate == pytest.approx(
        np.corrcoef(drawn_ratings["people"].mean(axis=1), drawn_ratings["norm"])[0, 1]
    )
    text = page.content.decode()
    assert "Against norms of the dataset" in text
    assert "mean of 6 people" in text


def test_r_with_the_norms_has_one_interval_on_all_pages(client, study):
    experiment, _ = study
    page = open_measured(client, study)
    (r,) = [line.r for line in page.context["result"].report.references if line.rater[0] == "c"]
    tables = build_section_tables(load_analysis_data(ScopeForm({}, experiment).get_scope()))
    (row,) = next(one for group in tables.values() for one in group if one.name == "norm_agreement").rows
    board = compute_leaderboard(BoardQuery(experiment))
    (near,) = board.closeness["valence"].conditions.values()
    (figure,) = [panel.correlation for panel in norms.list_panels(load_frames(experiment))]
    expected = (r.estimate, r.low, r.high)
    assert (row["r"], *row["r_ci"]) == pytest.approx(expected)
    assert (near.r, near.low, near.high) == pytest.approx(expected)
    assert (figure.r, figure.low, figure.high) == pytest.approx(expected)


@pytest.mark.slow
def test_equal_ratings_are_counted_over_single_answers_not_over_means(client, study, drawn_ratings):
    report = open_measured(client, study).context["result"].report
    same = np.mean([drawn_ratings["model"][:, [at]] == drawn_ratings["people"] for at in range(SAMPLES)])
    assert report.judge_comparison.standings[1].judge.estimate == pytest.approx(same)
    pair = next(one for one in report.pairs if one.second[0] == "c")
    assert pair.same == pytest.approx((drawn_ratings["model"] == drawn_ratings["people"][:, [0]]).mean())
    of_means = (drawn_ratings["model"].mean(axis=1, keepdims=True) == drawn_ratings["people"]).mean()
    assert same > of_means + 0.1
    assert report.confusion is not None  # Of two people. A mean over repetitions has no row.
    nominal = {line.name: line.estimate for line in report.measures}["Krippendorff's alpha, nominal"]
    table = np.hstack([drawn_ratings["people"], drawn_ratings["model"][:, [0]]])
    assert nominal.estimate == pytest.approx(krippendorff_alpha(Ratings.from_table(table), "nominal").estimate)


@pytest.mark.slow
def test_a_norm_is_shown_beside_a_disagreement_and_does_not_widen_its_range(client, study, drawn_ratings):
    rows = open_measured(client, study, "experiment_disagreements").context["rows"]
    for row in rows:
        at = row["item"].position
        ratings = [*drawn_ratings["people"][at], drawn_ratings["model"][at].mean()]
        assert row["disagreement"].size == pytest.approx(max(ratings) - min(ratings), abs=1e-5)
        assert row["disagreement"].n == PEOPLE + 1
        assert row["verdicts"][-1].value == pytest.approx(drawn_ratings["norm"][at])


@pytest.fixture
def judged():
    """Return an experiment with four judges and an adjudicated score of one answer."""
    experiment = make_answered_experiment(items=8)
    rubric = make_scale_rubric()
    for off in range(4):
        make_gradings(
            experiment,
            "judge-" + "x" * (off + 1),
            lambda trial, o=off: float(1 + (trial.item.position + o) % 5),
            rubric=rubric,
        )
    adjudicate(
        list_generated_trials(experiment)[2], scale=Scale(1, 7), score=7, reason="So it is.", by=experiment.owner
    )
    return experiment


def test_a_decision_does_not_count_as_a_rater(client, judged):
    page = open_measured(client, (judged, ""))
    report = page.context["result"].report
    assert [one.n for one in report.coverage] == [8, 8, 8, 8]
    assert {line.estimate.raters for line in report.measures if line.estimate} == {4}
    assert "judge" not in page.context["tables"]
    assert [line.bias.units for line in report.references] == [1, 1, 1, 1]
    assert "Against Adjudicated, 1 to 7" in page.content.decode()


def test_a_decision_is_not_a_measure_of_the_results(client, judged):
    client.force_login(judged.owner)
    page = client.get(reverse("experiment_results", args=[judged.slug]))
    lines = page.context["results"].summary.lines
    assert len(lines) == 4
    assert "djudicat" not in str([line.measure.label for line in lines])


def test_a_decision_does_not_widen_the_range_of_a_disagreement(client, judged):
    page = open_measured(client, (judged, ""), "experiment_disagreements")
    row = next(row for row in page.context["rows"] if row["trial"].pk == list_generated_trials(judged)[2].pk)
    assert row["disagreement"].n == 4
    assert row["disagreement"].size == max(one.value for one in row["verdicts"][:4]) - min(
        one.value for one in row["verdicts"][:4]
    )
    assert (row["verdicts"][-1].rater.kind_label, row["verdicts"][-1].value) == ("Adjudicated", 7)
