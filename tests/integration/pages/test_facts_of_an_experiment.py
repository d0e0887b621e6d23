"""The facts beside a design show what its author chose. Settings with their default values are folded."""

import pytest

from tests import factories
from tests.page_text import page_text

pytestmark = pytest.mark.django_db


def test_chosen_settings_stand_before_those_with_their_defaults(client):
    experiment = factories.make_experiment(samples=7, lease_s=333)
    client.force_login(experiment.owner)
    page = client.get(experiment.get_absolute_url())
    chosen, defaults = page.context["chosen_options"], page.context["default_options"]
    assert {("Samples", "7 per cell"), ("Lease", "333 s")} <= set(chosen)
    assert "Attempts" in dict(defaults)
    assert sorted([*chosen, *defaults]) == sorted(experiment.describe_options())
    before, _, folded = page_text(page).partition("settings have their defaults")
    assert "333 s" in before
    assert "Attempts" in folded
