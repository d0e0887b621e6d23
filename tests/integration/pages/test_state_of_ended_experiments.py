"""An experiment is done only if every trial is: with failed trials it is partial, and without an answer it failed."""

import pytest
from django.urls import reverse

from tests import factories

pytestmark = pytest.mark.django_db


def make_ended(n_done, n_failed):
    experiment = factories.make_experiment(
        "ended", dataset=factories.make_dataset("things", n_done + n_failed), status="active"
    )
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(
        run,
        answer=lambda item, *_: {"answer": "1"} if item.position < n_done else {"status": "failed", **FAILURE},
    )
    return experiment


FAILURE = {"error_class": "server", "error": "HTTP 500", "answer": ""}


@pytest.mark.parametrize(("n_done", "n_failed", "state"), [(6, 0, "done"), (5, 1, "partial"), (0, 6, "failed")])
def test_the_state_says_whether_trials_failed(client, n_done, n_failed, state):
    experiment = make_ended(n_done, n_failed)
    (run,) = experiment.runs.all()
    assert (experiment.state, run.state, run.status) == (state, state, "done")
    client.force_login(experiment.owner)
    for address in (reverse("experiment_list"), reverse("experiment_progress", args=[experiment.slug])):
        assert f"<span>{state.capitalize()}</span>" in client.get(address).content.decode()
