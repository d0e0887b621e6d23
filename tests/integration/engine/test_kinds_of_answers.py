"""Blank, truncated, refused and unreadable answers: each is counted, and kept, rerun or skipped by design."""

from dataclasses import replace
from decimal import Decimal

import pytest
from django.db.models import Sum

from grading_app.grading.consistency_check import find_differences
from grading_app.grading.scoring import grade
from grading_app.models import Grading
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Experiment, LedgerEntry, Trial
from tests import factories
from tests.factories.engine import build_provider, build_reply, drain

KINDS = ("empty", "truncated", "refused", "unparsed")


def count_kinds(run):
    sums = LedgerEntry.objects.filter(run=run).aggregate(**{name: Sum(name) for name in KINDS})
    return {name: n for name, n in sums.items() if n}


def answer_in_turn(*replies):
    """Return a provider that gives these replies in order and then repeats the last."""
    remaining = list(replies)

    async def call(request):
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    return call


def test_each_kind_of_answer_is_counted_and_an_answer_can_have_several_kinds(run):
    drain(
        answer_in_turn(
            build_reply(""),
            build_reply("so far", finish_reason="length"),
            build_reply("I would rather not.", refused=True),
            build_reply(" \n\t", finish_reason="length"),
            build_reply("fine"),
        )
    )
    assert count_kinds(run) == {"empty": 2, "truncated": 2, "refused": 1}
    blank = Trial.objects.get(answer="", truncated=True)
    assert (blank.status, blank.raw_response) == ("done", " \n\t"), "what came is kept as it came"
    assert find_differences() == []


def test_an_unreadable_rating_is_counted(transactional_db):
    factories.make_team()
    experiment = factories.make_experiment(
        "rated",
        dimensions=[factories.make_dimension()],
        prompts=[factories.make_prompt(answer_format="rating")],
        max_usd=None,
    )
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    drain(answer_in_turn(build_reply("no idea"), build_reply('{"rating": 3}')))
    assert count_kinds(run) == {"unparsed": 1}
    assert find_differences() == []


def test_kinds_of_cached_answers_are_counted(run, experiment):
    drain(build_provider(""))
    repeated = factories.make_experiment(
        "again",
        dataset=experiment.dataset,
        models=list(experiment.language_models.all()),
        prompts=list(experiment.prompts.all()),
        samplers=list(experiment.samplers.all()),
        samples=2,
    )
    (second,) = factories.make_runs(repeated)
    factories.plan_trials(second)
    drain(build_provider("never asked"))
    assert count_kinds(second) == {"empty": 6}
    assert find_differences() == []


# --- blank answers


def test_by_default_a_blank_answer_is_kept(run):
    assert drain(build_provider("")) == 6
    assert set(Trial.objects.values_list("status", "attempts")) == {("done", 1)}


def test_blank_answers_can_be_rerun_until_an_answer_has_text(run):
    Experiment.objects.update(on_empty="rerun")
    run.trials.exclude(pk=run.trials.first().pk).delete()
    factories.refresh_counters(run)
    Trial.objects.update(not_before=None)
    drain(answer_in_turn(build_reply(" ", cost_usd=None), build_reply("at last")), until_idle=True)
    trial = Trial.objects.get()
    assert (trial.status, trial.answer, trial.attempts, trial.error_class) == ("done", "at last", 2, "")
    first, second = Attempt.objects.order_by("pk")
    assert (first.outcome, first.error_class, first.raw_response, first.input_tokens) == (
        "transient",
        "empty_answer",
        " ",
        10,
    )
    assert (second.outcome, second.empty) == ("ok", False)
    run.refresh_from_db()
    assert run.errors == {"empty_answer": 1}
    assert count_kinds(run) == {}
    assert find_differences() == []


def test_the_last_blank_answer_is_kept_after_the_last_attempt(run):
    Experiment.objects.update(on_empty="rerun", max_attempts=1)
    drain(build_provider(""))
    assert set(Trial.objects.values_list("status", "answer", "error_class")) == {("done", "", "")}
    assert count_kinds(run) == {"empty": 6}
    assert find_differences() == []


def test_a_refusal_is_not_rerun_as_a_blank_answer(run):
    Experiment.objects.update(on_empty="rerun")
    drain(build_provider("", refused=True))
    assert set(Trial.objects.values_list("status", "attempts")) == {("done", 1)}


def test_a_cached_blank_answer_is_not_used_if_blanks_are_rerun(run, experiment):
    drain(build_provider(""))
    repeated = factories.make_experiment(
        "again",
        dataset=experiment.dataset,
        models=list(experiment.language_models.all()),
        prompts=list(experiment.prompts.all()),
        samplers=list(experiment.samplers.all()),
        samples=2,
        on_empty="rerun",
    )
    (second,) = factories.make_runs(repeated)
    factories.plan_trials(second)
    drain(build_provider("this time"))
    assert set(second.trials.values_list("answer", "from_cache")) == {("this time", False)}


@pytest.mark.parametrize(("on_empty", "graded"), [("keep", 6), ("skip", 4)])
def test_blank_answers_can_be_excluded_from_grading(run, experiment, on_empty, graded):
    Experiment.objects.update(on_empty=on_empty)
    drain(answer_in_turn(build_reply(""), build_reply(" "), build_reply("0")))
    experiment.refresh_from_db()
    (report,) = grade(experiment, scorers=["exact_match"], by="a curator")
    assert (report.graded, report.graded_before) == (graded, 0)
    assert Grading.objects.count() == graded
    (repeated,) = grade(experiment, scorers=["exact_match"], by="a curator")
    assert (repeated.graded, repeated.graded_before) == (0, graded)


