"""Adaptive rounds of ratings: a point is one dimension and stops when the interval of its mean is narrow enough."""

import statistics

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.models import Run
from tests import factories
from tests.factories.engine import build_reply, drain
from tests.integration.engine.test_adaptive_rounds import make_questions

ADAPTIVE = {"by": "category", "scorer": "rating", "round": 8, "max": 64, "targetci": 0.9}


def launch_ratings(n=64, *, adaptive=ADAPTIVE, samples=1, **fields):
    """Launch an experiment with one category, rated for valence and arousal."""
    team = factories.make_team()
    experiment = factories.make_experiment(
        "rounds",
        owner=team.owner,
        dataset=factories.make_dataset("places", make_questions(n, "calm")),
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")],
        prompts=[factories.make_prompt(user="{{dimension}}: {{input}}")],
        samples=samples,
        adaptive=adaptive,
        scorers=[adaptive["scorer"]],
        **{"max_usd": None, "cache": False, **fields},
    )
    run_control.launch(experiment, by=experiment.owner)
    return Run.objects.get()


def answer_ratings(rate, **fields):
    """Return a provider that answers with `rate(dimension, item number)`."""

    async def call(request):
        question = request.messages[-1]["content"]
        return build_reply(
            str(rate("arousal" if "arousal" in question else "valence", int(question.split()[-1]))), **fields
        )

    return call


def spread_by_dimension(dimension, item):
    return 4 if dimension == "valence" else (1, 7)[item % 2]


def get_points(run):
    return {point.label: point for point in run.points.select_related("dimension")}


def test_a_launch_plans_the_first_round_of_each_dimension(transactional_db):
    run = launch_ratings()
    assert {label: point.n_planned for label, point in get_points(run).items()} == {
        "calm, valence": 8,
        "calm, arousal": 8,
    }
    assert set(run.trials.values_list("dimension__name", flat=True)) == {"valence", "arousal"}
    assert run.n_pending == 16


def test_ratings_with_less_spread_reach_the_target_interval_earlier(transactional_db):
    run = launch_ratings()
    drain(answer_ratings(spread_by_dimension))

    valence, arousal = get_points(run)["calm, valence"], get_points(run)["calm, arousal"]
    # The interval after eight equal ratings is ±1.15, too wide; sixteen are enough.
    assert [round["status"] for round in valence.rounds] == ["open", "enough"]
    assert (valence.n_planned, valence.n_total, valence.n_rated_items) == (16, 16, 16)
    assert (valence.mean, valence.spread) == (4, 0)
    assert valence.reason == "the interval is ±0.6442 after 16 cases, within ±0.9"
    assert (arousal.status, arousal.n_planned) == ("enough", 48)
    ratings = run.trials.filter(dimension__name="arousal", status="done").values_list("rating", flat=True)
    assert arousal.mean == pytest.approx(statistics.fmean(ratings))
    run.refresh_from_db()
    assert (run.status, run.n_done) == ("done", 16 + 48)
    assert find_differences() == []


def test_an_items_repetitions_are_averaged_and_count_once(transactional_db):
    run = launch_ratings(4, samples=4, adaptive={**ADAPTIVE, "max": 16})
    drain(answer_ratings(lambda dimension, item: 1 + item))

    point = get_points(run)["calm, valence"]
    assert (point.status, point.n_total, point.n_rated_items, point.mean) == ("exhausted", 16, 4, 2.5)
    assert point.spread == pytest.approx(statistics.stdev([1, 2, 3, 4]))
    assert len({round["half_width"] for round in point.rounds}) == 1  # Repetitions do not narrow the interval.


def test_truncated_answers_abort_a_point_and_unreadable_answers_are_counted_separately(transactional_db):
    run = launch_ratings(16, adaptive={**ADAPTIVE, "abortht": 0.4, "max": 16})

    async def call(request):
        question = request.messages[-1]["content"]
        if "arousal" in question:
            return build_reply("4", finish_reason="length")
        return build_reply("I would rather not say")

    drain(call)
    valence, arousal = get_points(run)["calm, valence"], get_points(run)["calm, arousal"]
    assert (arousal.status, arousal.n_truncated, arousal.mean) == ("aborted", 8, None)
    assert (valence.status, valence.n_unread, valence.n_total) == ("exhausted", 16, 0)
    assert valence.interval(0.95, "mapped") is None


@pytest.mark.slow
def test_a_dimension_is_decided_even_if_the_other_has_no_answers(transactional_db):
    run = launch_ratings()
    run.trials.filter(dimension__name="arousal").update(status="cancelled")
    factories.refresh_counters(run)
    drain(answer_ratings(spread_by_dimension))
    assert get_points(run)["calm, valence"].status == "enough"
