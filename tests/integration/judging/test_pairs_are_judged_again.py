"""Repeated pairwise verdicts: the newest replaces the previous in counts, strengths, exports and pages."""

import json

import pytest
from django.urls import reverse
from django.utils.html import strip_tags

from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import count_unread_verdicts, read_verdicts
from grading_app.models import Preference
from grading_app.publish.export.file_formats import export_chunks
from grading_app.results.raters.grader_rows import list_grader_rows
from grading_app.results.raters.pairwise_stats import compute_standing
from runs_app.models import Trial
from tests.factories.engine import drain
from tests.factories.judges import build_judge, make_grader, make_rubric


@pytest.fixture
def duel(answered):
    return make_grader("duel", rubric=make_rubric("better", kind="pairwise"))


def judge_pairs(experiment, grader, verdict, force=False):
    request_verdicts(experiment, [grader], list(experiment.waves.all()), by="test", force=force)
    drain(build_judge(verdict))
    read_verdicts(experiment)


def get_line(experiment):
    (line,) = list_grader_rows(experiment)
    return line, compute_standing([line.condition], {})


def export_preferences(experiment):
    return [json.loads(row) for row in b"".join(export_chunks(experiment, "preferences", "jsonl")).splitlines()]


@pytest.mark.slow
def test_a_new_verdict_on_a_pair_replaces_the_previous_verdict_everywhere(answered, duel):
    judge_pairs(answered, duel, {"winner": "A", "reasoning": "the first"})
    line, before = get_line(answered)
    assert (line.verdicts, before.bias.pairs, before.bias.flipped, before.bias.for_first) == (12, 6, 6, 6)

    judge_pairs(answered, duel, {"winner": "B", "reasoning": "the second"}, force=True)
    line, after = get_line(answered)
    assert (line.verdicts, line.totals.done) == (12, 24)
    assert (after.bias.pairs, after.bias.for_first, after.bias.for_second) == (6, 0, 6)
    assert [(row["winner"], row["grade_reasoning"]) for row in export_preferences(answered)] == [
        ("b", "the second")
    ] * 12
    newest = Trial.objects.exclude(subject=None).filter(sample_idx=1)
    assert set(Preference.objects.values_list("judged_by", flat=True)) == set(newest.values_list("pk", flat=True))


@pytest.mark.slow
def test_an_unreadable_new_verdict_also_removes_the_old_verdict_from_counts(answered, duel):
    judge_pairs(answered, duel, {"winner": "A"})
    judge_pairs(
        answered, duel, lambda request: "No idea." if "What is 0" in str(request.messages) else {"winner": "A"}, True
    )
    line, standing = get_line(answered)
    assert (line.verdicts, line.scores.preferred, line.scores.codes) == (12, 8, (("no_json_object", 4),))
    assert (standing.bias.pairs, standing.comparisons) == (4, 8)
    assert [one for counted in count_unread_verdicts(answered).values() for one in counted.items()] == [
        ("no_json_object", 4)
    ]

    judge_pairs(answered, duel, {"winner": "B"}, force=True)
    line, standing = get_line(answered)
    assert (line.scores.codes, standing.comparisons, standing.bias.for_second) == ((), 12, 6)
    assert count_unread_verdicts(answered) == {}


@pytest.mark.slow
def test_rereading_replies_keeps_the_newest_verdict(answered, duel):
    judge_pairs(answered, duel, {"winner": "A"})
    judge_pairs(answered, duel, {"winner": "tie"}, force=True)
    (again,) = read_verdicts(answered, again=True)
    assert set(Preference.objects.values_list("winner", flat=True)) == {"tie"}
    assert Preference.objects.count() == 12
    (nothing,) = read_verdicts(answered)
    assert (again.read, nothing.read) == (12, 0)


@pytest.mark.slow
def test_the_pages_of_both_answers_show_the_preference_and_its_reasoning(client, answered, duel):
    judge_pairs(answered, duel, {"winner": "A", "reasoning": "the <b>first</b>"})
    row = Preference.objects.select_related("trial_a", "trial_b").first()
    client.force_login(answered.owner)
    pages = [client.get(trial.get_absolute_url()) for trial in (row.trial_a, row.trial_b)]
    judge_call = f'href="{reverse("trial_detail", args=[row.judged_by_id])}"'
    for page, other, shown in (
        (pages[0], row.trial_b, "This answer shown first"),
        (pages[1], row.trial_a, "The other answer shown second"),
    ):
        preferences = page.context["preferences"].data
        assert len(preferences) == 2  # One other model, both orders.
        (own,) = [one for one in preferences if judge_call in one.reason]
        assert strip_tags(own.verdict) == f"{shown}, compared with trial {other.pk}"
        text = page.content.decode()
        assert "the &lt;b&gt;first&lt;/b&gt;" in text
        assert f'href="{other.get_absolute_url()}"' in text
        assert judge_call in text
    call = client.get(reverse("trial_detail", args=[row.judged_by_id]))
    assert [(one.by, one.verdict) for one in call.context["preferences"].data] == [(row.condition, "The first")]
    assert "The first" in call.content.decode()


@pytest.mark.slow
def test_the_call_of_a_replaced_verdict_says_that_a_newer_verdict_counts(client, answered, duel):
    judge_pairs(answered, duel, {"winner": "A"})
    old = Preference.objects.first().judged_by
    judge_pairs(answered, duel, {"winner": "B"}, force=True)
    client.force_login(answered.owner)
    page = client.get(old.get_absolute_url())
    assert list(page.context["preferences"].data) == []
    assert "a newer reply replaced it" in page.content.decode()
