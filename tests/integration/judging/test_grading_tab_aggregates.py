"""Aggregates of the grading tab: immediately correct after any write, with a constant number of queries."""

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from grading_app.grading.judging import grade_conditions, panels
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import CachedAggregate, GradeCondition, Grading, Panel
from grading_app.models.gradings import allow_superseding
from grading_app.results.cached_aggregates import fingerprint_results
from grading_app.results.raters import verdict_stats
from grading_app.results.raters.grader_rows import list_grader_rows
from grading_app.tasks import compute_aggregates
from runs_app.models import Run, Trial
from tests import factories
from tests.factories.engine import drain
from tests.factories.judges import build_judge, make_grader, make_rubric
from tests.integration.judging.test_selection_of_answers import odd_experiment
from tests.page_text import page_text

__all__ = ["odd_experiment"]


def get_mean(experiment):
    """Return the mean of the first grader, which gave the same scores to the answers of each condition."""
    (mean,) = {condition_mean.score.mean for condition_mean in list_grader_rows(experiment)[0].scores.means}
    return mean


def judge_all(experiment, grader, score, *, force=False):
    request_verdicts(experiment, [grader], list(experiment.waves.all()), by="test", force=force)
    drain(build_judge(score))
    read_verdicts(experiment)


@pytest.mark.slow
def test_forced_verdicts_read_long_after_the_run_ended_appear_immediately(answered):
    """Read the replies when no call counter changes and no grading is new."""
    grader = make_grader()
    judge_all(answered, grader, 1.0)
    request_verdicts(answered, [grader], list(answered.waves.all()), by="test", force=True)
    drain(build_judge(0.25))
    Run.objects.update(finished_at=factories.NOON)
    assert get_mean(answered) == 1.0
    results = fingerprint_results(answered, None)
    read_verdicts(answered)
    assert get_mean(answered) == 0.25
    assert fingerprint_results(answered, None) != results


@pytest.mark.parametrize("change", ["UPDATE grading_app_grading SET score = 0", "DELETE FROM grading_app_grading"])
def test_every_write_to_a_verdict_counts_as_a_change_of_its_condition(answered, change):
    judge_all(answered, make_grader(), 1.0)
    other = GradeCondition.objects.create(experiment=answered, grade_condition_id="other--1")
    before = GradeCondition.objects.get(kind="judge").changes
    assert get_mean(answered) == 1.0
    with allow_superseding(), connection.cursor() as cursor:
        cursor.execute(change)
    assert GradeCondition.objects.get(kind="judge").changes == before + 1
    assert GradeCondition.objects.get(pk=other.pk).changes == 0
    line = list_grader_rows(answered)[0]
    assert {one.score.mean for one in line.scores.means} == ({0} if "UPDATE" in change else set())


@pytest.mark.slow
def test_the_tab_counts_scores_without_a_call_and_judged_problem_answers(client, odd_experiment):
    rubric = make_rubric()
    client.force_login(odd_experiment.owner)
    make_grader("strict", rubric=rubric, on_empty="zero", longest_answer=49)
    address = reverse("experiment_judge", args=[odd_experiment.slug])
    response = client.post(address, {"grader": "strict"}, follow=True).content.decode()
    assert "1 verdict is requested. 2 answers were scored without a call." in response
    assert "Of 3 answers 1 is empty, 1 is too long, 1 is truncated, 1 is refused." in response
    drain(build_judge(1))
    read_verdicts(odd_experiment)
    (line,) = list_grader_rows(odd_experiment)
    assert sorted(line.scores.noted) == [("answer_too_long", 1), ("empty_answer", 1), ("refused", 1)]
    page = page_text(client.get(reverse("experiment_grading", args=[odd_experiment.slug])))
    assert 'Scored without a call: <span class="mono">answer_too_long</span> 1' in page
    assert 'Judged despite problems: <span class="mono">refused</span> 1' in page


def test_the_page_reports_that_all_answers_were_scored_without_a_call(client, odd_experiment):
    make_grader("strict", longest_answer=1)
    client.force_login(odd_experiment.owner)
    response = client.post(reverse("experiment_judge", args=[odd_experiment.slug]), {"grader": "strict"}, follow=True)
    assert "3 answers were scored without a call." in response.content.decode()
    assert "Nothing was requested" not in response.content.decode()


