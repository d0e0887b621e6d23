"""Length against score: correlation within conditions, scores by length bin, win share of longer answers."""

import random

import numpy as np
import pytest
from django.core.cache import cache
from django.urls import reverse

from grading_app.models import CachedAggregate, GradeCondition, Grading, Preference, Rubric
from grading_app.models.gradings import allow_superseding
from grading_app.results.raters import verdict_stats
from grading_app.results.raters.length_bias import measure_length_bias
from grading_app.tasks import compute_aggregates
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.page_text import page_text

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_lengths(words):
    """Return two models' four answers to each of twelve items, each `words(model, item, sample)` long."""
    models = [factories.make_model("small"), factories.make_model("large")]
    experiment = factories.make_experiment(
        "pilot", dataset=factories.make_dataset("pilot-items", 12), models=models, samples=4
    )
    for run in factories.make_runs(experiment):
        name = run.condition.model.name
        factories.plan_trials(run, answer=lambda item, _, index, name=name: "word " * words(name, item, index))
    return experiment


def write_longer_for_the_large_model(draw):
    return lambda model, item, index: 8 if index == 0 else {"small": 10, "large": 40}[model] + draw.randrange(10)


@pytest.fixture
def experiment():
    """Let the large model write longer and better answers. Within a model, length and score are independent."""
    return make_lengths(write_longer_for_the_large_model(random.Random(3)))


def score_by_model(trial):
    name = trial.run.condition.model.name
    return {"small": 2.0, "large": 6.0}[name] + (5 * trial.item.position + 3 * trial.sample_idx) % 7 % 2


def list_length_score_pairs(condition):
    rows = Grading.objects.filter(condition=condition).select_related("trial__run")
    bias = {}
    for one in rows:
        bias.setdefault(one.trial.run.condition_id, []).append((len(one.trial.answer), one.score))
    return {key: np.array(pairs) for key, pairs in bias.items()}


def test_the_correlation_uses_deviations_from_the_means_of_each_condition(experiment):
    judge = make_gradings(experiment, "judge-a", score_by_model)
    judge.refresh_from_db()
    bias, groups = measure_length_bias(judge), list_length_score_pairs(judge)
    pooled = np.vstack(list(groups.values()))
    centred = np.vstack([rows - rows.mean(axis=0) for rows in groups.values()])
    assert bias.r == pytest.approx(np.corrcoef(pooled.T)[0, 1])
    assert bias.within == pytest.approx((centred[:, 0] @ centred[:, 1]) / np.sqrt((centred**2).sum(axis=0).prod()))
    assert bias.r > 0.5
    assert abs(bias.within) < 0.3
    assert bias.n == 96


def test_each_answer_is_in_exactly_one_bin_and_bins_store_means(experiment):
    judge = make_gradings(experiment, "judge-a", score_by_model)
    judge.refresh_from_db()
    bias = measure_length_bias(judge)
    assert {of: sum(one.n for one in bins.values()) for of, bins in bias.bins.items()} == {
        of: len(rows) for of, rows in list_length_score_pairs(judge).items()
    }
    for of, rows in list_length_score_pairs(judge).items():
        for index, one in bias.bins[of].items():
            low, high = bias.edges[index]
            inside = rows[(rows[:, 0] >= low) & (rows[:, 0] <= high)]
            assert (one.n, one.length, one.score) == (len(inside), *map(pytest.approx, inside.mean(axis=0)))


def test_answers_of_equal_length_have_no_correlation():
    experiment = make_lengths(lambda *_: 5)
    bias = measure_length_bias(make_gradings(experiment, "judge-a", score_by_model))
    assert (bias.r, bias.within, len(bias.edges)) == (None, None, 1)


