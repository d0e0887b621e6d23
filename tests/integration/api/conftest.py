"""A lab with a private experiment of the owner, and a user in each role."""

import pytest

from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.people import make_team


@pytest.fixture
def team():
    return make_team()


@pytest.fixture
def pilot(team):
    """Return an answered experiment of the owner, which nobody else may see but an operator."""
    experiment = make_answered_experiment("pilot", items=4, models=("small", "large"), owner=team.owner)
    make_gradings(experiment, "exact", lambda trial: trial.item.position % 2, kind="rule")
    return experiment
