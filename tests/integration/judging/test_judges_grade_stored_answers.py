"""A judge added after generation: it grades each stored answer once and changes no answer."""

from grading_app.grading.consistency_check import find_differences
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grading
from runs_app.models import Attempt, Trial
from tests.factories.engine import drain
from tests.factories.judges import build_judge, get_judge_run, make_grader


def test_every_answer_gets_one_grading_with_reasoning_and_call(answered, wave):
    before = list(Trial.objects.values_list("pk", "status", "answer").order_by("pk"))
    (report,) = request_verdicts(answered, [make_grader()], [wave], by="test")
    assert report.added == 12

    assert drain(build_judge(0.5)) == 12
    (read,) = read_verdicts(answered)

    assert read.read == 12
    rows = Grading.objects.select_related("judged_by").order_by("trial")
    assert {(row.score, row.score_raw, row.parse_ok, row.reasoning) for row in rows} == {
        (0.5, "0.5", True, "It is so.")
    }
    assert [row.trial_id for row in rows] == [pk for pk, *_ in before]
    assert [row.judged_by.subject_id for row in rows] == [row.trial_id for row in rows]
    assert list(Trial.objects.filter(subject=None).values_list("pk", "status", "answer").order_by("pk")) == before
    assert get_judge_run(answered).status == "done"
    assert find_differences() == []


def test_repeating_a_judge_makes_no_further_calls_or_gradings(answered, wave):
    grader = make_grader()
    request_verdicts(answered, [grader], [wave], by="test")
    drain(build_judge())
    read_verdicts(answered)
    calls = Attempt.objects.count()

    (report,) = request_verdicts(answered, [grader], [wave], by="test")
    assert (report.added, drain(build_judge())) == (0, 0)
    assert [one.read for one in read_verdicts(answered)] == [0]
    assert Attempt.objects.count() == calls
