"""Grading of stored answers: one grade for each rule, without changes to the answers."""

import pytest

from evalsite.lib.history import StatusChange
from grading_app.grading.scoring import grade
from grading_app.models import GradeCondition, Grading
from grading_app.models.gradings import allow_superseding
from grading_app.tasks import grade_experiment
from runs_app.models import Trial
from runs_app.scorers.scorers import ScorerError
from tests import factories

pytestmark = pytest.mark.django_db


def make_small_experiment(samples=2, **fields):
    """Return an experiment where item k has the target 2k. The first repetition is right, the second has no number."""
    experiment = factories.make_experiment(samples=samples, **fields)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(
        run, answer=lambda item, dimension, index: "no idea" if index == 1 else f"ANSWER: {item.target}"
    )
    return experiment


def list_scores(experiment):
    rows = Grading.objects.filter(condition__experiment=experiment).order_by("trial")
    return list(rows.values_list("trial__sample_idx", "score", "score_raw", "parse_ok", "parse_error"))


def test_every_answer_gets_a_grade_and_unreadable_answers_get_a_code():
    experiment = make_small_experiment()
    (report,) = grade(experiment, scorers=["numeric"], by="a test")
    assert (report.graded, report.graded_before, dict(report.unread)) == (6, 0, {"no_number_found": 3})
    assert {row for row in list_scores(experiment) if row[0] == 1} == {(1, None, "", False, "no_number_found")}
    assert {row[1:2] + row[3:] for row in list_scores(experiment) if row[0] == 0} == {(1.0, True, "")}


def test_grading_is_idempotent():
    experiment = make_small_experiment()
    grade(experiment, scorers=["numeric"], by="a test")
    before = list(Grading.objects.values())
    (report,) = grade(experiment, scorers=["numeric"], by="a test")
    assert (report.graded, report.graded_before, report.unread.total()) == (0, 6, 0)
    assert list(Grading.objects.values()) == before


def test_only_new_answers_are_graded():
    experiment = make_small_experiment()
    grade(experiment, scorers=["numeric"], by="a test")
    run = experiment.runs.get()
    item = experiment.dataset.items.first()
    Trial.objects.create(run=run, item=item, sample_idx=9, **factories.build_done_fields(answer="7"))
    factories.refresh_counters(run)
    (report,) = grade(experiment, scorers=["numeric"], by="a test")
    assert (report.graded, report.graded_before) == (1, 6)
    assert list_scores(experiment)[-1] == (9, 0.0, "7", True, "")


def test_unfinished_trials_are_not_graded():
    experiment = factories.make_experiment()
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(
        run, answer=lambda item, *cell: factories.build_failed_fields() if item.key == "item-0" else None
    )
    (report,) = grade(experiment, scorers=["exact_match"], by="a test")
    assert (report.graded, report.graded_before) == (0, 0)


def test_grading_never_writes_to_trials():
    experiment = make_small_experiment()
    before = list(Trial.objects.values())
    grade(experiment, scorers=["numeric", "exact_match"], force=True, by="a test")
    assert list(Trial.objects.values()) == before


def test_each_scorer_and_parameter_has_a_separate_condition():
    experiment = make_small_experiment()
    grade(experiment, scorers=["numeric", {"name": "numeric", "tolerance": 1}, "exact_match"], by="a test")
    conditions = GradeCondition.objects.filter(experiment=experiment)
    assert [(c.scorer, c.parameters) for c in conditions] == [
        ("numeric", {}),
        ("numeric", {"tolerance": "1"}),
        ("exact_match", {}),
    ]
    assert len({c.grade_condition_id for c in conditions}) == 3
    assert all(c.grade_condition_id.startswith(f"{c.scorer.replace('_', '_')}--") for c in conditions)
    assert Grading.objects.count() == 18


