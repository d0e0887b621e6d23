"""Planning of batched runs and their reservations."""

import pytest

from grading_app.grading.judging.grader_specs import create_experiment
from runs_app.experiment_files.spec_reader import read_spec
from runs_app.models import Endpoint, Run
from runs_app.planning.design import Design
from runs_app.planning.plan import plan
from runs_app.planning.spec_io import build_spec
from tests import factories

pytestmark = pytest.mark.django_db


def make_batched_draft(**fields):
    model = factories.make_model("priced", max_output_tokens=100)
    return factories.make_experiment(models=[model], **fields)


def test_a_run_is_batched_if_experiment_and_endpoint_allow_it_and_reserves_at_batch_prices():
    experiment = make_batched_draft(batch=True)
    plan(experiment)
    alone = Run.objects.get()
    assert not alone.is_batched
    Endpoint.objects.update(batch_api="openai")
    plan(experiment)
    batched = Run.objects.get()
    assert batched.is_batched
    assert float(batched.reserve_usd) == pytest.approx(float(alone.reserve_usd) / 2, abs=1e-8)


def test_batching_does_not_change_the_condition():
    experiment = make_batched_draft()
    Endpoint.objects.update(batch_api="openai")
    plan(experiment)
    experiment.batch = True
    experiment.save()
    plan(experiment)
    assert Run.objects.get().is_batched


def test_rounds_in_batches_are_planned_with_a_warning_about_their_duration():
    rule = {"by": "category", "scorer": "exact_match", "targetci": 0.1, "round": 32, "max": 100}
    dataset = factories.make_dataset("questions", [{"key": f"q{n}", "input": "?", "category": "all"} for n in range(4)])
    experiment = make_batched_draft(dataset=dataset, batch=True, adaptive=rule, scorers=["exact_match"])
    Endpoint.objects.update(batch_api="openai")
    assert "a point has up to 4" in " ".join(Design.load(experiment).find_warnings())
    plan(experiment)
    assert Run.objects.get().is_batched


def test_an_experiment_file_reads_and_writes_the_batch_setting():
    model = factories.make_model("small")
    prompt = factories.make_prompt("plain")
    dataset = factories.make_dataset("items")
    owner = factories.make_user("owner")
    axes = {"dataset": str(dataset), "models": [model.name], "prompts": [str(prompt)]}
    spec = {"experiment": "told", "batch": True, **axes}
    experiment = create_experiment(read_spec(spec), by=owner, trusted=True)
    assert experiment.batch
    assert build_spec(experiment)["batch"] is True
