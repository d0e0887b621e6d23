import json

import pytest

from runs_app.designs import planning
from runs_app.models import CachedAnswer, Trial
from tests.planning.world import make_experiment


@pytest.fixture
def remembered(db):
    planning.plan(make_experiment())
    CachedAnswer.objects.bulk_create(CachedAnswer(key=str(trial.pk), trial=trial) for trial in Trial.objects.all())


def test_it_counts_what_is_remembered(manage, remembered):
    assert manage("response_cache", "show").out == "3 answers are remembered\n"
    assert json.loads(manage("response_cache", "show", "--json").out) == {"answers": 3}


def test_it_forgets_all_once_that_is_confirmed_and_keeps_the_trials(manage, remembered):
    refused = manage("response_cache", "purge")
    assert (refused.code, CachedAnswer.objects.count()) == (3, 3)
    assert manage("response_cache", "purge", "--yes").out == "3 answers are forgotten\n"
    assert (CachedAnswer.objects.count(), Trial.objects.count()) == (0, 3)
