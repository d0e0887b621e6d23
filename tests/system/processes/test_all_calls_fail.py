"""An experiment whose calls all fail has failed on every page and in every command, even if no limit stops it."""

import io
import json

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.consistency_check import find_differences
from runs_app.models import Run, Trial
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.page_text import page_text
from tests.system.processes.workers import drain_process

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]
FAILED_BADGE = "<span>Failed</span>"


def read_command(*words):
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=out)
    return out.getvalue()


@pytest.fixture(params=["content_filter", "422"])
def experiment(request):
    """Return an experiment of 27 items and two models, of whose 54 calls real workers have recorded 54 failures."""
    with simulator_process(SimulatorConfig(faults={request.param: 1.0})) as provider:
        endpoint = factories.make_endpoint("rehearsal", base_url=provider.url, max_concurrency=64, is_free=True)
        experiment = factories.make_experiment(
            "refused",
            owner=factories.make_user("researcher", permissions.RESEARCHER),
            dataset=factories.make_dataset("things", 27),
            models=[factories.make_model(name, endpoint=endpoint) for name in ("large", "small")],
            scorers=["exact_match"],
            samples=1,
            max_usd=None,
            max_attempts=1,
            stop_after_attempts=100,
        )
        read_command("experiment", "launch", experiment.slug, "--yes")
        with drain_process() as worker:
            assert worker.wait(timeout=120) == 0
    assert Trial.objects.filter(status="failed").count() == 54
    assert set(Run.objects.values_list("status", flat=True)) == {"done"}
    assert find_differences() == []
    experiment.refresh_from_db()
    return experiment


def test_an_experiment_without_an_answer_has_failed_everywhere(client, experiment):
    status = json.loads(read_command("status", experiment.slug, "--json"))
    assert (status["state"], status["done"], status["failed"]) == ("failed", 0, 54)
    assert [wave["state"] for wave in status["waves"]] == ["failed"]
    assert [(run["status"], run["state"], run["failed"]) for run in status["runs"]] == [("done", "failed", 27)] * 2
    text = read_command("status", experiment.slug)
    assert "refused (failed) over things@1" in text
    assert "0 of 54 trials done, 54 failed" in text
    assert text.count(": failed\n  27 failed") == 2
    assert [row["state"] for row in json.loads(read_command("experiment", "list", "--json"))] == ["failed"]
    assert " failed " in read_command("status")

    cache.clear()
    client.force_login(experiment.owner)
    home = client.get("/").content.decode()
    assert FAILED_BADGE in home
    assert "54 of 54 trials failed" in home
    assert FAILED_BADGE in client.get(reverse("experiment_list")).content.decode()
    progress = client.get(reverse("experiment_progress", args=[experiment.slug])).content.decode()
    assert progress.count(FAILED_BADGE) == 3  # The state, and both runs.
    assert "Failed. No trial has an answer." in progress
    assert "<span>Done</span>" not in progress
    results = client.get(reverse("experiment_results", args=[experiment.slug]))
    assert FAILED_BADGE in results.content.decode()
    assert "All trials failed. Correct the cause and retry them." in page_text(results)
    assert "Not graded yet" not in page_text(results)
    for run in experiment.runs.all():
        assert FAILED_BADGE in client.get(run.get_absolute_url()).content.decode()
