"""A name without a version means its newest approved version, whoever makes a newer one and wherever."""

import pytest
from django.test import Client
from django.urls import reverse

from grading_app.grading.judging.grader_specs import create_experiment
from grading_app.models import Rubric
from runs_app.experiment_files.spec_reader import SpecError, read_spec
from runs_app.models import Dimension, Experiment, Prompt, Sampler
from runs_app.planning.plan import plan
from tests.factories import make_model, make_prompt, make_user
from tests.factories.drafts import make_draft_dimension, make_draft_sampler, make_question_prompt
from tests.factories.tokens import make_api_client

pytestmark = pytest.mark.django_db
SHARED = {
    "prompts": (Prompt, {"messages": [{"role": "user", "content": "{{input}}"}]}),
    "samplers": (Sampler, {"temperature": 0}),
    "dimensions": (Dimension, {"instructions": "How pleasant?"}),
}


@pytest.fixture
def other_researcher(lab):
    make_model("sim")
    make_question_prompt("usual")
    return make_user("other", "Researcher")


@pytest.fixture
def as_user():
    def sign_in(user):
        web = Client()
        web.force_login(user)
        return web

    return sign_in


def create(by, name, **parts):
    content = {"experiment": name, "dataset": "questions@1", "models": ["sim"], "prompts": ["usual"]}
    return create_experiment(read_spec(content | parts), by=by)


def approve_shared(axis, curator):
    kind, content = SHARED[axis]
    row = kind.objects.create(name="common", created_by=curator, **content)
    row.approve(by=curator, reason="Read")
    return row


def send_to_admin(web, row, action, **fields):
    listing = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_changelist")
    return web.post(listing, {"action": action, "_selected_action": [row.pk], "confirmed": "yes", **fields})


@pytest.mark.parametrize("axis", SHARED)
def test_a_newer_draft_made_in_the_admin_is_not_meant(as_user, curator, researcher, other_researcher, axis):
    shared = approve_shared(axis, curator)
    send_to_admin(as_user(researcher), shared, "new_version")
    newer = type(shared).objects.get(version=2)
    assert (newer.status, newer.created_by) == ("draft", researcher)
    assert getattr(create(other_researcher, "theirs", **{axis: ["common"]}), axis).get() == shared
    assert getattr(create(researcher, "own", **{axis: ["common"]}), axis).get() == shared
    send_to_admin(as_user(curator), newer, "approve", reason="Read")
    assert getattr(create(other_researcher, "later", **{axis: ["common"]}), axis).get() == newer


@pytest.mark.parametrize("axis", SHARED)
def test_a_researcher_cannot_approve_in_the_admin(as_user, curator, researcher, other_researcher, axis):
    shared = approve_shared(axis, curator)
    send_to_admin(as_user(researcher), shared, "new_version")
    newer = type(shared).objects.get(version=2)
    send_to_admin(as_user(researcher), newer, "approve", reason="Mine")
    newer.refresh_from_db()
    assert newer.status == "draft"


def test_a_draft_that_a_researcher_launched_is_frozen_but_not_approved(lab, curator, researcher, other_researcher):
    sampler = approve_shared("samplers", curator)
    dimension = approve_shared("dimensions", curator)
    hot = make_draft_sampler("common", version=2, temperature=2, created_by=researcher)
    ugly = make_draft_dimension("common", version=2, created_by=researcher)
    own = create(researcher, "own", samplers=["common@2"], dimensions=["common@2"])
    plan(own, by=researcher)
    for row in (hot, ugly):
        row.refresh_from_db()
        assert (row.status, row.approved_at) == ("used", None)
    theirs = create(other_researcher, "theirs", samplers=["common"], dimensions=["common"])
    assert (theirs.samplers.get(), theirs.dimensions.get()) == (sampler, dimension)
    hot.approve(by=curator, reason="Read")
    assert create(other_researcher, "later", samplers=["common"]).samplers.get() == hot


def test_a_draft_that_a_curator_launched_is_approved(lab, curator, other_researcher):
    sampler = make_draft_sampler("common", created_by=curator)
    own = create(curator, "own", samplers=["common"])
    own.prompts.set([make_prompt("asked")])
    plan(own, by=curator)
    assert create(other_researcher, "theirs", samplers=["common"]).samplers.get() == sampler


def test_an_unapproved_name_means_its_authors_version_to_the_author_alone(lab, researcher, other_researcher):
    sampler = make_draft_sampler("mine", created_by=researcher)
    assert create(researcher, "own", samplers=["mine"]).samplers.get() == sampler
    with pytest.raises(SpecError) as refusal:
        create(other_researcher, "theirs", samplers=["mine"])
    assert refusal.value.problems == [
        "samplers[0]: there is no sampler mine; write mine@1 for the version that nobody has approved"
    ]
    make_draft_sampler("mine", version=2, temperature=1, created_by=other_researcher)
    assert create(researcher, "again", samplers=["mine"]).samplers.get() == sampler


def test_an_archived_import_does_not_take_a_name(lab, curator, researcher, other_researcher):
    shared = approve_shared("samplers", curator)
    own = create(researcher, "own", samplers=[{"name": "common", "temperature": 2}]).samplers.get()
    Experiment.objects.filter(slug="own").delete()
    own.archive(by=researcher, reason="Mine")
    assert create(other_researcher, "theirs", samplers=["common"]).samplers.get() == shared


def test_a_file_does_not_reuse_the_draft_of_somebody_who_can_change_it(lab, researcher, other_researcher):
    draft = make_draft_sampler("common", created_by=researcher)
    spec = {"name": "common", **draft.content}
    assert create(other_researcher, "theirs", samplers=[spec]).samplers.get() != draft
    assert create(researcher, "own", samplers=[spec]).samplers.get() == draft


def test_a_design_sent_to_the_api_follows_the_same_rule(lab, curator, researcher, other_researcher):
    shared = approve_shared("samplers", curator)
    make_draft_sampler("common", version=2, temperature=2, created_by=researcher)
    design = {"experiment": "sent", "dataset": "questions@1", "models": ["sim"], "prompts": ["usual"]}
    body = {"design": {**design, "samplers": ["common"]}}
    response = make_api_client(other_researcher).post("/api/v1/experiments", body, content_type="application/json")
    assert response.status_code == 201, response.content
    assert Experiment.objects.get(slug="sent").samplers.get() == shared


def test_a_researchers_rubric_draft_does_not_take_the_name(curator, researcher):
    shared = Rubric.objects.create(name="strict", messages=[{"role": "user", "content": "Judge {{answer}}"}])
    shared.approve(by=curator, reason="Read")
    newer = shared.create_new_version(by=researcher)
    assert Rubric.objects.named("strict").get() == shared
    assert Rubric.objects.newest("strict").get() == newer


def test_only_its_author_or_a_curator_edits_a_draft(as_user, curator, researcher, other_researcher):
    draft = make_draft_sampler("common", created_by=researcher)
    page = reverse("admin:runs_app_sampler_change", args=[draft.pk])
    fields = {"temperature": "2", "extra": ""}
    for person, temperature in ((other_researcher, 0), (researcher, 2)):
        as_user(person).post(page, fields)
        draft.refresh_from_db()
        assert draft.temperature == temperature
    as_user(curator).post(page, fields | {"temperature": "1"})
    draft.refresh_from_db()
    assert draft.temperature == 1
