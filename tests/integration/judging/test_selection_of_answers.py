"""Selection of answers to judge: empty, long, truncated, refused; pairs in both orders; force; counts."""

import re

import pytest
from django.core.management import call_command
from django.urls import reverse

from grading_app.grading.consistency_check import find_differences
from grading_app.grading.judging.judge_plan import ask_judges, request_verdicts
from grading_app.grading.judging.judging_costs import estimate_judging
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grading, Preference
from runs_app import run_control
from runs_app.models import Run, Trial
from runs_app.planning.work import PlanError
from tests import factories
from tests.factories.engine import drain
from tests.factories.judges import build_judge, get_judge_run, make_grader, make_rubric, write_ledger
from tests.factories.tampering import allow_deletions

ODD = {
    "item-0": {"answer": "  \n"},
    "item-1": {"answer": "x" * 50, "truncated": True},
    "item-2": {"answer": "No.", "refused": True},
}


@pytest.fixture
def odd_experiment(transactional_db):
    experiment = factories.make_experiment("pilot", max_usd=None)
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda item, *_: ODD[item.key])
    write_ledger(experiment)
    return experiment


def judge_with(experiment, **fields):
    (report,) = request_verdicts(experiment, [make_grader(**fields)], [experiment.waves.get()], by="test")
    drain(build_judge(1))
    read_verdicts(experiment)
    return report


def read_scores():
    return dict(Grading.objects.values_list("trial__item__key", "score"))


def test_empty_answers_are_left_out_and_counted(odd_experiment):
    report = judge_with(odd_experiment)
    assert read_scores() == {"item-1": 1, "item-2": 1}
    assert (report.added, report.counts.empty, report.counts.truncated, report.counts.refused) == (2, 1, 1, 1)
    assert str(report).endswith("2 verdicts requested; of 3 answers 1 is empty, 1 is truncated, 1 is refused")


def test_empty_answers_are_judged_if_the_grader_includes_them(odd_experiment):
    assert judge_with(odd_experiment, on_empty="grade").added == 3
    assert read_scores()["item-0"] == 1


def test_empty_answers_get_the_lowest_score_without_a_call(odd_experiment):
    report = judge_with(odd_experiment, on_empty="zero", rubric=make_rubric(scale_min=-2, scale_max=3))
    assert (report.added, report.unasked) == (2, 1)
    row = Grading.objects.get(trial__item__key="item-0")
    assert (row.score, row.parse_ok, row.judged_by, row.detail) == (-2, True, None, {"code": "empty_answer"})


@pytest.mark.parametrize("on_empty", ["skip", "grade", "zero"])
def test_an_experiment_that_skips_empty_answers_also_skips_them_in_judging(odd_experiment, on_empty):
    type(odd_experiment).objects.update(on_empty="skip")
    odd_experiment.refresh_from_db()
    report = judge_with(odd_experiment, on_empty=on_empty)
    assert read_scores() == {"item-1": 1, "item-2": 1}
    assert (report.added, report.unasked, report.counts.empty) == (2, 0, 1)


def test_too_long_answers_get_the_lowest_score_without_a_call(odd_experiment):
    report = judge_with(odd_experiment, longest_answer=49)
    assert (report.added, report.unasked, report.counts.too_long) == (1, 1, 1)
    row = Grading.objects.get(trial__item__key="item-1")
    assert (row.score, row.judged_by, row.detail) == (0, None, {"code": "answer_too_long"})
    assert not Trial.objects.filter(subject=row.trial).exists()


def test_truncated_and_refused_answers_are_judged_and_flagged(odd_experiment):
    judge_with(odd_experiment)
    assert Grading.objects.get(trial__item__key="item-1").detail == {"flags": ["truncated"]}
    assert Grading.objects.get(trial__item__key="item-2").detail == {"flags": ["refused"]}


@pytest.mark.slow
def test_force_repeats_calls_and_the_newer_verdict_replaces_the_older(answered, wave):
    grader = make_grader()
    request_verdicts(answered, [grader], [wave], by="test")
    drain(build_judge("I will not say."))
    (report,) = read_verdicts(answered)
    assert report.unread == {"no_json_object": 12}

    request_verdicts(answered, [grader], [wave], by="test")
    assert get_judge_run(answered).n_pending == 0  # Unreadable verdicts are final unless forced.
    (repeated,) = request_verdicts(answered, [grader], [wave], by="test", force=True)
    (twice,) = request_verdicts(answered, [grader], [wave], by="test", force=True)
    assert (repeated.added, twice.added) == (12, 0)  # Pending verdicts are not requested twice.
    drain(build_judge(0.75))
    read_verdicts(answered)
    assert set(Grading.objects.values_list("score", "parse_error")) == {(0.75, "")}
    assert set(Trial.objects.exclude(subject=None).values_list("sample_idx", flat=True)) == {0, 1}
    assert find_differences() == []


def test_rereading_replies_gives_the_same_gradings(answered, wave):
    request_verdicts(answered, [make_grader()], [wave], by="test")
    drain(build_judge(lambda request: 0.25 if "small" in request.model else 0.5))
    read_verdicts(answered)
    columns = ("trial", "judged_by", "score", "score_raw", "parse_ok", "parse_error", "reasoning", "detail")
    before = list(Grading.objects.order_by("trial").values_list(*columns))
    (repeated,) = read_verdicts(answered, again=True)
    assert repeated.read == 12
    assert list(Grading.objects.order_by("trial").values_list(*columns)) == before


