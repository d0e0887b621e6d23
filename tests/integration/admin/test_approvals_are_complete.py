"""Approved versions have a content hash and an approval time; the database refuses others."""

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from grading_app.models import Rubric
from runs_app.models import Dimension, Prompt, Sampler
from tests import factories
from tests.factories.judges import make_item_texts, make_starter_rubric

pytestmark = pytest.mark.django_db

DRAFTS = {
    "runs_app_prompt": lambda: factories.make_prompt(status="draft"),
    "runs_app_dimension": lambda: factories.make_dimension(status="draft"),
    "runs_app_sampler": lambda: factories.make_sampler(status="draft"),
    "runs_app_textset": lambda: make_item_texts(factories.make_dataset(), status="draft"),
    "grading_app_rubric": lambda: make_starter_rubric(status="draft"),
}


@pytest.mark.parametrize("missing", ["content_hash = ''", "approved_at = NULL"])
@pytest.mark.parametrize("table", DRAFTS)
def test_plain_sql_cannot_approve_without_hash_and_time(table, missing):
    row = DRAFTS[table]()
    type(row).objects.update(approved_at=timezone.now())
    sql = f"UPDATE {table} SET status = 'approved', {missing} WHERE id = {row.pk}"
    with pytest.raises(IntegrityError, match=f"{table}_approval_is_complete"), transaction.atomic():
        connection.cursor().execute(sql)


@pytest.mark.parametrize("table", DRAFTS)
def test_an_approval_stores_its_time(table):
    row = DRAFTS[table]()
    row.approve(by="a curator", reason="read and tried")
    assert row.approved_at is not None
    assert row.create_new_version(by=None).approved_at is None


def test_rows_created_as_approved_have_their_time():
    made = [factories.make_prompt(), factories.make_sampler(), factories.make_dimension(), make_starter_rubric()]
    assert {type(row) for row in made} == {Prompt, Sampler, Dimension, Rubric}
    assert all(row.approved_at for row in made)
