"""Panel scores: stored, recomputed from the members' rows, and reproducible."""

import json

import pytest

from grading_app.grading.judging import grade_conditions, panels
from grading_app.models import Grading, Panel
from grading_app.models.gradings import allow_superseding
from grading_app.publish.export.file_formats import export_chunks
from runs_app.models import Trial
from runs_app.planning.work import PlanError
from tests import factories
from tests.factories.judges import make_grader, make_rubric, make_twelve_answers
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def stored_experiment():
    return make_twelve_answers()


def store_verdicts(condition, answer):
    """Store this member's verdict on every answer. None stands for an unreadable reply."""
    parse_error = "" if answer is not None else "no_json_object"
    values = {"score": answer, "parse_ok": answer is not None, "parse_error": parse_error}
    with allow_superseding():
        if not condition.gradings.update(**values):
            trials = Trial.objects.filter(subject=None)
            Grading.objects.bulk_create(Grading(condition=condition, trial=trial, **values) for trial in trials)


def make_panel(experiment, rule, verdicts, quorum=None):
    """Return a panel of judges that each give one score to every answer."""
    rubric = make_rubric(scale_max=10)
    members = [
        make_grader(f"judge-{number}", rubric=rubric, model=factories.make_model(f"judge-{number}"))
        for number in range(len(verdicts))
    ]
    for member, answer in zip(members, verdicts, strict=True):
        store_verdicts(grade_conditions.get_or_create_condition(experiment, member), answer)
    panel = Panel.objects.create(name=f"by-{rule}", rule=rule, quorum=quorum)
    panel.graders.set(members)
    return panels.add_panel(experiment, panel), panel


@pytest.mark.parametrize(
    ("rule", "verdicts", "score", "code"),
    [
        ("mean", [1, 2, 6], 3, ""),
        ("median", [1, 2, 6], 2, ""),
        ("median", [1, 2, 6, 7], 4, ""),
        ("majority", [1, 1, 6], 1, ""),
        ("majority", [1, 2, 6], None, "no_majority"),
        ("majority", [1, 1, 6, 6], None, "no_majority"),
        ("mean", [1, None, 6], 3.5, ""),
        ("majority", [1, None, 1], 1, ""),
        ("mean", [None, None], None, "no_member_scored"),
    ],
)
def test_the_panel_rule_combines_the_members_scores(stored_experiment, rule, verdicts, score, code):
    condition, _ = make_panel(stored_experiment, rule, verdicts)
    rows = Grading.objects.filter(condition=condition)
    assert set(rows.values_list("score", "parse_error", "parse_ok")) == {(score, code, score is not None)}
    assert rows.count() == 12
    answer = rows.first().detail["members"]
    assert sorted(map(str, answer.values())) == sorted(map(str, verdicts))


@pytest.mark.parametrize(
    ("rule", "quorum", "verdicts", "score", "code"),
    [
        ("mean", 2, [1, None, 6], 3.5, ""),
        ("median", 3, [1, None, 6], None, "no_quorum"),
        ("majority", 2, [1, None, 1], 1, ""),
        ("majority", 2, [1, None, 6], None, "no_majority"),
        ("mean", 1, [None, None], None, "no_quorum"),
    ],
)
def test_a_quorum_sets_how_many_members_must_give_a_score(stored_experiment, rule, quorum, verdicts, score, code):
    condition, _ = make_panel(stored_experiment, rule, verdicts, quorum)
    rows = Grading.objects.filter(condition=condition)
    assert set(rows.values_list("score", "parse_error")) == {(score, code)}
    votes = sum(answer is not None for answer in verdicts)
    assert rows.count() == 12
    assert ("votes", f"{votes} of {len(verdicts)}") in rows.first().details
    lines = export_chunks(stored_experiment, "gradings", "jsonl")
    exported = [json.loads(row) for row in b"".join(lines).splitlines()]
    assert {row["votes"] for row in exported if row["grader"] == f"by-{rule}"} == {votes}
    assert {row["votes"] for row in exported if row["grader"] != f"by-{rule}"} == {None}