@pytest.mark.slow
def test_a_worker_reads_large_numbers_of_answers_and_the_page_shows_the_time(client, experiment, monkeypatch):
    queries = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: queries.append((name, arguments)))
    monkeypatch.setattr(verdict_stats, "MAX_VERDICTS_PER_REQUEST", 95)
    judge = make_gradings(experiment, "judge-a", score_by_model)
    client.force_login(experiment.owner)
    address = reverse("grading_length", args=["pilot"])
    for _ in range(2):
        text = client.get(address).content.decode()
        assert "A worker is calculating the results (step 1 of 2: waiting for a worker)" in text
        assert 'hx-trigger="every 3s"' in text
    assert queries == [("grading_app.tasks.compute_aggregates", ([CachedAggregate.objects.get().pk],))]
    assert client.get(reverse("figure_file", args=["pilot", "length", "svg"])).status_code == 404
    compute_aggregates(*queries.pop()[1])
    page = client.get(address)
    judge.refresh_from_db()
    assert page.context["lengths"] == measure_length_bias(judge)
    assert "Includes all verdicts" in page.content.decode()
    assert client.get(page.context["figure"]["address"]).content.startswith(b"<svg")
    with allow_superseding():
        Grading.objects.filter(pk=Grading.objects.first().pk).update(score=1)
    assert "Out of date: includes verdicts until" in client.get(address).content.decode()
    CachedAggregate.objects.update(requested_at=factories.NOON, ended_at=factories.NOON)
    assert (
        "A worker is calculating newer results (step 1 of 2: waiting for a worker)"
        in client.get(address).content.decode()
    )
    assert len(queries) == 1


def make_preferences(experiment, winner):
    rubric = make_scale_rubric("pairs", kind=Rubric.Kind.PAIRWISE)
    condition = GradeCondition.objects.create(
        experiment=experiment, grade_condition_id="duel", kind="judge", rubric=rubric
    )
    first, second = (run.trials.order_by("pk") for run in experiment.answer_runs.order_by("pk"))
    rows = [
        Preference(condition=condition, trial_a=a, trial_b=b, judged_by_id=index + 1, winner=winner(index, a, b))
        for index, (a, b) in enumerate(zip(first, second, strict=True))
    ]
    Preference.objects.bulk_create(rows)
    condition.refresh_from_db()
    return condition


def test_the_win_share_of_longer_answers_excludes_ties_and_equal_lengths(client, experiment):
    def winner(index, a, b):
        if index % 5 == 0:
            return "tie"
        longer = "a" if len(a.answer) > len(b.answer) else "b"
        return longer if index % 3 else {"a": "b", "b": "a"}[longer]

    condition = make_preferences(experiment, winner)
    rows = list(Preference.objects.select_related("trial_a", "trial_b"))
    decided = [one for one in rows if one.winner != "tie" and len(one.trial_a.answer) != len(one.trial_b.answer)]
    won = [(one.winner == "a") == (len(one.trial_a.answer) > len(one.trial_b.answer)) for one in decided]
    bias = measure_length_bias(condition)
    assert bias.share.n == len(decided)
    assert bias.share.share == pytest.approx(np.mean(won))
    assert bias.share.low < bias.share.share < bias.share.high
    assert bias.ties + bias.equal + bias.share.n == len(rows)
    assert bias.equal > 0
    client.force_login(experiment.owner)
    page = client.get(reverse("grading_length", args=["pilot"]), {"by": condition.pk})
    assert f"of {len(decided)} verdicts on" in page_text(page)


@pytest.mark.slow
def test_the_url_selects_a_condition_and_its_figure_is_svg(client, experiment):
    first, second = (
        make_gradings(experiment, "judge-a", score_by_model),
        make_gradings(experiment, "judge-bb", lambda trial: 4.0),
    )
    client.force_login(experiment.owner)
    page = client.get(reverse("grading_length", args=["pilot"]), {"by": second.pk})
    assert page.context["chosen"] == second
    assert client.get(reverse("grading_length", args=["pilot"])).context["chosen"] == first
    picture = client.get(page.context["figure"]["address"])
    assert picture.content.startswith(b"<svg")
    assert client.get(page.context["figure"]["narrow"]).status_code == 200
    assert "do not exist" in client.get(reverse("grading_length", args=["pilot"]), {"by": "77777"}).content.decode()
    assert client.get(reverse("figure_file", args=["pilot", "length", "svg"]), {"by": "x"}).status_code == 404


def test_the_number_of_queries_does_not_grow_with_conditions(client, experiment, django_assert_max_num_queries):
    for index in range(6):
        make_gradings(experiment, "judge-" + "x" * index, score_by_model)
    client.force_login(experiment.owner)
    with django_assert_max_num_queries(20):
        page = client.get(reverse("grading_length", args=["pilot"]))
    assert page.status_code == 200
    assert len(page.context["choices"]) == 6
