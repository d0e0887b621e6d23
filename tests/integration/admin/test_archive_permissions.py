"""Permission to archive a shared row: curators, and its author if no row of another user uses it."""

import pytest
from django.urls import reverse

from evalsite.lib.history import TransitionError
from grading_app.models import GradeCondition
from runs_app.models import Experiment
from tests import factories
from tests.factories.judges import make_grader, make_starter_rubric
from tests.integration.admin.conftest import make_staff

pytestmark = pytest.mark.django_db

KINDS = {
    "prompt": lambda by: factories.make_prompt(created_by=by),
    "sampler": lambda by: factories.make_sampler(created_by=by),
    "dimension": lambda by: factories.make_dimension(created_by=by),
    "rubric": lambda by: make_starter_rubric(created_by=by),
    "grader": lambda by: make_row(make_grader("mine"), by),
}


def make_row(row, by):
    type(row).objects.filter(pk=row.pk).update(created_by=by)
    row.refresh_from_db()
    return row


def try_to_archive(kind, row, by):
    row.archive(by=by, reason="superseded")
    row.refresh_from_db()
    return row.archived_at if kind == "grader" else row.status == "archived"


def make_user_experiment(kind, row, owner):
    """Return an experiment of this owner that uses the row."""
    axes = {f"{kind}s": [row]} if kind in ("prompt", "sampler", "dimension") else {}
    experiment = factories.make_experiment("its-user", owner=owner, **axes)
    if kind not in axes and not axes:
        used = {"grader": row, "rubric": row.rubric} if kind == "grader" else {"rubric": row}
        GradeCondition.objects.create(experiment=experiment, grade_condition_id="g--1", kind="judge", **used)
    return experiment


@pytest.fixture
def other_user(db):
    return make_staff("other", "Researcher")


@pytest.mark.parametrize("kind", KINDS)
def test_its_author_archives_what_only_own_experiments_use(kind, researcher):
    row = KINDS[kind](researcher)
    make_user_experiment(kind, row, researcher)
    assert try_to_archive(kind, row, researcher)


@pytest.mark.parametrize("kind", KINDS)
def test_its_author_does_not_archive_what_others_use_and_is_told_why(kind, researcher, other_user, curator):
    row = KINDS[kind](researcher)
    make_user_experiment(kind, row, other_user)
    name = row._meta.verbose_name
    with pytest.raises(
        TransitionError, match=f"{name} .* is used by experiments of other users: only a curator"
    ) as caught:
        try_to_archive(kind, row, researcher)
    assert "its-user" not in str(caught.value)  # The experiment may be private.
    assert try_to_archive(kind, row, curator)


@pytest.mark.parametrize("kind", KINDS)
def test_only_its_author_and_curators_archive_a_row(kind, researcher, other_user, superuser):
    row = KINDS[kind](other_user)
    with pytest.raises(TransitionError, match="belongs to another user: only its author or a curator"):
        try_to_archive(kind, row, researcher)
    assert try_to_archive(kind, row, superuser)


def test_a_grader_that_a_design_of_others_names_is_used(researcher, other_user):
    row = KINDS["grader"](researcher)
    Experiment.objects.filter(pk=factories.make_experiment(owner=other_user).pk).update(graders=["mine"])
    with pytest.raises(TransitionError, match="used by experiments"):
        try_to_archive("grader", row, researcher)


@pytest.mark.parametrize("kind", KINDS)
def test_archive_is_offered_only_where_it_is_allowed(client, kind, researcher, other_user, curator):
    row = KINDS[kind](researcher)
    address = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])

    def is_offered(user):
        client.force_login(user)
        return 'name="_row_action" value="archive"' in client.get(address).content.decode()

    assert [is_offered(user) for user in (researcher, other_user, curator)] == [True, False, True]
    make_user_experiment(kind, row, other_user)
    assert [is_offered(user) for user in (researcher, other_user, curator)] == [False, False, True]
    assert try_to_archive(kind, row, curator)
    assert not is_offered(curator)


def test_a_button_that_is_not_offered_asks_for_no_reason(client, researcher, other_user):
    sampler = KINDS["sampler"](researcher)
    address = reverse("admin:runs_app_sampler_change", args=[sampler.pk])
    client.force_login(other_user)
    assert client.post(address, {"_row_action": "archive"}).status_code == 302
    client.force_login(researcher)
    assert "Archive: reason" in client.post(address, {"_row_action": "archive"}).content.decode()


def test_the_shell_archives_anything(other_user):
    assert try_to_archive("sampler", KINDS["sampler"](other_user), "command line")


def test_the_admin_says_why_it_refuses(client, researcher, other_user):
    sampler = KINDS["sampler"](researcher)
    make_user_experiment("sampler", sampler, other_user)
    client.force_login(researcher)
    chosen = {"action": "archive", "_selected_action": [sampler.pk], "confirmed": "yes", "reason": "old"}
    page = client.post("/admin/runs_app/sampler/", chosen, follow=True).content.decode()
    assert "is used by experiments of other users: only a curator can archive it" in page
    sampler.refresh_from_db()
    assert sampler.status == "approved"
