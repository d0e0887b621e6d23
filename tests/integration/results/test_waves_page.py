"""Two waves side by side: differences by item, outcomes of trials, and served models."""

import csv
import io
import re

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from grading_app.models import GradeCondition, Grading
from grading_app.results.waves import compare_scores, find_pooled_waves
from runs_app.models import Condition, Trial
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.factories.queues import make_answer_queue, make_rater, make_rubric_queue, rate_all
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db

# Right repetitions, of two, of each of six items: (first wave, second wave).
RIGHT = [(2, 2), (2, 0), (1, 0), (2, 1), (0, 0), (2, 1)]


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def observe(experiment, number, right, *, order=(0, 1), **fields):
    for run in factories.make_runs(experiment, wave=number):
        factories.plan_trials(
            run,
            answer=lambda item, _, at: {
                "answer": item.target if order[at] < right[item.position] else "none",
                **fields,
            },
        )


@shared_rows
def experiment():
    """Return two waves, graded 0 or 1 by a rule. The second wave was served by another model and scored worse."""
    created = factories.make_experiment(samples=2, scorers=["exact_match"], dataset=factories.make_dataset(items=6))
    observe(created, 0, [first for first, _ in RIGHT], served_model="vendor/small-1", served_provider="one")
    observe(created, 1, [second for _, second in RIGHT], served_model="vendor/small-2", served_provider="one")
    grade(created, by="a test")
    return created


def open_waves(client, experiment, **query):
    client.force_login(experiment.owner)
    return client.get(reverse("experiment_waves", args=[experiment.slug]), query)


def compare_waves(experiment, *, turned=False):
    a, b = experiment.waves.all()
    return compare_scores(experiment, b, a) if turned else compare_scores(experiment, a, b)


def test_differences_are_computed_by_item_over_repetitions(experiment):
    """By hand: means 9/12 and 4/12; differences 0, -1, -1/2, -1/2, 0, -1/2, whose four signs agree: p = 2 / 2**4."""
    (line,) = compare_waves(experiment)
    change = line.change
    assert (line.mean_a, line.mean_b, change.mean) == pytest.approx((9 / 12, 4 / 12, -5 / 12))
    assert (change.n, change.test, change.p, line.adjusted) == (6, "sign flips", 2 / 16, 2 / 16)
    assert change.se == pytest.approx(((1.75 - 6 * (5 / 12) ** 2) / 5 / 6) ** 0.5)
    assert (line.measure.is_share, line.unpaired, line.has_drifted) == (True, 0, False)


def test_swapping_the_waves_reverses_the_difference(experiment):
    (line,), (turned,) = compare_waves(experiment), compare_waves(experiment, turned=True)
    assert (turned.mean_a, turned.change.mean) == (line.mean_b, -line.change.mean)
    assert (turned.change.p, turned.change.low) == (line.change.p, pytest.approx(-line.change.high))


def test_the_order_of_repetitions_does_not_matter(experiment):
    turned = factories.make_experiment(
        "turned", samples=2, scorers=["exact_match"], owner=experiment.owner, dataset=experiment.dataset
    )
    for number in (0, 1):
        observe(turned, number, [right[number] for right in RIGHT], order=(1, 0))
    grade(turned, by="a test")
    (line,), (other,) = compare_waves(experiment), compare_waves(turned)
    assert (other.change, other.mean_a, other.mean_b) == (line.change, line.mean_a, line.mean_b)


def test_ratings_are_compared_on_each_dimension_and_items_without_a_pair_are_counted(db):
    created = factories.make_experiment(
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")],
        dataset=factories.make_dataset(items=4),
        models=[factories.make_model("small"), factories.make_model("large")],
    )
    for number in (0, 1):
        for run in factories.make_runs(created, wave=number):
            factories.plan_trials(run, answer=lambda item, dimension, _, by=number: make_rating(item, dimension, by))
    lines = compare_waves(created)
    assert [(line.measure.label, line.condition) for line in lines] == [
        ("Valence", None), ("Valence", "large"), ("Valence", "small"),
        ("Arousal", None), ("Arousal", "large"), ("Arousal", "small"),
    ]  # fmt: skip
    for line in lines[:3]:
        assert (line.change.n, line.change.mean, line.unpaired, line.change.p) == (3, 1.0, 1, 0.25)
    assert [line.unread_b for line in lines[:3]] == [2, 1, 1]
    assert [line.adjusted for line in lines[:3]] == [0.5, 1.0, 1.0]  # Two sums over conditions, four single ones.
    assert {(line.change.n, line.change.mean, line.unpaired, line.change.p) for line in lines[3:]} == {(4, 0.0, 0, 1.0)}


def make_rating(item, dimension, wave):
    """Return one point more on valence in the second wave, in which the last item's rating is unreadable."""
    if dimension.name == "arousal":
        return {"rating": 3, "answer": "3"}
    if wave and item.position == 3:
        return {"answer": "none", "parse_error": "no_rating"}
    return {"rating": 2 + item.position + wave, "answer": "x"}


