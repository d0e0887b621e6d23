"""The reservations of an imported run are computed from its rows, so no file lets a later call pass a budget."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from grading_app.publish.export.snapshot_check import SnapshotFileError
from runs_app import run_control
from runs_app.engine.requests import rebuild_messages
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Experiment, Run
from runs_app.pricing.tokens import estimate_by_bytes
from tests import factories
from tests.factories.engine import admit
from tests.factories.imports import import_snapshot
from tests.integration.study_import.test_snapshot_import import read_parts, write_forged_copy

# A study with verdicts: the run of the first judge has number 3, and its first verdict is trial 97.
WHOLE = Path(__file__).parents[2] / "system" / "fuzz" / "studies" / "whole.zip"
RUNS, TRIALS = "rows/runs_app_run.jsonl", "rows/runs_app_trial.jsonl"
GRADINGS, ITEMS = "rows/grading_app_grading.jsonl", "rows/datasets_app_item.jsonl"
FAILED = {
    "status": "failed",
    "error_class": "server",
    "answer": "",
    "raw_response": "",
    "finish_reason": "",
    "attempts": 3,
}
NOTHING_RESERVED = {"reserve_usd": 0, "request_tokens": 0, "reserve_tokens": 0}


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


def change_lines(part, changes):
    """Return the part with these changes of its rows, by their number. None drops the row."""
    rows = [json.loads(line) for line in read_parts(WHOLE)[part].splitlines()]
    kept = [row | changes.get(row["id"], {}) for row in rows if changes.get(row["id"], {}) is not None]
    return b"".join(json.dumps(row).encode() + b"\n" for row in kept)


def import_forged(tmp_path, **changes):
    """Import the study with one failed verdict and these claims about the run of its judge."""
    parts = {
        RUNS: change_lines(RUNS, {3: changes}),
        TRIALS: change_lines(TRIALS, {97: FAILED}),
        GRADINGS: change_lines(GRADINGS, {85: None}),
    }
    path = write_forged_copy(WHOLE, tmp_path, **parts)
    experiment = import_snapshot(path, factories.make_user("importer", "Researcher")).experiment
    return Run.objects.with_design().get(experiment=experiment, condition__stage="judge", n_failed=1)


@pytest.mark.django_db
@pytest.mark.parametrize("claim", [{}, NOTHING_RESERVED, {"reserve_usd": 9_000, "request_tokens": 10**9}])
def test_reservations_are_computed_from_the_rows_whatever_the_file_says(tmp_path, claim):
    run = import_forged(tmp_path, **claim)
    assert run.request_tokens >= max(count_tokens(trial) for trial in run.trials.all())
    assert run.reserve_usd == run.ceiling_usd > 0
    assert run.reserve_tokens > run.request_tokens


def count_tokens(trial):
    return estimate_by_bytes([message["content"] for message in rebuild_messages(trial, None)])


@pytest.mark.django_db(transaction=True)
def test_a_verdict_that_is_asked_again_stays_within_the_budget(tmp_path):
    """An operator gives the judge an endpoint and prices, and the owner retries the failed verdict."""
    run = import_forged(tmp_path, **NOTHING_RESERVED)
    model, experiment = run.condition.model, run.experiment
    endpoint = factories.make_endpoint("lab-of-this-site")
    model.endpoint, model.is_active = endpoint, True
    model.save()
    failed = run.trials.get(status="failed")
    limit = run.condition.sampler.compute_output_ceiling(model.max_output_tokens)
    needed = model.prices.compute_ceiling(count_tokens(failed), limit)
    committed = experiment.spent_usd + experiment.reserved_usd
    Experiment.objects.filter(pk=experiment.pk).update(max_usd=committed + needed - Decimal("0.0001"))
    assert run_control.retry_failed(Run.objects.filter(pk=run.pk), by=experiment.owner) == 1
    worker = WorkerRegistration().worker_id
    assert admit(worker, 10) == []
    Experiment.objects.filter(pk=experiment.pk).update(max_usd=committed + needed * 2)
    run_control.resume(Run.objects.filter(pk=run.pk), by=experiment.owner)
    assert [claim.trial_id for claim in admit(worker, 10)] == [failed.pk]
    assert Experiment.objects.get(pk=experiment.pk).reserved_usd >= experiment.reserved_usd + needed


@pytest.mark.django_db
def test_an_open_call_about_an_excluded_item_is_refused_because_no_bound_covers_it(tmp_path):
    first_item = next(json.loads(line) for line in read_parts(WHOLE)[TRIALS].splitlines()[96:])["item_id"]
    parts = {
        TRIALS: change_lines(TRIALS, {97: FAILED}),
        GRADINGS: change_lines(GRADINGS, {85: None}),
        ITEMS: change_lines(ITEMS, {first_item: {"excluded": True, "exclusion_reason": "blurred"}}),
    }
    path = write_forged_copy(WHOLE, tmp_path, **parts)
    with pytest.raises(SnapshotFileError, match=r"asks about item .+, which is excluded"):
        import_snapshot(path, factories.make_user("importer", "Researcher"))
