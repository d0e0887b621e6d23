"""Deleting an experiment deletes its cached answers; an equal request then makes a new call."""

import pytest

from runs_app import deletion, run_control
from runs_app.models import CachedAnswer, Run, Trial
from tests.integration.engine.test_the_response_cache import drain_with, make_cached_experiment, record_requests


@pytest.mark.slow
def test_deleting_an_experiment_deletes_its_cached_answers(transactional_db):
    call, requests = record_requests()
    first_experiment = make_cached_experiment("first")
    run_control.launch(first_experiment, by="test")
    drain_with(call)
    assert CachedAnswer.objects.count() == len(requests) == 6

    deletion.delete(first_experiment, by="test", reason="a try")
    assert not CachedAnswer.objects.exists()
    assert not Trial.objects.exists()

    run_control.launch(make_cached_experiment("second"), by="test")
    drain_with(call)
    assert len(requests) == 12
    assert Run.objects.get().n_done == 6
