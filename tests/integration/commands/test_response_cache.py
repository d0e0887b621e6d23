import json

import pytest

from runs_app.models import CachedAnswer, Trial
from runs_app.planning import plan as plan_module
from tests import factories
from tests.factories.drafts import make_draft_experiment


@pytest.fixture
def cached_answers(db):
    plan_module.plan(make_draft_experiment())
    Trial.objects.update(status=Trial.Status.DONE)
    CachedAnswer.objects.bulk_create(CachedAnswer(key=str(trial.pk), trial=trial) for trial in Trial.objects.all())


def test_it_counts_cached_answers(manage, cached_answers):
    assert manage("response_cache", "show").out.startswith("3 answers are cached; ")
    content = json.loads(manage("response_cache", "show", "--json").out)
    assert (content["answers"], content["emptied"]) == (3, [])
    assert content["bytes"] > 0


def test_it_clears_the_cache_after_confirmation_and_keeps_the_trials(manage, cached_answers):
    result = manage("response_cache", "purge")
    assert (result.code, CachedAnswer.objects.count()) == (3, 3)
    assert manage("response_cache", "purge", "--yes").out == "3 cached answers were cleared\n"
    assert (CachedAnswer.objects.count(), Trial.objects.count()) == (0, 3)


def test_it_shows_who_cleared_it_when_and_why(manage, cached_answers):
    factories.make_user("curator")
    manage("response_cache", "purge", "--yes", "--user", "curator", "--reason", "the model was replaced")
    manage("response_cache", "purge", "--yes")
    _, last, first = manage("response_cache", "show").out.splitlines()
    assert first.endswith("curator cleared 3 answers: the model was replaced")
    assert "cleared 0 answers" in last
    (_, last_purge) = json.loads(manage("response_cache", "show", "--json").out)["emptied"]
    assert (last_purge["by"], last_purge["held"], last_purge["reason"]) == (
        "curator",
        "3 answers",
        "the model was replaced",
    )
