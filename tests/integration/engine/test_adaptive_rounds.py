"""Adaptive rounds: each point runs until its rule stops it; unplanned cases are never reserved."""

import threading
from decimal import Decimal

import pytest
from django.db import connections, transaction

from evalsite.lib.stats import wilson
from grading_app.grading import adaptive_decisions
from grading_app.grading.consistency_check import find_differences
from grading_app.models import Grading
from runs_app import deletion, run_control
from runs_app.engine import adaptive_rounds
from runs_app.engine.run_lifecycle import finish_runs
from runs_app.engine.worker import has_work_left
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Endpoint, Experiment, Point, Run, Trial
from tests import factories
from tests.factories.engine import build_reply, drain
from tests.integration.engine.test_lock_waits import run_in_another_session

ADAPTIVE = {"by": "category", "scorer": "exact_match", "round": 8, "max": 40, "targetci": 0.2}


def make_questions(n, category, **fields):
    return [
        {
            "key": f"{category}-{i}",
            "input": f"{category} question {i}",
            "target": "right",
            "category": category,
            **fields,
        }
        for i in range(n)
    ]


def make_rounds_experiment(items, *, samples=1, adaptive=ADAPTIVE, **fields):
    team = factories.make_team()
    return factories.make_experiment(
        "rounds",
        owner=team.owner,
        dataset=factories.make_dataset("places", items),
        samples=samples,
        adaptive=adaptive,
        scorers=[adaptive["scorer"]],
        **{"max_usd": None, "cache": False, **fields},
    )


def launch(experiment, **how):
    run_control.launch(experiment, by=experiment.owner, **how)
    return Run.objects.get(experiment=experiment)


def answer_by_rule(right, **fields):
    """Return a provider that answers correctly if `right(question)`."""

    async def call(request):
        question = request.messages[-1]["content"]
        return build_reply("right" if right(question) else "wrong", cost_usd=Decimal("0.001"), **fields)

    return call


def is_even(question):
    return int(question.split()[-1]) % 2 == 0


def is_answered_right(question):
    return question.startswith("easy") or is_even(question)


class Crash(Exception):
    """A simulated crash of the worker."""


def answer_a_round_and_crash():
    """Simulate a worker that dies between recording its answers and deciding the points."""

    def crash(lookout):
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive_rounds.RoundScheduler, "decide_if_due", lambda scheduler: 0)
        patch.setattr(adaptive_rounds.RoundScheduler, "decide_now", crash)
        with pytest.raises(Crash):
            drain(answer_by_rule(is_answered_right))


def get_points(run):
    return {point.label: point for point in run.points.defer("items")}


@pytest.fixture
def experiment(transactional_db):
    return make_rounds_experiment(make_questions(40, "easy") + make_questions(40, "hard"))


def test_a_launch_plans_only_the_first_round_of_each_point(experiment):
    run = launch(experiment)
    assert run.n_pending == 16
    assert {(point.label, point.n_planned, point.status) for point in run.points.all()} == {
        ("easy", 8, "open"),
        ("hard", 8, "open"),
    }


def test_a_decided_point_stops_and_the_other_continues(experiment):
    run = launch(experiment)
    drain(answer_by_rule(is_answered_right))

    easy, hard = get_points(run).values()
    # Eight of eight right is known to within .162; half right takes 24 cases to be known to within .2 (.186).
    assert (easy.status, easy.n_planned, easy.n_correct, easy.n_total) == ("enough", 8, 8, 8)
    assert hard.n_planned == len(hard.rounds) * 8 > 16
    assert (hard.status, hard.half_width <= 0.2) == ("enough", True)
    assert hard.reason == f"the interval is ±{hard.half_width:.4f} after {hard.n_total} cases, within ±0.2"
    assert [round_data["status"] for round_data in hard.rounds] == ["open"] * (len(hard.rounds) - 1) + ["enough"]
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_pending) == ("done", 8 + hard.n_planned, 0)
    assert find_differences() == []


def test_unplanned_cases_are_neither_spent_nor_reserved(experiment):
    run = launch(experiment)
    drain(answer_by_rule(is_answered_right))

    experiment.refresh_from_db()
    n_planned = sum(point.n_planned for point in run.points.all())
    assert n_planned < 80
    assert run.trials.count() == n_planned
    assert experiment.spent_usd == n_planned * Decimal("0.001")
    assert experiment.reserved_usd == 0


def test_every_condition_gets_the_same_cases_in_the_same_order(transactional_db):
    experiment = make_rounds_experiment(make_questions(40, "easy"))
    experiment.language_models.add(factories.make_model("other"))
    run_control.launch(experiment, by=experiment.owner)
    first_run, second_run = Run.objects.filter(experiment=experiment)
    assert first_run.points.get().items == second_run.points.get().items
    assert first_run.points.get().items != sorted(first_run.points.get().items)
    assert set(first_run.trials.values_list("item", "sample_idx")) == set(
        second_run.trials.values_list("item", "sample_idx")
    )


