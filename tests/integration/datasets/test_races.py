"""Concurrent changes of one dataset by several users or machines."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from django.db import IntegrityError, connection, transaction

from datasets_app.importing import read_items
from datasets_app.importing.dataset_writer import create_dataset, save_items
from datasets_app.models import Dataset, Item
from evalsite.lib.history import TransitionError
from tests.factories.files import build_upload

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE = 60  # Seconds until a wait counts as stuck.


def run_together(*actions):
    """Run the actions concurrently, each in a thread with its own connection; return their results or errors."""
    start = Barrier(len(actions), timeout=DEADLINE)

    def run(action):
        try:
            start.wait()
            return action()
        except Exception as error:  # noqa: BLE001 - the outcome is what the test looks at
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result(timeout=DEADLINE) for future in [pool.submit(run, action) for action in actions]]


def reload_dataset(dataset: Dataset) -> Dataset:
    return Dataset.objects.get(pk=dataset.pk)


def test_of_concurrent_approvals_one_succeeds(draft):
    outcomes = run_together(*[lambda: reload_dataset(draft).approve(by="a test", reason="ok")] * 6)
    assert sum(outcome is None for outcome in outcomes) == 1
    assert sum(isinstance(outcome, TransitionError) for outcome in outcomes) == 5
    assert draft.history.filter(to_value="approved").count() == 1


@pytest.mark.parametrize("attempt", range(4))
def test_an_approval_includes_every_item_that_was_added(draft, attempt):
    """Items added during the approval are either part of the hash, or refused."""

    def insert(number):
        return lambda: Item.objects.create(dataset_id=draft.pk, key=f"late-{number}", input="Q")

    outcomes = run_together(
        *(insert(n) for n in range(5)), lambda: reload_dataset(draft).approve(by="a test", reason="ok")
    )
    assert all(isinstance(outcome, Item | IntegrityError | None.__class__) for outcome in outcomes)
    approved = reload_dataset(draft)
    assert approved.status == "approved"
    assert approved.content_hash == approved.hash_items()
    assert approved.active_count == approved.items.count()


def test_an_approval_waits_for_a_change_in_progress(draft):
    inserted, go_on = Event(), Event()

    def slow_import():
        with transaction.atomic():
            save_items(reload_dataset(draft), read_items(build_upload("id,text\nlate,Q\n")), by="a test")
            inserted.set()
            go_on.wait(DEADLINE)

    def approve():
        inserted.wait(DEADLINE)
        go_on.set()  # The approval starts while the import holds the draft, and ends after it.
        reload_dataset(draft).approve(by="a test", reason="ok")

    assert run_together(slow_import, approve) == [None, None]
    assert reload_dataset(draft).active_count == 10
    assert reload_dataset(draft).hash_items() == reload_dataset(draft).content_hash


def test_concurrent_exclusions_neither_deadlock_nor_miscount(draft):
    def exclude(key):
        return lambda: reload_dataset(draft).exclude_items([key], by="a test", reason="x")

    assert run_together(*(exclude(f"k{n}") for n in range(8))) == [None] * 8
    assert reload_dataset(draft).active_count == 1


def test_concurrent_imports_get_different_versions(db):
    def load():
        return create_dataset(read_items(build_upload("id,text\na,Q\n")), slug="new", by="a test")

    assert sorted(str(dataset) for dataset in run_together(*[load] * 6)) == [f"new@{n}" for n in range(1, 7)]


def test_a_draft_is_either_deleted_or_approved(draft):
    outcomes = run_together(
        lambda: reload_dataset(draft).delete_draft(by="a test"),
        lambda: reload_dataset(draft).approve(by="a test", reason="ok"),
    )
    assert sum(outcome is None for outcome in outcomes) == 1
    assert [dataset.status for dataset in Dataset.objects.all()] in ([], ["approved"])
