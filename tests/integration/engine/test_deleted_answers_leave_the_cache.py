"""Deleting an experiment deletes its cached answers; an equal request then makes a new call."""

import pytest

from runs_app import deletion, run_control
from runs_app.models import CachedAnswer, Run, Trial
from tests.integration.engine.test_the_response_cache import counting, designed, drained


@pytest.mark.slow
def test_deleting_an_experiment_deletes_its_cached_answers(transactional_db):
    call, asked = counting()
    first = designed("first")
    run_control.launch(first, by="test")
    drained(call)
    assert CachedAnswer.objects.count() == len(asked) == 6

    deletion.delete(first, by="test", reason="a try")
    assert not CachedAnswer.objects.exists()
    assert not Trial.objects.exists()

    run_control.launch(designed("second"), by="test")
    drained(call)
    assert len(asked) == 12
    assert Run.objects.get().n_done == 6