def test_force_replaces_grades_in_place(monkeypatch):
    experiment = make_small_experiment()
    grade(experiment, scorers=["numeric"], by="a test")
    with allow_superseding():
        Grading.objects.update(score=0.5, score_raw="old", parse_ok=True, parse_error="")
    (report,) = grade(experiment, scorers=["numeric"], force=True, by="a test")
    assert (report.graded, report.graded_before) == (6, 0)
    assert {row[1] for row in list_scores(experiment)} == {1.0, None}
    assert Grading.objects.count() == 6


def test_a_single_wave_can_be_graded():
    experiment = make_small_experiment()
    (second,) = factories.make_runs(experiment, wave=1)
    factories.plan_trials(second, answer=lambda *cell: "4")
    (report,) = grade(experiment, scorers=["numeric"], wave=second.wave, by="a test")
    assert report.graded == 6
    assert set(Grading.objects.values_list("trial__run", flat=True)) == {second.pk}


def test_grading_in_pages_covers_every_answer(monkeypatch):
    monkeypatch.setattr("grading_app.grading.scoring.PAGE_ROWS", 4)
    experiment = make_small_experiment(samples=7)
    (report,) = grade(experiment, scorers=["numeric"], by="a test")
    assert report.graded == Grading.objects.count() == 21


def test_rated_items_are_graded_by_their_rating_unless_the_design_says_otherwise():
    experiment = factories.make_experiment(dimensions=[factories.make_dimension()])
    (run,) = factories.make_runs(experiment)
    unread = {"answer": "fine", "parse_error": "no_rating_found"}
    factories.plan_trials(
        run, answer=lambda item, *cell: unread if item.key == "item-0" else {"answer": "6", "rating": 6}
    )
    (report,) = grade(experiment, by="a test")
    assert (report.scorer, report.graded, dict(report.unread)) == ("rating", 3, {"no_rating_found": 1})
    assert sorted(score or 0 for _, score, *_ in list_scores(experiment)) == [0, 6.0, 6.0]


def test_the_command_and_the_task_both_use_the_designs_scorers():
    experiment = make_small_experiment(scorers=["exact_match", {"name": "regex", "pattern": "([0-9]+)"}])
    assert list(grade_experiment(experiment.pk).values()) == [6, 6]
    assert list(grade_experiment(experiment.pk).values()) == [0, 0]
    assert grade_experiment(0) == {}


def test_an_unknown_scorer_is_refused_before_anything_is_written():
    experiment = make_small_experiment()
    with pytest.raises(ScorerError, match="exact_match"):
        grade(experiment, scorers=["numeric", "guess"], by="a test")
    assert not GradeCondition.objects.exists()


def test_the_history_records_who_graded_what():
    experiment = make_small_experiment()
    grade(experiment, scorers=["numeric"], by=experiment.owner)
    grade(experiment, scorers=["numeric"], by=experiment.owner)
    (change,) = StatusChange.objects.for_row(experiment).filter(aspect="gradings")
    assert change.by == experiment.owner
    assert "6 graded" in change.to_value


def test_grading_stops_at_its_deadline_and_the_next_call_continues(monkeypatch):
    monkeypatch.setattr("grading_app.grading.scoring.PAGE_ROWS", 4)
    experiment = make_small_experiment(samples=7)
    (report,) = grade(experiment, scorers=["numeric"], seconds=0, by="a test")
    assert (report.graded, report.is_complete) == (0, False)
    (report,) = grade(experiment, scorers=["numeric"], by="a test")
    assert (report.graded, report.is_complete) == (21, True)


def test_the_task_enqueues_a_successor_while_answers_remain(monkeypatch):
    experiment, queries = make_small_experiment(), []
    monkeypatch.setattr("django_q.tasks.async_task", lambda *task: queries.append(task))
    monkeypatch.setattr("grading_app.tasks.SECONDS", 0)
    grade_experiment(experiment.pk, ["numeric"], "owner")
    assert queries == [("grading_app.tasks.grade_experiment", experiment.pk, ["numeric"], "owner")]
    monkeypatch.setattr("grading_app.tasks.SECONDS", 60)
    assert list(grade_experiment(*queries.pop()[1:]).values()) == [6]
    assert queries == []
