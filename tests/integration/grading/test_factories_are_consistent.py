"""Consistency of the factories that other tests use."""

import pytest

from runs_app.models import Experiment, Run
from tests import factories

pytestmark = pytest.mark.django_db


def test_only_owner_team_and_operators_see_a_private_experiment():
    team = factories.make_team()
    factories.make_experiment(owner=team.owner, shared_with=[team.teammate])
    visibility = {name: Experiment.objects.visible_to(getattr(team, name)).exists() for name in vars(team)}
    assert visibility == {"owner": True, "teammate": True, "outsider": False, "rater": False, "operator": True}


def test_runs_and_trials_cover_the_whole_design_and_counters_equal_rows():
    experiment = factories.make_experiment(
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")],
        samples=2,
    )
    runs = factories.make_runs(experiment)
    for run in runs:
        factories.plan_trials(run, answer=lambda item, dimension, index: "4" if index else None)
    assert [(run.n_pending, run.n_done) for run in Run.objects.all()] == [(6, 6), (6, 6)]
