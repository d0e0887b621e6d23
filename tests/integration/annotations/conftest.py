"""A shared experiment with answers, and people in each role."""

import pytest

from evalsite.lib import permissions
from tests import factories


@pytest.fixture
def people(db):
    roles = {"owner": "RESEARCHER", "colleague": "RESEARCHER", "viewer": "VIEWER", "operator": "OPERATOR"}
    return {name: factories.make_user(name, getattr(permissions, role)) for name, role in roles.items()}


@pytest.fixture
def experiment(people):
    created = factories.make_experiment(
        "sums", owner=people["owner"], dataset=factories.make_dataset("sums", 5), samples=2, sharing="group"
    )
    (run,) = factories.make_runs(created, status="done")
    factories.plan_trials(run, answer=lambda item, _, index: f"It is {item.target}.")
    return created


@pytest.fixture
def trial(experiment):
    return experiment.runs.get().trials.order_by("pk").first()


@pytest.fixture
def as_(client, people):
    def sign_in(name):
        client.force_login(people[name])
        return client

    return sign_in
