"""A curator archives a shared row, and so does its author while no rows of other people use it."""

from functools import partial

import pytest

from datasets_app.models import TransitionError
from grading_app.judging.archive_rules import archive_grader
from grading_app.models import GradeCondition
from runs_app.models import Experiment
from tests import factories
from tests.factories.judges import make_starter_grader, make_starter_rubric
from tests.integration.admin.conftest import staff

pytestmark = pytest.mark.django_db

KINDS = {
    "prompt": lambda by: factories.make_prompt(created_by=by),
    "sampler": lambda by: factories.make_sampler(created_by=by),
    "dimension": lambda by: factories.make_dimension(created_by=by),
    "rubric": lambda by: make_starter_rubric(created_by=by),
    "grader": lambda by: _of(make_starter_grader("mine"), by),
}


def _of(row, by):
    type(row).objects.filter(pk=row.pk).update(created_by=by)
    row.refresh_from_db()
    return row


def archive(kind, row, by):
    archiving = partial(archive_grader, row) if kind == "grader" else row.archive
    archiving(by=by, reason="superseded")
    row.refresh_from_db()
    return row.archived_at if kind == "grader" else row.status == "archived"


def used_by(kind, row, owner):
    """An experiment of this owner that uses the row."""
    axes = {f"{kind}s": [row]} if kind in ("prompt", "sampler", "dimension") else {}
    experiment = factories.make_experiment("its-user", owner=owner, **axes)
    if kind not in axes and not axes:
        used = {"grader": row, "rubric": row.rubric} if kind == "grader" else {"rubric": row}
        GradeCondition.objects.create(experiment=experiment, grade_condition_id="g--1", kind="judge", **used)
    return experiment


@pytest.fixture
def other(db):
    return staff("other", "Researcher")


@pytest.mark.parametrize("kind", KINDS)
def test_its_author_archives_what_only_own_experiments_use(kind, researcher):
    row = KINDS[kind](researcher)
    used_by(kind, row, researcher)
    assert archive(kind, row, researcher)


@pytest.mark.parametrize("kind", KINDS)
def test_its_author_does_not_archive_what_others_use_and_is_told_why(kind, researcher, other, curator):
    row = KINDS[kind](researcher)
    used_by(kind, row, other)
    name = row._meta.verbose_name
    with pytest.raises(
        TransitionError, match=f"{name} .* is used by experiments of other users: only a curator"
    ) as told:
        archive(kind, row, researcher)
    assert "its-user" not in str(told.value)  # It may be a private one.
    assert archive(kind, row, curator)


@pytest.mark.parametrize("kind", KINDS)
def test_only_its_author_and_curators_archive_a_row(kind, researcher, other, superuser):
    row = KINDS[kind](other)
    with pytest.raises(TransitionError, match="belongs to another user: only its author or a curator"):
        archive(kind, row, researcher)
    assert archive(kind, row, superuser)


def test_a_grader_that_a_design_of_others_names_is_used(researcher, other):
    row = KINDS["grader"](researcher)
    Experiment.objects.filter(pk=factories.make_experiment(owner=other).pk).update(graders=["mine"])
    with pytest.raises(TransitionError, match="used by experiments"):
        archive("grader", row, researcher)


def test_the_shell_archives_anything(other):
    assert archive("sampler", KINDS["sampler"](other), "command line")


def test_the_admin_says_why_it_refuses(client, researcher, other):
    sampler = KINDS["sampler"](researcher)
    used_by("sampler", sampler, other)
    client.force_login(researcher)
    chosen = {"action": "archive", "_selected_action": [sampler.pk], "confirmed": "yes", "reason": "old"}
    page = client.post("/admin/runs_app/sampler/", chosen, follow=True).content.decode()
    assert "is used by experiments of other users: only a curator can archive it" in page
    sampler.refresh_from_db()
    assert sampler.status == "approved"