def make_panel_of_two(answered):
    """Return two judges and the condition of their panel."""
    one = make_grader("one")
    two = make_grader("two", rubric=one.rubric, model=factories.make_model("second-judge"))
    judge_all(answered, one, 0.0)
    judge_all(answered, two, 1.0)
    panel = Panel.objects.create(name="bench", rule="mean")
    panel.graders.set([one, two])
    return one, two, panels.add_panel(answered, panel)


@pytest.mark.slow
def test_answers_left_out_of_a_panel_are_counted_by_the_missing_member(client, answered):
    _, two, bench = make_panel_of_two(answered)
    assert list_grader_rows(answered)[-1].scores.left_out == 0

    deleted = list(Trial.objects.filter(subject=None).values_list("pk", flat=True)[:3])
    with allow_superseding():
        Grading.objects.filter(trial__in=deleted, condition=grade_conditions.find_condition(answered, two)).delete()
    with allow_superseding():
        Grading.objects.filter(trial__in=deleted, condition=bench).delete()
    line = list_grader_rows(answered)[-1]
    assert (line.scores.left_out, line.missing) == (3, (("Standard (two)", 3),))
    client.force_login(answered.owner)
    page = page_text(client.get(reverse("experiment_grading", args=[answered.slug])))
    assert "3 answers left out." in page
    assert "Missing verdicts: Standard (two) 3" in page
    assert "Mean; all 2 must judge." in page


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_judges_and_verdicts(client, answered):
    client.force_login(answered.owner)
    address = reverse("experiment_grading", args=[answered.slug])
    rubric = make_rubric()

    def count_queries():
        with CaptureQueriesContext(
            connection,
        ) as captured:
            client.get(address)
        return len(captured)

    judge_all(answered, make_grader("first", rubric=rubric), 1)
    client.get(address)
    GradeCondition.objects.update(changes=1_000)
    few = count_queries()
    for number in range(3):
        judge_all(answered, make_grader(f"judge-{number}", rubric=rubric, longest_answer=100 + number), 0.5)
    Run.objects.update(finished_at=factories.NOON)
    assert (count_queries(), Grading.objects.count()) == (few, 48)
    assert count_queries() < few


@pytest.mark.slow
def test_a_worker_aggregates_many_verdicts_to_the_same_sums_and_the_page_shows_freshness(client, answered, monkeypatch):
    one, two, bench = make_panel_of_two(answered)
    duel = make_grader("duel", rubric=make_rubric("better", kind="pairwise"))
    judge_all(answered, duel, lambda request: {"winner": "A", "reasoning": "."})
    deleted = list(Trial.objects.filter(subject=None).values_list("pk", flat=True)[:3])
    with allow_superseding():
        Grading.objects.filter(
            trial__in=deleted, condition__in=[grade_conditions.find_condition(answered, two), bench]
        ).delete()
    at_once = [line.scores for line in list_grader_rows(answered)]
    assert (at_once[-2].left_out, at_once[-1].preferred) == (3, 12)

    requests = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: requests.append((name, arguments)))
    monkeypatch.setattr(verdict_stats, "MAX_VERDICTS_PER_REQUEST", 0)
    cache.clear()
    client.force_login(answered.owner)
    page = client.get(reverse("experiment_grading", args=[answered.slug])).content.decode()
    assert page.count("A worker is calculating the results (step 1 of 2: waiting for a worker)") == 5
    assert 'hx-trigger="every 3s"' in page
    monkeypatch.setattr("grading_app.tasks.SECONDS", 0)
    while requests:
        compute_aggregates(*requests.pop(0)[1])
    assert [line.scores for line in list_grader_rows(answered)] == at_once
    page = client.get(reverse("experiment_grading", args=[answered.slug])).content.decode()
    assert page.count("Includes all verdicts") == 5
    assert "6 of 6 pairs" in page
    with allow_superseding():
        Grading.objects.filter(condition__grader=one, trial=deleted[0]).update(score=1)
    assert [line.cached.is_fresh for line in list_grader_rows(answered)] == [False, True, False, True]
    assert requests == []
    CachedAggregate.objects.update(problem="out of memory")
    assert (
        "The last calculation failed: out of memory"
        in client.get(reverse("experiment_grading", args=[answered.slug])).content.decode()
    )