def test_a_smaller_number_of_cases_is_a_prefix_of_a_larger_one(transactional_db):
    experiment = make_rounds_experiment(make_questions(40, "easy"))
    run = launch(experiment)
    point = run.points.get()
    assert list(run.trials.order_by("pk").values_list("item", flat=True)) == point.items[:8]
    drain(answer_by_rule(lambda question: True))
    Experiment.objects.update(adaptive={**ADAPTIVE, "round": 8, "targetci": 0.01})
    Point.objects.update(status="open")
    Run.objects.update(status="running")
    drain(answer_by_rule(lambda question: True))
    item_ids = list(run.trials.order_by("pk").values_list("item", flat=True))
    assert item_ids == point.items


def test_items_repeat_only_after_all_items_and_then_the_point_is_exhausted(transactional_db):
    experiment = make_rounds_experiment(make_questions(5, "hard"), samples=3)
    run = launch(experiment)
    assert sorted(run.trials.values_list("sample_idx", flat=True)) == [0] * 5 + [1] * 3
    drain(answer_by_rule(is_even))
    point = run.points.get()
    assert (point.status, point.n_planned, point.n_total) == ("exhausted", 15, 15)
    reason = "after 15 cases (worth 5 answers to different items), the maximum; the target is ±0.2"
    assert point.reason.endswith(reason)
    # Each item is right three times or never, so the interval is that of 5 answers.
    interval = point.interval(0.95, "mapped")
    assert (point.effective_n, interval.margin) == (pytest.approx(5), pytest.approx(point.half_width))
    assert interval.margin == pytest.approx(wilson(point.n_correct / 3, 5).margin)


@pytest.mark.slow
def test_more_samples_reopen_an_exhausted_point(transactional_db):
    experiment = make_rounds_experiment(make_questions(5, "hard"), samples=3)
    run = launch(experiment)
    drain(answer_by_rule(is_even))
    Experiment.objects.update(samples=8)
    launch(Experiment.objects.get())
    run.refresh_from_db()
    assert (run.status, run.n_pending) == ("running", 8)
    drain(answer_by_rule(is_even))
    assert run.points.get().n_total > 15
    assert find_differences() == []


def test_guess_chances_of_choices_widen_the_interval(transactional_db):
    experiment = make_rounds_experiment(make_questions(40, "easy", choices=["right", "wrong"]))
    run = launch(experiment)
    drain(answer_by_rule(lambda question: True))
    point = run.points.get()
    assert point.guess_chances == point.n_total / 2
    assert point.n_planned > 8  # Without choices eight were enough.


def test_truncated_answers_are_counted_separately_and_can_abort_a_point(transactional_db):
    experiment = make_rounds_experiment(make_questions(40, "easy"), adaptive={**ADAPTIVE, "abortht": 0.5})
    run = launch(experiment)
    drain(answer_by_rule(lambda question: True, finish_reason="length"))
    point = run.points.get()
    assert (point.status, point.n_truncated, point.n_total, point.n_planned) == ("aborted", 8, 0, 8)
    assert point.reason == "8 of 8 answers were truncated (100.0%), above the limit of 50.0%"


def test_unreadable_answers_do_not_count_as_cases(transactional_db):
    experiment = make_rounds_experiment(make_questions(40, "easy"), adaptive={**ADAPTIVE, "scorer": "multiple_choice"})
    run = launch(experiment)
    drain(answer_by_rule(lambda question: False))
    point = run.points.get()
    assert (point.status, point.n_unread, point.n_total) == ("exhausted", 40, 0)


@pytest.mark.parametrize(("on_empty", "scored", "unread"), [("keep", 8, 0), ("skip", 4, 4)])
def test_blank_answers_count_as_cases_only_if_they_are_graded(transactional_db, on_empty, scored, unread):
    experiment = make_rounds_experiment(make_questions(8, "easy"), adaptive={**ADAPTIVE, "max": 8}, on_empty=on_empty)
    run = launch(experiment)

    async def answer_half_blank(request):
        return build_reply("right" if is_even(request.messages[-1]["content"]) else "")

    drain(answer_half_blank)
    point = run.points.get()
    assert (point.n_correct, point.n_total, point.n_unread) == (4, scored, unread)
    assert Grading.objects.count() == scored


def test_parameters_can_define_points(transactional_db):
    items = [
        {"key": f"k{i}", "input": f"question {i}", "target": "right", "metadata": {"length": 8 * (i % 2), "depth": 1}}
        for i in range(20)
    ]
    run = launch(make_rounds_experiment(items, adaptive={**ADAPTIVE, "by": ["length", "depth"]}))
    assert [point.label for point in run.points.all()] == ["depth 1, length 0", "depth 1, length 8"]
    assert run.n_pending == 16


def test_the_run_is_not_done_while_a_point_is_open(experiment):
    run = launch(experiment)
    answer_a_round_and_crash()
    run.refresh_from_db()
    assert (run.status, run.n_pending + run.n_running) == ("running", 0)
    assert has_work_left()


def test_a_missed_decision_is_made_at_the_next_look(experiment):
    run = launch(experiment)
    answer_a_round_and_crash()
    assert adaptive_decisions.decide_due() == 2
    assert run.points.get(key={"category": "hard"}).n_planned == 16
    assert adaptive_decisions.decide_due() == 0
    assert find_differences() == []


