"""The budget policies: `dev` plans the first items of a design, `full` adds the rest, and no trial is repeated."""

import pytest
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.judging.grader_specs import create_experiment
from runs_app import run_control
from runs_app.experiment_files import spec_reader
from runs_app.models import Experiment, Manifest, Point, Run, Trial
from runs_app.planning import spec_io
from runs_app.planning.cost_estimate import estimate, summarise_experiment
from runs_app.planning.design import Design
from tests import factories
from tests.factories.drafts import (
    RATING,
    get_or_make_user,
    make_draft_dimension,
    make_draft_experiment,
    make_question_prompt,
    make_questions,
    make_rehearsal_model,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def dev():
    """A design of ten items, two models and three samples; dev plans two items and one sample."""
    return make_draft_experiment(
        dataset=make_questions(10),
        models=[make_rehearsal_model("a"), make_rehearsal_model("b")],
        samples=3,
        budget_policy="dev",
        dev_samples=1,
        owner=factories.make_user("rita", permissions.RESEARCHER),
    )


def list_planned():
    return sorted(set(Trial.objects.values_list("item__key", "sample_idx")))


def test_dev_plans_the_first_items_of_every_condition_and_full_adds_only_the_rest(dev):
    foreseen = estimate(dev)
    assert (foreseen.trials, foreseen.to_do, foreseen.policy_text) == (4, 4, "the first 2 of 10 items, 1 of 3 samples")
    report = run_control.launch(dev, by="test", approved=foreseen)
    assert (report.trials_added, Run.objects.count()) == (4, 2)
    assert list_planned() == [("q000000", 0), ("q000001", 0)]
    dev_trials = set(Trial.objects.values_list("pk", flat=True))
    assert (estimate(dev).to_do, estimate(dev, policy="full").to_do) == (4, 60)
    assert run_control.launch(dev, by="test", policy="full").trials_added == 56
    assert dev_trials < set(Trial.objects.values_list("pk", flat=True))
    assert run_control.launch(dev, by="test").trials_added == 0


def test_the_full_cost_does_not_depend_on_the_policy(dev):
    assert estimate(dev).full_usd == estimate(dev, policy="full").full_usd > estimate(dev).ceiling_usd


def test_dev_skips_excluded_items():
    experiment = make_draft_experiment(dataset=make_questions(4, excluded=(0,)), budget_policy="dev")
    run_control.launch(experiment, by="test")
    assert [key for key, _ in list_planned()] == ["q000001", "q000002"]


def test_dev_makes_single_calls_instead_of_batches():
    endpoint = factories.make_endpoint("batching", batch_api="openai")
    experiment = make_draft_experiment(
        models=[make_rehearsal_model("a", endpoint=endpoint)], batch=True, budget_policy="dev", dev_items=1
    )
    run_control.launch(experiment, by="test")
    assert not Run.objects.get().is_batched
    run_control.launch(experiment, by="test", policy="full")
    assert Run.objects.get().is_batched


@pytest.mark.slow
def test_estimates_of_alternating_pilots_and_dev_launches_are_exact():
    experiment = make_draft_experiment(
        dataset=make_questions(30), models=[make_rehearsal_model("a"), make_rehearsal_model("b")]
    )
    for how in ({"pilot": 6}, {"policy": "dev"}, {"pilot": 20}, {"policy": "dev", "pilot": 2}, {}):
        Run.objects.update(n_pending=0, n_done=0)  # An estimate counts all pending trials.
        n_trials = {run.pk: run.trials.count() for run in Run.objects.all()}
        for key, n in n_trials.items():
            Run.objects.filter(pk=key).update(n_done=n)
        foreseen = estimate(experiment, **how).to_do
        assert run_control.launch(experiment, by="test", **how).trials_added == foreseen, how
    assert Trial.objects.count() == 60


def test_a_dev_launch_of_an_adaptive_design_has_no_points_and_its_trials_are_not_repeated():
    experiment = make_draft_experiment(
        dataset=make_questions(8, category="a"),
        prompts=[make_question_prompt("rate", RATING, answer_format="rating")],
        dimensions=[make_draft_dimension("valence")],
        scorers=["rating"],
        adaptive={"by": "category", "scorer": "rating", "round": 8, "max": 8, "targetci": 0.5},
        budget_policy="dev",
    )
    assert estimate(experiment).to_do == 2
    run_control.launch(experiment, by="test")
    assert (Trial.objects.count(), Point.objects.count()) == (2, 0)
    assert run_control.launch(experiment, by="test", policy="full").trials_added == 6
    assert Trial.objects.count() == 8


def test_the_manifest_records_the_launched_policy(dev):
    run_control.launch(dev, by="test", approved=estimate(dev))
    run_control.launch(dev, by="test", policy="full")
    full, first_manifest = Manifest.objects.all()
    assert (first_manifest.launch["policy"], full.launch["policy"]) == ("dev", "full")
    assert first_manifest.summary == "all trials under the dev policy, by test"
    assert first_manifest.content["budget"]["dev_items"] == 2


def test_the_policy_is_part_of_the_file_and_of_a_copy(dev):
    budget = spec_io.build_spec(dev)["budget"]
    assert budget == {"policy": "dev", "dev_samples": 1}
    plain = make_draft_experiment("other", dataset=dev.dataset, models=[], prompts=[], samplers=[])
    assert "budget" not in spec_io.build_spec(plain)
    spec = spec_reader.read_yaml(spec_io.to_yaml(dev)).model_copy(update={"experiment": "again"})
    created = create_experiment(spec, by=get_or_make_user(), trusted=True)
    copy = spec_io.duplicate(dev, "copy", by=get_or_make_user())
    for experiment in (created, copy):
        assert (experiment.budget_policy, experiment.dev_items, experiment.dev_samples) == ("dev", 2, 1)


def test_the_form_and_the_launch_page_offer_the_policy(dev, client):
    client.force_login(dev.owner)
    form = client.get(reverse("experiment_edit", args=["pilot"])).content.decode()
    assert 'name="budget_policy"' in form
    page = client.get(reverse("experiment_launch", args=["pilot"])).content.decode()
    assert "the first 2 of 10 items, 1 of 3 samples" in page
    assert "policy=full" in page
    client.post(reverse("experiment_launch", args=["pilot"]), {"policy": "full"})
    assert Trial.objects.count() == 60


def test_the_summary_follows_the_budget_policy(dev):
    summary = summarise_experiment(dev)
    assert (summary.items, summary.samples, summary.estimate.trials) == (2, 1, 4)
    assert Design.load(dev).experiment is dev
    assert summarise_experiment(dev, policy="full").items == 10
    assert Experiment.objects.get().budget_policy == "dev"