def test_the_page_shows_numbers_answers_and_a_changed_model(client, experiment):
    page = open_waves(client, experiment)
    text = page.content.decode()
    for expected in ("−41.7 pp", "sign flips", ".125", "12 of 12", "vendor/small-2", "Served differently in wave-1"):
        assert expected in text, expected
    assert text.count("(changed)") == 2  # The model in either wave; the provider is the same.
    assert "On items like these, no difference from first wave to wave-1 is significant" in text


def test_a_significant_drift_is_reported(client):
    created = factories.make_experiment(samples=2, scorers=["exact_match"], dataset=factories.make_dataset(items=20))
    observe(created, 0, [2] * 20)
    observe(created, 1, [1] * 19 + [2])
    grade(created, by="a test")
    text = open_waves(client, created).content.decode()
    assert "1 of 1 difference is significant" in " ".join(text.split())
    assert "paired t" in text
    assert '<div class="cell">drift</div>' in text


def test_the_tables_are_files_with_the_numbers_of_the_comparison(client, experiment):
    (line,) = compare_waves(experiment)
    (row,) = csv.DictReader(io.StringIO(open_waves(client, experiment, table="shares", format="csv").content.decode()))
    assert float(row["mean_a"]) == line.mean_a
    assert float(row["difference"]) == line.change.mean
    assert (float(row["interval_low"]), float(row["p"])) == (line.change.low, line.change.p)
    file = open_waves(client, experiment, table="outcomes", format="csv", a="0", b="1").content.decode()
    rows = list(csv.DictReader(io.StringIO(file)))
    assert [(one["wave"], one["done"], one["done_total"]) for one in rows] == [
        ("first wave", "12", "12"), ("wave-1", "12", "12")
    ]  # fmt: skip
    assert open_waves(client, experiment, table="means", format="csv").status_code == 404


def test_the_choice_is_in_the_url(client, experiment):
    assert "+41.7 pp" in open_waves(client, experiment, a="wave-1", b="0").content.decode()
    assert "Both sides show the same wave" in open_waves(client, experiment, a="0", b="0").content.decode()
    assert open_waves(client, experiment, a="elsewhere").status_code == 404
    assert open_waves(client, experiment, b="7").status_code == 404


def test_one_wave_or_no_shared_item_shows_a_message(client):
    created = factories.make_experiment(scorers=["exact_match"], dataset=factories.make_dataset(items=2))
    observe(created, 0, [1, 1])
    assert "Nothing to compare yet" in open_waves(client, created).content.decode()
    (run,) = factories.make_runs(created, wave=1)
    factories.plan_trials(run)
    assert "Not graded yet" in open_waves(client, created).content.decode()
    grade(created, by="a test")
    text = open_waves(client, created).content.decode()
    assert "No item has a score in both waves" in text
    assert "0 of 2" in text


def test_new_grades_appear_immediately(client, experiment):
    open_waves(client, experiment)
    grade(experiment, scorers=["numeric"], by="a test")
    assert "Number within tolerance" in open_waves(client, experiment).content.decode()


def test_other_users_get_404(client, experiment):
    client.force_login(factories.make_user("viewer", permissions.VIEWER))
    assert client.get(reverse("experiment_waves", args=[experiment.slug])).status_code == 404


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_conditions(client, experiment):
    def count_queries(measured):
        cache.clear()
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert open_waves(client, measured).status_code == 200
        return len(captured)

    few = count_queries(experiment)
    wide = factories.make_experiment(
        "wide", samples=2, scorers=["exact_match"], owner=experiment.owner,
        models=[factories.make_model(f"model-{number}") for number in range(5)],
        dataset=factories.make_dataset("more", items=6),
    )  # fmt: skip
    for number in (0, 1):
        observe(wide, number, [1] * 6)
    grade(wide, by="a test")
    assert count_queries(wide) <= few


@pytest.mark.slow
def test_rubric_ratings_by_people_are_compared_by_queue_and_other_ratings_are_named(client):
    """Three raters rate both waves, the second two points lower; one rater is excluded."""
    created = factories.make_experiment(dataset=factories.make_dataset(items=6))
    for number in (0, 1):
        observe(created, number, [1] * 6)
    queue = make_rubric_queue("score", experiment=created, answers_each=2, raters_wanted=3)
    for more in (0, 1, -1):
        rater = make_rater(queue, started=True)
        rate_all(rater, lambda due, more=more: 4 + more - 2 * due.trial.run.wave.number)
    rater.exclude(by=queue.owner, reason="did not read")
    (line,) = compare_waves(created)
    assert line.measure.label == "Strict score (people of reading, mean of 2 raters per answer)"
    assert (line.mean_a, line.mean_b, line.change.mean, line.change.n, line.unpaired) == (4.5, 2.5, -2.0, 6, 0)
    text = open_waves(client, created).content.decode()
    assert "1 of 1 difference is significant" in " ".join(text.split())
    assert "the mean over an answer's raters, without excluded raters" in text
    assert "rated answers on dimensions" not in text
    other = make_answer_queue("goodness", experiment=created)
    rate_all(make_rater(other, started=True))
    text = open_waves(client, created).content.decode()
    assert "People who rated answers on dimensions (goodness) are compared on" in text
    wave = created.waves.get(number=1)
    assert f"/agreement/?wave={wave.pk}" in text
    assert client.get(reverse("experiment_agreement", args=[created.slug]), {"wave": wave.pk}).context["selection"]


