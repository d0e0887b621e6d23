"""A preflight over HTTP whose process is killed with -9 during its call: its slot is released, its record remains."""

import os
import signal
import subprocess
import sys
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db.models import Sum
from django.utils import timezone

from grading_app.grading.consistency_check import find_differences
from runs_app import tasks
from runs_app.engine import preflight
from runs_app.models import Endpoint, Experiment, LanguageModel, LedgerEntry, Preflight
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.system.processes.workers import ROOT, get_data_dir, get_database_url, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def fail_if_called(request):
    raise AssertionError("no call may be made")


def request_preflight(experiment):
    (row,) = Preflight.objects.request([LanguageModel.objects.get().pk], by="a test", experiment=experiment)
    return row


def kill_preflight_in_flight(provider):
    """Run `experiment preflight draft` in its own process and kill it while the provider prepares its answer."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "experiment", "preflight", "draft"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": get_database_url(), "EVALSITE_DATA_DIR": get_data_dir()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: provider.counters()["requests"] == 1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_its_slot_is_released_after_its_lease_and_both_calls_are_recorded():
    with simulator_process(SimulatorConfig(latency_ms=25_000)) as provider:
        endpoint = factories.make_endpoint("rehearsal", base_url=provider.url, max_concurrency=1, adaptive=False)
        draft = factories.make_experiment("draft", models=[factories.make_model("sim", endpoint=endpoint)])
        kill_preflight_in_flight(provider)
        (lost,) = Preflight.objects.all()
        assert (lost.status, Endpoint.objects.get().in_flight) == ("running", 1)
        assert Experiment.objects.get().reserved_usd == lost.reserved_usd > 0

        without_slot = request_preflight(draft)
        preflight.make_preflight(without_slot.pk, fail_if_called)
        without_slot.refresh_from_db()
        assert (without_slot.status, without_slot.result_text) == (
            "unverified",
            "the endpoint rehearsal has 1 of 1 calls in flight",
        )

        call_command("sweep_stale_claims")
        assert Endpoint.objects.get().in_flight == 1  # Its lease has not ended.
        Preflight.objects.filter(pk=lost.pk).update(lease_until=timezone.now())
        call_command("sweep_stale_claims")
        lost.refresh_from_db()
        assert (lost.status, lost.error_class, Endpoint.objects.get().in_flight) == ("unverified", "worker_lost", 0)

        provider.set_faults(latency_ms=0)
        answered = request_preflight(draft)
        assert tasks.make_preflight(answered.pk) == "ok"
        assert provider.counters()["requests"] == 2
    answered.refresh_from_db()
    tokens = (answered.input_tokens, answered.output_tokens)
    assert answered.cost_usd == Decimal(tokens[0] * 1 + tokens[1] * 2) / 1_000_000 > 0
    names = ("attempts", "unpriced", "paid_usd")  # The calls may lie in two quarters of an hour.
    recorded = LedgerEntry.objects.aggregate(**{name: Sum(name) for name in names})
    assert recorded == {"attempts": 2, "unpriced": 1, "paid_usd": answered.cost_usd}
    draft.refresh_from_db()
    assert (draft.spent_usd, draft.reserved_usd) == (answered.cost_usd, lost.kept_usd)
    assert find_differences() == []
