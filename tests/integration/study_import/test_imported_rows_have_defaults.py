"""Rows of an import are written as lines of JSON, by the names of the database."""

from decimal import Decimal

import pytest

from grading_app.models import Grading
from grading_app.study_import.row_writer import reserve_keys, write_rows
from runs_app.models import Trial
from tests import factories

pytestmark = pytest.mark.django_db


def make_run_with_item():
    (run,) = factories.make_runs(factories.make_experiment(), status="done")
    return run, run.experiment.dataset.items.first()


def build_trial(run, item, **columns):
    return {"run_id": run.pk, "item_id": item.pk, "status": "done", "answer": "42", **columns}


def test_columns_that_a_row_lacks_have_their_defaults():
    run, item = make_run_with_item()
    write_rows(Trial, [build_trial(run, item, sample_idx=7, cost_usd=Decimal("0.10"))])
    trial = Trial.objects.get(sample_idx=7)
    assert (trial.attempts, trial.error, trial.rating, trial.cost_usd) == (0, "", None, Decimal("0.10"))


def test_rows_keep_the_order_and_the_keys_that_they_are_given():
    run, item = make_run_with_item()
    keys = reserve_keys(Trial, 3)
    write_rows(Trial, [build_trial(run, item, id=key, sample_idx=key) for key in keys])
    assert sorted(keys) == keys
    assert list(Trial.objects.filter(pk__in=keys).values_list("sample_idx", flat=True).order_by("pk")) == keys


def test_a_column_that_the_line_names_null_stays_empty():
    run, item = make_run_with_item()
    write_rows(Trial, [build_trial(run, item, sample_idx=8, messages=None, raw_response=None)])
    trial = Trial.objects.get(sample_idx=8)
    assert (trial.messages, trial.raw_response) == (None, None)


def test_no_rows_need_no_statement(django_assert_num_queries):
    with django_assert_num_queries(0):
        write_rows(Grading, [])