def test_the_page_names_the_interval_and_says_that_a_judge_may_have_changed(client):
    created = factories.make_experiment(samples=2, dataset=factories.make_dataset(items=20))
    observe(created, 0, [2] * 20)
    observe(created, 1, [1] * 19 + [2])
    make_gradings(created, "strict", lambda trial: float(trial.item.position % 4 > 0), rubric=make_scale_rubric())
    text = page_text(open_waves(client, created))
    assert "Intervals: " in text
    assert "A score by a judge can change because the judge&#x27;s own model changed" in text.replace("'", "&#x27;")


def test_scores_by_rules_have_no_note_on_judges(client, experiment):
    assert "A score by a judge" not in page_text(open_waves(client, experiment))


def make_judged(experiment, name, score, served, **fields):
    """Grade all answers by a judge. served: the model that answered the judge's calls, by the number of the wave."""
    graded = make_gradings(experiment, name, score, rubric=make_scale_rubric(f"{name}-rubric", low=0, high=1))
    condition = Condition.objects.create(
        experiment=experiment, stage="judge", model=factories.make_model("judge"),
        sampler=factories.make_sampler(f"{name}-sampler"), condition_id=f"{name}--1", content={},
    )  # fmt: skip
    for wave in experiment.waves.all():
        run = experiment.runs.create(condition=condition, wave=wave, status="done")
        Trial.objects.create(
            run=run, item=experiment.dataset.items.first(), sample_idx=0, status="done", answer="{}",
            served_model=served[wave.number],
        )  # fmt: skip
    GradeCondition.objects.filter(pk=graded.pk).update(judge_condition=condition)
    return graded


@pytest.fixture
def stable():
    """Return two waves with the same right answers, of which a judge sees fewer in the second one."""
    created = factories.make_experiment(samples=2, scorers=["exact_match"], dataset=factories.make_dataset(items=20))
    for number in (0, 1):
        observe(created, number, [2] * 20)
    grade(created, by="a test")
    return created


def test_a_judge_whose_model_changed_between_the_waves_shows_no_drift_of_the_model(client, stable):
    make_judged(stable, "strict", lambda trial: float(not trial.run.wave.number), served=("judge-1", "judge-2"))
    text = page_text(open_waves(client, stable))
    assert "The judge changed from first wave to wave-1: other models or providers served" in text
    assert "On items like these, no difference from first wave to wave-1 is significant" in text
    assert "−100.0 pp" in text
    assert "judge changed" in text
    assert '<span class="chip">drift</span>' not in text
    rule, judge = sorted(compare_waves(stable), key=lambda line: line.judge_has_changed)
    assert (rule.has_drifted, judge.has_drifted) == (False, False)
    assert judge.adjusted < 0.001, "the test itself is significant"
    pooled = " ".join(find_pooled_waves(stable, None).sentences)
    assert "The judge changed between first wave and wave-1, so its scores show no drift" in pooled
    assert "No other score differs significantly" in pooled


def test_a_judge_that_stayed_the_same_shows_drift(client, stable):
    make_judged(stable, "strict", lambda trial: float(not trial.run.wave.number), served=("judge-1", "judge-1"))
    text = page_text(open_waves(client, stable))
    assert "The judge changed" not in text
    assert "1 of 2 differences is significant" in text


def test_waves_with_different_rubrics_are_not_compared_and_the_page_says_that_the_judge_changed(client, stable):
    for number, name in enumerate(("strict", "lenient")):
        rubric = make_scale_rubric(f"{name}-rubric", low=0, high=1)
        judge = GradeCondition.objects.create(
            experiment=stable, grade_condition_id=f"{name}--1", kind="judge", rubric=rubric
        )
        of_wave = Trial.objects.filter(run__experiment=stable, run__wave__number=number)
        Grading.objects.bulk_create(
            Grading(trial=trial, condition=judge, score=float(number), parse_ok=True) for trial in of_wave
        )
    text = page_text(open_waves(client, stable))
    assert re.search(
        "The judge changed: [^.]*strict[^.]* graded first wave alone, and [^.]*lenient[^.]* graded wave-1", text
    )
    assert "Scores of different judges are not compared." in text
    assert '<span class="chip">drift</span>' not in text
    assert [line.change is None for line in compare_waves(stable)] == [False, True, True]
