"""Append-only verdicts: a newer verdict keeps the former one, and plain SQL cannot change any."""

import json

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.urls import reverse

from grading_app.grading.scoring import grade
from grading_app.models import Adjudication, GradeCondition, Grading, SupersededVerdict
from grading_app.models.gradings import allow_superseding
from grading_app.models.rubrics import Scale
from grading_app.publish.export.file_formats import FORMATS
from grading_app.results.raters.disagreements import adjudicate
from runs_app import deletion
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def graded_experiment():
    """Return three answers graded by one rule. One answer is right."""
    experiment = factories.make_experiment()
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda *_: "2")
    grade(experiment, scorers=["exact_match"], by="a test")
    return experiment


def execute_refused(sql):
    statements = f"SET CONSTRAINTS ALL IMMEDIATE; {sql}"
    with pytest.raises(IntegrityError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statements)
    return str(caught.value)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE grading_app_grading SET score = 1", "--force"),
        ("UPDATE grading_app_grading SET created_at = now(), detail = '{}'", "--force"),
        ("DELETE FROM grading_app_grading", "experiment delete NAME"),
        ("TRUNCATE grading_app_grading CASCADE", "experiment delete NAME"),
    ],
)
def test_plain_sql_cannot_change_verdicts_and_the_error_names_the_command(graded_experiment, statement, reason):
    before = list(Grading.objects.values_list("pk", "score", "created_at"))
    assert reason in execute_refused(statement)
    assert list(Grading.objects.values_list("pk", "score", "created_at")) == before


def test_regrading_keeps_each_changed_former_verdict(graded_experiment):
    changed = Grading.objects.filter(score=1).get()
    with allow_superseding():
        Grading.objects.filter(pk=changed.pk).update(score=0.5, score_raw="half")
    SupersededVerdict.objects.get(trial=changed.trial, content__score=1)
    grade(graded_experiment, scorers=["exact_match"], force=True, by="a test")
    superseded = SupersededVerdict.objects.filter(trial=changed.trial).values_list("content__score", flat=True)
    assert list(superseded) == [1, 0.5]
    assert SupersededVerdict.objects.count() == 2  # The two other verdicts did not change.
    assert Grading.objects.get(pk=changed.pk).score == 1


def test_a_verdict_cannot_move_to_another_answer(graded_experiment):
    first, last = Grading.objects.order_by("pk").first(), Grading.objects.order_by("pk").last()
    last_trial = factories.plan_trials(factories.make_runs(graded_experiment, wave=1)[0])[0]
    with pytest.raises(IntegrityError, match="keeps its grade condition"), allow_superseding():
        Grading.objects.filter(pk=first.pk).update(trial=last_trial)
    assert Grading.objects.get(pk=last.pk) == last


def test_earlier_adjudications_and_their_verdicts_are_kept(graded_experiment):
    trial, by, scale = graded_experiment.runs.get().trials.first(), graded_experiment.owner, Scale(0, 1)
    for score in (1.0, 0.0):
        adjudicate(trial, scale=scale, score=score, reason="I looked it up", by=by)
    condition = GradeCondition.objects.get(kind="adjudicated")
    assert [one.content["score"] for one in condition.superseded.all()] == [1]
    assert Adjudication.objects.count() == 2
    assert "goes only with its experiment" in execute_refused("DELETE FROM grading_app_adjudication")


@pytest.mark.parametrize("statement", ["UPDATE grading_app_supersededverdict SET content = '{}'",
                                       "DELETE FROM grading_app_supersededverdict"])  # fmt: skip
def test_former_verdicts_cannot_change(graded_experiment, statement):
    with allow_superseding():
        Grading.objects.filter(score=1).update(score=0.5)
    assert "former verdicts" in (message := execute_refused(statement)) or "goes only with its experiment" in message


def test_deleting_an_experiment_deletes_current_and_former_verdicts(graded_experiment):
    with allow_superseding():
        Grading.objects.filter(score=1).update(score=0.5)
    deletion.delete(graded_experiment, by="owner", reason="no longer needed")
    assert not SupersededVerdict.objects.exists()
    assert not Grading.objects.exists()


@pytest.mark.slow
def test_former_verdicts_appear_on_the_trial_page_and_in_exports(graded_experiment, client, tmp_path):
    changed = Grading.objects.filter(score=1).get()
    client.force_login(graded_experiment.owner)
    address = changed.trial.get_absolute_url()
    assert "Former verdicts" not in client.get(address).content.decode()
    with allow_superseding():
        Grading.objects.filter(pk=changed.pk).update(score=0.5, score_raw="half")
    grade(graded_experiment, scorers=["exact_match"], force=True, by="a test")
    page = client.get(address)
    assert "Former verdicts (2)" in page.content.decode()
    assert [row.verdict for row in page.context["former_verdicts"].data] == ["0.5", "1"]
    for form in FORMATS:
        call_command(
            "export", graded_experiment.slug, table="superseded", format=form, out=str(tmp_path / f"former.{form}")
        )
    rows = [json.loads(line) for line in (tmp_path / "former.jsonl").read_text().splitlines()]
    assert [(row["score"], row["score_raw"]) for row in rows] == [(1, "2"), (0.5, "half")]
    assert {row["trial_id"] for row in rows} == {changed.trial_id}
    assert all(row["graded_at"] <= row["superseded_at"] for row in rows)
    files = client.get(f"/experiments/{graded_experiment.slug}/files/").content.decode()
    assert reverse("experiment_export", args=[graded_experiment.slug, "superseded", "csv"]) in files
