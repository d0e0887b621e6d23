"""A shared experiment with answers, and people in each role."""

import pytest

from evalsite.lib import permissions
from tests import factories
from tests.shared_rows import shared_rows


@shared_rows
def people():
    roles = {"owner": "RESEARCHER", "colleague": "RESEARCHER", "viewer": "VIEWER", "operator": "OPERATOR"}
    return {name: factories.make_user(name, getattr(permissions, role)) for name, role in roles.items()}


@shared_rows
def experiment(people_of_file):
    created = factories.make_experiment(
        "sums", owner=people_of_file["owner"], dataset=factories.make_dataset("sums", 5), samples=2, sharing="group"
    )
    (run,) = factories.make_runs(created, status="done")
    factories.plan_trials(run, answer=lambda item, _, index: f"It is {item.target}.")
    return created


@pytest.fixture
def trial(experiment):
    return experiment.runs.get().trials.order_by("pk").first()