def test_a_decision_that_fails_before_it_is_written_changes_nothing(experiment, monkeypatch):
    run = launch(experiment)
    answer_a_round_and_crash()
    whole = finish_runs

    def broken(run_ids):
        raise KeyboardInterrupt

    monkeypatch.setattr(adaptive_rounds, "finish_runs", broken)
    with pytest.raises(KeyboardInterrupt):
        adaptive_decisions.decide_due()
    assert set(run.points.values_list("status", "n_planned")) == {("open", 8)}
    assert run.trials.count() == 16

    monkeypatch.setattr(adaptive_rounds, "finish_runs", whole)
    drain(answer_by_rule(is_answered_right))
    assert set(run.points.values_list("status", flat=True)) == {"enough"}
    assert find_differences() == []


def test_two_workers_that_decide_concurrently_write_one_decision(experiment, monkeypatch):
    run = launch(experiment)
    answer_a_round_and_crash()
    both_have_looked = threading.Barrier(2, timeout=60)
    settle = adaptive_rounds.write_decisions

    def settle_together(place, judged):
        both_have_looked.wait()
        return settle(place, judged)

    monkeypatch.setattr(adaptive_rounds, "write_decisions", settle_together)
    decided = []

    def decide():
        try:
            decided.append(adaptive_decisions.decide_due())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=decide) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(decided) == [0, 2]
    assert {(len(point.rounds), point.n_planned) for point in run.points.all()} == {(1, 8), (1, 16)}
    assert run.trials.count() == 24
    assert find_differences() == []


def test_the_next_round_is_planned_while_a_worker_holds_the_endpoint(experiment):
    launch(experiment)
    answer_a_round_and_crash()
    with transaction.atomic():
        Endpoint.objects.select_for_update(no_key=True).get()
        assert run_in_another_session(adaptive_decisions.decide_due) == 2
    assert find_differences() == []


def test_a_paused_run_decides_when_it_is_resumed(experiment):
    run = launch(experiment)
    answer_a_round_and_crash()
    run_control.pause(Run.objects.all(), by=experiment.owner)
    assert adaptive_decisions.decide_due() == 0
    run_control.resume(Run.objects.all(), by=experiment.owner)
    drain(answer_by_rule(is_answered_right))
    run.refresh_from_db()
    assert run.status == "done"


def test_points_of_a_cancelled_run_are_closed_with_their_counts(experiment):
    run = launch(experiment)
    answer_a_round_and_crash()
    run_control.cancel(Run.objects.all(), by=experiment.owner)
    assert adaptive_decisions.decide_due() == 2
    assert {(point.label, point.status, point.n_total) for point in run.points.all()} == {
        ("easy", "enough", 8),
        ("hard", "cancelled", 8),
    }
    assert Trial.objects.filter(status="pending").count() == 0


def test_failed_trials_count_towards_the_maximum_and_their_retry_decides_again(transactional_db):
    experiment = make_rounds_experiment(
        make_questions(16, "hard"), adaptive={**ADAPTIVE, "max": 16}, stop_failure_rate=1
    )
    run = launch(experiment)

    async def refuse_call(request):
        raise CallFailure(ErrorClass.BAD_REQUEST, "no", http_status=400)

    drain(refuse_call)
    point = run.points.get()
    assert (point.status, point.n_failed, point.n_total) == ("exhausted", 16, 0)

    run_control.retry_failed(Run.objects.all(), by=experiment.owner)
    drain(answer_by_rule(lambda question: True))
    point = run.points.get()
    assert (point.status, point.n_failed, point.n_total) == ("enough", 0, 16)
    assert len(point.rounds) == 3


def test_an_experiment_is_deleted_with_its_points(experiment):
    launch(experiment)
    drain(answer_by_rule(is_answered_right))
    deletion.delete(experiment, by=experiment.owner)
    assert not Point.objects.exists()


def test_trials_of_a_pilot_are_not_repeated(experiment):
    launch(experiment, pilot=20)
    drain(answer_by_rule(is_answered_right))
    run = launch(experiment)
    planned = Trial.objects.filter(status="pending").count()
    assert 0 < planned < 16
    drain(answer_by_rule(is_answered_right))
    run.refresh_from_db()
    assert run.status == "done"
    assert run.points.filter(status="open").count() == 0
    assert find_differences() == []


def test_an_unreadable_rule_stops_its_run_with_a_reason(experiment):
    run = launch(experiment)
    answer_a_round_and_crash()
    Experiment.objects.update(adaptive={"by": "category"})
    assert adaptive_decisions.decide_due() == 0
    run.refresh_from_db()
    assert run.status == "stopped"
    assert run.stop_reason.startswith("Its rounds cannot be decided: ")
    assert adaptive_rounds.find_due_points() == {}

    run_control.cancel(Run.objects.all(), by=experiment.owner)
    assert adaptive_decisions.decide_due() == 0
    assert set(run.points.values_list("status", flat=True)) == {"cancelled"}
    assert adaptive_rounds.find_due_points() == {}