# --- soft failures, retried at another provider


@pytest.fixture
def router(transactional_db):
    """An OpenRouter endpoint, created before the experiment so that its conditions use it."""
    return factories.make_endpoint(provider="openrouter", provider_routes=["north", "south"])


def test_each_retry_uses_the_next_route_of_the_endpoint(router, run):
    requests = []

    async def fail_soft(request):
        requests.append(request.parameters.get("provider"))
        raise CallFailure(ErrorClass.SOFT_FAILURE, "the model stopped with an error", served_provider="east")

    run.trials.exclude(pk=run.trials.first().pk).delete()
    factories.refresh_counters(run)
    Experiment.objects.update(max_attempts=3, stop_after_attempts=100)
    drain(fail_soft)
    assert requests == [
        None,
        {"order": ["north"], "allow_fallbacks": False},
        {"order": ["south"], "allow_fallbacks": False},
    ]
    assert set(Attempt.objects.values_list("served_provider", "error_class")) == {("east", "soft_failure")}
    assert Attempt.objects.values("request_hash").distinct().count() == 1, "where it went is no part of what was asked"
    assert find_differences() == []


def test_a_retry_leaves_out_the_providers_at_which_the_trial_failed(router, run):
    """The first attempt takes any route. The router names its provider in its own spelling."""
    routes = []

    async def call(request):
        routes.append((request.parameters.get("provider") or {"order": ["any"]})["order"][0])
        if routes[-1] in ("any", "north"):
            raise CallFailure(ErrorClass.SOFT_FAILURE, "the model stopped with an error", served_provider="North")
        return build_reply()

    Experiment.objects.update(max_attempts=2)
    drain(call)
    run.refresh_from_db()
    assert (run.n_done, run.n_failed) == (6, 0)
    assert sorted(routes) == ["any"] * 6 + ["south"] * 6


# --- unreadable ratings


UNREADABLE, RATED = (
    build_reply("no idea", cost_usd=Decimal("0.25")),
    build_reply('{"rating": 3}', cost_usd=Decimal("0.5")),
)


@pytest.fixture
def rated(transactional_db):
    """A run with one rated item that reruns unreadable answers."""
    factories.make_team()
    experiment = factories.make_experiment(
        "rated",
        dataset=factories.make_dataset("one", 1),
        dimensions=[factories.make_dimension()],
        prompts=[factories.make_prompt(answer_format="rating")],
        max_usd=None,
        on_unreadable="rerun",
    )
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    return run


def make_equal_run(run, slug, **fields):
    """Create a run of another experiment with equal requests."""
    previous = run.experiment
    experiment = factories.make_experiment(
        slug,
        dataset=previous.dataset,
        models=list(previous.language_models.all()),
        prompts=list(previous.prompts.all()),
        samplers=list(previous.samplers.all()),
        dimensions=list(previous.dimensions.all()),
        **{"max_usd": None, **fields},
    )
    (other,) = factories.make_runs(experiment)
    factories.plan_trials(other)
    return other


def test_by_default_an_unreadable_answer_is_kept(rated):
    Experiment.objects.update(on_unreadable="keep")
    drain(answer_in_turn(UNREADABLE, RATED))
    trial = Trial.objects.get()
    assert (trial.status, trial.parse_error, trial.attempts) == ("done", "no_rating_found", 1)


def test_unreadable_answers_can_be_rerun_and_keep_their_attempt_and_cost(rated):
    drain(answer_in_turn(UNREADABLE, RATED))
    trial = Trial.objects.get()
    assert (trial.status, trial.rating, trial.attempts, trial.error_class) == ("done", 3, 2, "")
    first, second = Attempt.objects.order_by("pk")
    assert (first.outcome, first.error_class) == ("transient", "unreadable_answer")
    assert (first.raw_response, first.cost_usd) == ("no idea", Decimal("0.25"))
    assert (second.outcome, second.unparsed) == ("ok", False)
    rated.refresh_from_db()
    assert (rated.spent_usd, rated.errors) == (Decimal("0.75"), {"unreadable_answer": 1})
    assert count_kinds(rated) == {}
    assert find_differences() == []


def test_the_last_unreadable_answer_is_kept_after_the_last_attempt(rated):
    Experiment.objects.update(max_attempts=2)
    drain(answer_in_turn(UNREADABLE))
    trial = Trial.objects.get()
    assert (trial.status, trial.answer, trial.parse_error, trial.attempts) == ("done", "no idea", "no_rating_found", 2)
    assert count_kinds(rated) == {"unparsed": 1}
    assert find_differences() == []


@pytest.mark.parametrize("fields", [{"refused": True}, {"text": " ", "raw_text": " "}])
def test_neither_a_refusal_nor_a_blank_answer_is_rerun_as_unreadable(rated, fields):
    drain(answer_in_turn(replace(UNREADABLE, **fields), RATED))
    assert Trial.objects.get().attempts == 1
    assert find_differences() == []


def test_a_cached_unreadable_answer_is_used_only_if_unreadable_answers_are_kept(rated):
    Experiment.objects.update(max_attempts=1)
    drain(answer_in_turn(UNREADABLE))
    keeping = make_equal_run(rated, "kept")
    drain(build_provider("never asked"))
    assert keeping.trials.values_list("answer", "from_cache").get() == ("no idea", True)
    repeated = make_equal_run(rated, "again", on_unreadable="rerun")
    drain(answer_in_turn(RATED))
    assert repeated.trials.values_list("rating", "from_cache").get() == (3, False)
