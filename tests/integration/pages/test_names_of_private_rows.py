"""Reasons, choices, errors and admin pages never name a private experiment or rows hidden from a role."""

import pytest
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.test import RequestFactory
from django.urls import reverse

from evalsite.lib import permissions
from evalsite.lib.history import StatusChange
from grading_app.models import RaterAssignment, RatingQueue
from runs_app.experiment_files.spec_reader import SpecError
from runs_app.models import Experiment
from runs_app.planning.plan import plan
from runs_app.planning.spec_io import duplicate
from tests import factories

pytestmark = pytest.mark.django_db
SECRET = "unannounced"


@pytest.fixture
def private_experiment(lab, people):
    """Return the owner's private experiment, planned, with a sampler of the group that was a draft."""
    sampler = factories.make_sampler("warm", status="draft")
    experiment = factories.make_experiment(
        SECRET, owner=people["owner"], models=[lab.model], samplers=[sampler], dataset=lab.experiment.dataset,
        prompts=[factories.make_prompt("plain")],
    )  # fmt: skip
    plan(experiment, by=people["owner"])
    return experiment


def test_the_reason_why_a_version_is_frozen_names_no_experiment(private_experiment, as_):
    sampler = private_experiment.samplers.get()
    assert sampler.status == "used"
    reasons = StatusChange.objects.for_row(sampler).values_list("reason", flat=True)
    assert list(reasons) == ["Used by an experiment"]
    page = as_("researcher").get(reverse("admin:runs_app_sampler_change", args=[sampler.pk])).content.decode()
    assert SECRET not in page


def test_a_name_in_use_is_refused_without_revealing_by_whom(private_experiment, people):
    for make in (
        lambda name: Experiment(slug=name).validate_unique(),
        lambda name: duplicate(private_experiment, name, by=people["researcher"]),
    ):
        with pytest.raises((ValidationError, SpecError)) as caught:
            make(SECRET)
        assert "not available" in str(caught.value)
        assert "exists" not in str(caught.value)


ADMIN = ["datasets_app_dataset", "lib_statuschange", "runs_app_experiment", "runs_app_run", "runs_app_prompt",
         "runs_app_sampler", "runs_app_providerbatch", "grading_app_ratingqueue", "grading_app_raterassignment",
         "grading_app_grader", "grading_app_rubric"]  # fmt: skip


@pytest.mark.parametrize("name", ADMIN)
def test_admin_lists_name_neither_private_experiments_nor_unrelated_people(name, private_experiment, as_, people):
    factories.make_user("somebody-who-rates", permissions.RATER)
    private_experiment.runs.first().batches.create(endpoint_id=private_experiment.language_models.get().endpoint_id)
    response = as_("researcher").get(reverse(f"admin:{name}_changelist"))
    assert response.status_code in (200, 403)
    page = response.content.decode()
    assert SECRET not in page
    assert "somebody-who-rates" not in page


def test_a_queue_over_private_answers_is_hidden_from_others_in_the_admin(lab, as_, people):
    queue = RatingQueue.objects.create(
        name="verdicts",
        subject="answers",
        owner=people["owner"],
        dataset=lab.experiment.dataset,
        experiment=lab.experiment,
    )
    RaterAssignment.objects.create(queue=queue, user=people["rater"], number=1, seed=1)
    for model in (RatingQueue, RaterAssignment):
        rows = admin.site.get_model_admin(model).get_queryset(build_request(people["researcher"]))
        assert not rows.filter(**{"pk" if model is RatingQueue else "queue": queue.pk}).exists()
        assert admin.site.get_model_admin(model).get_queryset(build_request(people["owner"])).exists()


def build_request(user):
    request = RequestFactory().get("/")
    request.user = user
    return request


@pytest.mark.slow
def test_a_viewer_reads_no_name_of_an_endpoint(lab, as_, people):
    endpoint = lab.model.endpoint
    type(endpoint).objects.filter(pk=endpoint.pk).update(name="basement-gpu")
    lab.experiment.share("people", [people["viewer"]], by=people["owner"])
    batch = lab.run.batches.create(endpoint=endpoint)
    addresses = [
        reverse("batch_list"),
        batch.get_absolute_url(),
        lab.run.get_absolute_url(),
        lab.trial.get_absolute_url(),
        *(reverse(name, args=["pilot"]) for name in ("experiment_detail", "experiment_progress", "experiment_results")),
        *(
            reverse(name, args=["pilot"])
            for name in ("experiment_grading", "experiment_ledger", "experiment_agreement")
        ),
    ]
    for address in addresses:
        response = as_("viewer").get(address)
        assert response.status_code == 200
        assert "basement-gpu" not in response.content.decode(), address
    assert "basement-gpu" in as_("owner").get(reverse("batch_list")).content.decode()
    assert "basement-gpu" in as_("owner").get(lab.run.get_absolute_url()).content.decode()