@pytest.mark.slow
def test_a_quorum_ignores_failed_calls_and_is_lost_with_its_votes(stored_experiment):
    condition, panel = make_panel(stored_experiment, "mean", [0, 4, 8], quorum=2)
    first, second, third = (
        grade_conditions.find_condition(stored_experiment, member) for member in panel.graders.order_by("name")
    )
    with allow_superseding():
        Grading.objects.filter(condition=third).delete()
    assert panels.refresh_panel(condition) == 12
    assert set(Grading.objects.filter(condition=condition).values_list("score", "detail__votes")) == {(2, 2)}
    store_verdicts(second, None)
    panels.refresh_panel(condition)
    assert set(Grading.objects.filter(condition=condition).values_list("score", "parse_error")) == {(None, "no_quorum")}
    assert (
        condition.grade_condition_id != panels.add_panel(stored_experiment, copy_panel_of_all(panel)).grade_condition_id
    )
    assert first.pk in condition.parameters["members"]


def copy_panel_of_all(panel):
    other = Panel.objects.create(name=panel.name + "-of-all", rule=panel.rule)
    other.graders.set(panel.graders.all()[:2])
    return other


def test_a_quorum_above_the_number_of_members_is_refused(stored_experiment):
    with pytest.raises(PlanError, match="needs 3 scores and has 2 members"):
        make_panel(stored_experiment, "mean", [0, 4], quorum=3)


def test_refreshing_a_panel_is_idempotent_and_follows_its_members(stored_experiment):
    condition, panel = make_panel(stored_experiment, "mean", [0, 4])
    assert panels.refresh_panel(condition) == 0
    assert panels.add_panel(stored_experiment, panel) == condition

    store_verdicts(grade_conditions.find_condition(stored_experiment, panel.graders.first()), 6)
    assert panels.refresh_all_panels(stored_experiment) == 12
    assert set(Grading.objects.filter(condition=condition).values_list("score", flat=True)) == {5}


def test_an_answer_waits_for_all_members(stored_experiment):
    condition, _ = make_panel(stored_experiment, "mean", [0, 4])
    member = Grading.objects.filter(condition__kind="judge").first()
    with allow_superseding():
        Grading.objects.filter(condition=condition).delete()
    with allow_superseding():
        member.delete()
    assert panels.refresh_panel(condition) == 11


def test_members_with_different_scales_are_refused(stored_experiment):
    panel = Panel.objects.create(name="odd", rule="mean")
    panel.graders.set([make_grader("a"), make_grader("b", rubric=make_rubric("ten", scale_max=10))])
    with pytest.raises(PlanError, match="the same scale"):
        panels.add_panel(stored_experiment, panel)


def test_a_panel_needs_two_judges_that_give_scores(stored_experiment):
    panel = Panel.objects.create(name="odd", rule="mean")
    panel.graders.set([make_grader("a")])
    with pytest.raises(PlanError, match="at least two"):
        panels.add_panel(stored_experiment, panel)
    duel = make_rubric("duel", "pairwise")
    panel.graders.set([make_grader("b", rubric=duel), make_grader("c", rubric=duel)])
    with pytest.raises(PlanError, match="give no scores"):
        panels.add_panel(stored_experiment, panel)


def test_two_names_for_the_same_judge_are_refused_and_both_quoted(stored_experiment):
    one = make_grader("judge-a")
    twin = make_grader("judge-b", rubric=one.rubric, model=one.language_model, sampler=one.sampler)
    store_verdicts(grade_conditions.get_or_create_condition(stored_experiment, one), 1)
    panel = Panel.objects.create(name="twins", rule="mean")
    panel.graders.set([one, twin])
    with pytest.raises(PlanError, match="judge-a and judge-b send the same requests"):
        panels.add_panel(stored_experiment, panel)
