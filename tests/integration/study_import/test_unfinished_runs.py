"""Unfinished runs of another site: an import shows their last status and never makes calls for them."""

import json
import shutil

import pytest
from django.core.management import call_command
from django.db import transaction
from django.urls import reverse

from datasets_app.importing.records import FileError
from grading_app.publish.export.snapshot_check import verify
from grading_app.publish.export.snapshots import make_snapshot
from grading_app.results.status_report import build_status_report
from runs_app import run_control
from runs_app.models import Endpoint, Experiment, LanguageModel, Run, Trial
from tests import factories
from tests.factories.engine import admit, register_worker
from tests.factories.imports import import_snapshot
from tests.factories.judges import make_grader
from tests.factories.queues import make_numbered_items
from tests.integration.study_import.test_snapshot_import import change_first_line, read_parts, write_forged_copy
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]
ENDED = {
    "cancelled": "The provider changed its model.",
    "paused": "Paused for the night.",
    "planned": "",
    "stopped": "6 of 20 attempts failed permanently.",
}


def make_study():
    """Return a run for each status. Each answered the first of two items; one cancelled the second."""
    dataset = make_numbered_items("things", 2, approved=False)
    dataset.approve(by="test", reason="ready")
    models = [factories.make_model(f"model-{status}") for status in ENDED]
    experiment = factories.make_experiment("pilot", dataset=dataset, models=models, samples=1, status="active")
    for run in factories.make_runs(experiment, status="done"):
        status = run.condition.model.name.removeprefix("model-")
        rest = {"status": "cancelled", "raw_response": None} if status == "cancelled" else None
        factories.plan_trials(run, answer=lambda item, _, index, rest=rest: rest if item.position else "Fine.")
        Run.objects.filter(pk=run.pk).update(status=status, stop_reason=ENDED[status], finished_at=None)
    # There are no calls, so there is nothing to count.
    Run.objects.update(n_attempts=0, spent_usd=0, input_tokens=0, output_tokens=0)
    return experiment


@pytest.fixture(scope="module")
def file_and_status(django_db_setup, django_db_blocker, tmp_path_factory):
    """Return a snapshot of another site, with the output of `status` there."""
    folder = tmp_path_factory.mktemp("other_site")
    with django_db_blocker.unblock(), transaction.atomic():
        experiment = make_study()
        shutil.copy(make_snapshot(experiment, by="test").path, folder / "sent.zip")
        status = describe_runs(experiment)
        transaction.set_rollback(True)
    return folder / "sent.zip", status


@pytest.fixture
def foreign_snapshot(file_and_status):
    return file_and_status[0]


@shared_rows
def owner():
    return factories.make_user("importer", "Researcher")


@shared_rows
def imported(file_and_status, owner_of_file):
    return import_snapshot(file_and_status[0], owner_of_file)


def describe_runs(experiment):
    """Return the output of `status` about the runs, without site-specific keys."""
    return [
        {name: run[name] for name in ("condition_id", "status", "stop_reason", "pending", "done", "cancelled")}
        for run in build_status_report(Experiment.objects.get(pk=experiment.pk))["runs"]
    ]


def list_runs():
    return {run.status: run.stop_reason for run in Run.objects.all()}


def activate_models():
    """Give the imported models an endpoint of this site."""
    Endpoint.objects.update(is_active=True, base_url="http://127.0.0.1:9/v1")
    LanguageModel.objects.update(is_active=True)


def test_imported_runs_keep_their_final_status_and_reason(imported):
    assert list_runs() == ENDED
    assert sorted(Trial.objects.values_list("status", flat=True)) == ["cancelled"] + ["done"] * 4 + ["pending"] * 3


def test_status_and_content_equal_those_of_the_first_site(file_and_status, imported):
    foreign_snapshot, before = file_and_status
    assert describe_runs(imported.experiment) == before
    second_path = make_snapshot(imported.experiment, by="test").path
    assert verify(second_path).content == verify(foreign_snapshot).content == imported.content
    first, second = (read_parts(path) for path in (foreign_snapshot, second_path))
    assert json.loads(second["facts.json"])["results"] == json.loads(first["facts.json"])["results"]
    assert json.loads(second["counts.json"]) == json.loads(first["counts.json"])


def test_no_worker_claims_a_trial_even_if_the_models_get_an_endpoint(imported):
    activate_models()
    assert admit(register_worker(), 100) == []
    Run.objects.filter(status="paused").update(status="running")
    assert len(admit(register_worker(), 100)) == 1, "only its status keeps a worker away"


def test_nobody_can_start_or_change_an_imported_run(imported, owner, client):
    activate_models()
    runs = Run.objects.all()
    assert run_control.resume(runs, by=owner) == run_control.cancel(runs, by=owner) == []
    Run.objects.filter(status="stopped").update(n_failed=1)
    assert run_control.retry_failed(runs, by=owner) == 0
    client.force_login(owner)
    for verb in ("resume", "cancel", "retry"):
        client.post(reverse("experiment_action", args=[imported.experiment.slug, verb]), {"reason": "try"})
    assert list_runs() == ENDED


def test_the_command_reports_why_it_resumes_no_run(imported, owner, capsys):
    call_command("experiment", "resume", "pilot", "--user", owner.username)
    assert "0 runs resumed\npilot holds results from snapshot and cannot run here" in capsys.readouterr().out


def test_the_progress_pages_show_the_status_without_buttons(imported, owner, client):
    client.force_login(owner)
    page = client.get(reverse("experiment_progress", args=[imported.experiment.slug]))
    for text in ("Stopped", "Paused", "Cancelled", "Planned", "6 of 20 attempts failed permanently."):
        assert text in page_text(page)
    pages = [page, *(client.get(run.get_absolute_url()) for run in Run.objects.all())]
    for shown in pages:
        assert shown.status_code == 200
        for verb in ("resume", "cancel", "retry"):
            assert f"/{verb}/" not in shown.content.decode()


def test_a_judge_of_this_site_can_be_paused_and_resumed_on_imported_answers(imported, owner):
    experiment, model = imported.experiment, make_grader().language_model
    condition = experiment.conditions.create(
        stage="judge", condition_id="judge--1", model=model, sampler=factories.make_sampler("cold"), content={}
    )
    judge = Run.objects.create(experiment=experiment, condition=condition, wave=experiment.waves.get(), n_pending=1)
    Run.objects.filter(pk=judge.pk).update(status="running")
    assert run_control.pause(Run.objects.all(), by=owner, reason="wait") == [judge.pk]
    assert run_control.resume(Run.objects.all(), by=owner) == [judge.pk]


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("rows/runs_app_run.jsonl", {"status": "running"}),
        ("rows/runs_app_run.jsonl", {"status": "queued"}),
        ("rows/runs_app_trial.jsonl", {"status": "running"}),
    ],
)
def test_a_file_with_live_runs_is_refused(foreign_snapshot, owner, tmp_path, part, change):
    altered = write_forged_copy(
        foreign_snapshot, tmp_path, **{part: change_first_line(read_parts(foreign_snapshot)[part], **change)}
    )
    with pytest.raises(FileError):
        import_snapshot(altered, owner)
    assert not Experiment.objects.exists()
