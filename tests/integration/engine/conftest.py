"""Fixtures for engine tests: real rows, a real drain, and a provider that is a function."""

import pytest

from runs_app.models import Run
from tests import factories


@pytest.fixture
def experiment(transactional_db):
    """Three items, one condition, two samples: six trials, pending, in a run that is running.

    The wait before another attempt is short.
    """
    team = factories.make_team()
    experiment = factories.make_experiment("pilot", owner=team.owner, samples=2, max_usd=None, backoff_s=0.1)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    return experiment


@pytest.fixture
def run(experiment):
    return Run.objects.get(experiment=experiment)