def test_later_answers_are_judged_and_earlier_verdicts_stay_unchanged(answered, wave):
    grader = make_grader()
    run = answered.runs.first()
    late = list(run.trials.values_list("pk", flat=True)[:2])
    with allow_deletions():
        Trial.objects.filter(pk__in=late).delete()
    request_verdicts(answered, [grader], [wave], by="test")
    drain(build_judge())
    for item in answered.dataset.items.all()[:1]:
        Trial.objects.create(run=run, item=item, sample_idx=9, **factories.build_done_fields(answer="late"))
    (report,) = request_verdicts(answered, [grader], [wave], by="test")
    assert report.added == 1
    assert get_judge_run(answered).status == "running"


def test_pairs_join_different_models_and_are_judged_in_both_orders(answered, wave):
    report = request_verdicts(answered, [make_grader(rubric=make_rubric("duel", "pairwise"))], [wave], by="test")
    assert report[0].added == 12  # Six pairs: three items, two samples.
    texts = []

    def prefer_first(request):
        texts.append(request.messages[-1]["content"])
        return {"winner": "A"}

    drain(build_judge(prefer_first))
    read_verdicts(answered)
    pairs = set(Preference.objects.values_list("trial_a", "trial_b"))
    assert len(pairs) == 12
    assert pairs == {(b, a) for a, b in pairs}
    for first, second in Preference.objects.values_list("trial_a__run", "trial_b__run"):
        assert first != second
    same = Preference.objects.exclude(trial_a__item=None).values_list(
        "trial_a__item", "trial_a__sample_idx", "trial_b__item", "trial_b__sample_idx"
    )
    assert all(row[:2] == row[2:] for row in same)
    for row in Preference.objects.select_related("trial_a", "trial_b"):
        shown = [text for text in texts if row.trial_a.answer in text and row.trial_b.answer in text]
        assert any(text.index(row.trial_a.answer) < text.index(row.trial_b.answer) for text in shown)


def test_a_judge_uses_its_own_temperature_and_no_salt_of_the_solvers(answered, wave):
    type(answered).objects.update(cache_buster=True)
    request_verdicts(answered, [make_grader()], [wave], by="test")
    requests = []

    def count_call(request):
        requests.append(request)
        return 1

    drain(build_judge(count_call))
    assert all(request.parameters == {"max_tokens": 200, "temperature": 0} for request in requests)
    assert all(request.messages[0] == requests[0].messages[0] for request in requests)  # Shared first message.
    ends = {
        re.sub("mark [0-9a-f]{16}", "", request.messages[-1]["content"].rpartition(">>>")[2]) for request in requests
    }
    assert len(ends) == 1  # No salt.


def cancel_run(experiment, wave, grader):
    request_verdicts(experiment, [grader], [wave], by="test")
    run = get_judge_run(experiment)
    run_control.cancel(Run.objects.filter(pk=run.pk), by="test", reason="too dear")
    return run


def test_a_cancelled_judge_is_not_restarted_automatically(answered, wave):
    grader = make_grader()
    cancel_run(answered, wave, grader)
    type(answered).objects.update(graders=["judge-a"])
    answered.refresh_from_db()
    assert ask_judges(answered, by="test") == 0
    (report,) = request_verdicts(answered, [grader], [wave], by="test", force=True)
    assert report.added == 0
    assert "was cancelled; request it again" in str(report)
    assert get_judge_run(answered).status == "cancelled"


@pytest.mark.slow
def test_requesting_a_cancelled_judge_continues_its_unstarted_verdicts(answered, wave):
    grader = make_grader()
    run = cancel_run(answered, wave, grader)
    assert estimate_judging(answered, [grader], [wave]).to_do == 12
    (report,) = request_verdicts(answered, [grader], [wave], by="test", revive=True)
    assert (report.added, report.revived, report.run) == (12, 12, run)
    assert drain(build_judge(1)) == 12
    read_verdicts(answered)
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed, run.n_cancelled) == ("done", 12, 0, 0)
    assert list(Grading.objects.values_list("score", flat=True)) == [1.0] * 12
    assert "its verdicts were requested again" in run.history.values_list("reason", flat=True)
    assert find_differences() == []


@pytest.mark.slow
def test_a_cancelled_judge_without_waiting_verdicts_can_be_forced(answered, wave):
    grader = make_grader()
    request_verdicts(answered, [grader], [wave], by="test")
    drain(build_judge(0))
    Run.objects.filter(condition__stage="judge").update(status="cancelled")
    (nothing,) = request_verdicts(answered, [grader], [wave], by="test", revive=True)
    assert (nothing.added, get_judge_run(answered).status) == (0, "done")
    (repeated,) = request_verdicts(answered, [grader], [wave], by="test", force=True, revive=True)
    assert (repeated.added, repeated.revived) == (12, 0)
    assert drain(build_judge(1)) == 12


@pytest.mark.slow
def test_a_cancelled_judge_can_be_requested_again_from_the_page_and_by_command(client, answered, wave, capsys):
    grader = make_grader()
    run = cancel_run(answered, wave, grader)
    client.force_login(answered.owner)
    response = client.post(reverse("experiment_judge", args=["pilot"]), {"grader": "judge-a"}, follow=True)
    assert "12 verdicts are requested." in response.content.decode()
    run_control.cancel(Run.objects.filter(pk=run.pk), by="test", reason="still too dear")
    call_command("grade", "pilot", "--grader", "judge-a", "--no-wait")
    assert "12 verdicts requested (12 of them after a cancellation)" in capsys.readouterr().out
    assert get_judge_run(answered).n_pending == 12


def test_a_rubric_with_item_rubrics_needs_a_text_set(answered, wave):
    rubric = make_rubric(messages=[{"role": "user", "content": "{{item_rubric}} {{answer}}"}])
    with pytest.raises(PlanError, match="has no item rubrics"):
        request_verdicts(answered, [make_grader(rubric=rubric)], [wave], by="test")
    assert not Run.objects.filter(condition__stage="judge").exists()
