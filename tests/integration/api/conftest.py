"""A lab with a private experiment of the owner, and a user in each role."""

from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.people import make_team
from tests.shared_rows import shared_rows


@shared_rows
def team():
    return make_team()


@shared_rows
def pilot(team_of_file):
    """Return an answered experiment of the owner, which nobody else may see but an operator."""
    experiment = make_answered_experiment("pilot", items=4, models=("small", "large"), owner=team_of_file.owner)
    make_gradings(experiment, "exact", lambda trial: trial.item.position % 2, kind="rule")
    return experiment
