"""The deletion of a run looks its verdicts up, and does not read those of all other experiments."""

import pytest
from django.db import connection

from runs_app.deletion import delete_run
from runs_app.models import Trial
from tests import factories

pytestmark = pytest.mark.django_db

ANSWERS, VERDICTS = 1_000, 20_000
FILL = """
INSERT INTO runs_app_trial (run_id, item_id, sample_idx, status, attempts, subject_id)
SELECT %s, %s, sample, 'failed', 1, %s + sample FROM generate_series(1, %s) AS sample
"""
READ = """
SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables
WHERE relname = 'runs_app_trial'
"""


def count_rows_read():
    with connection.cursor() as cursor:
        cursor.execute(READ)
        return int(cursor.fetchone()[0])


def test_a_deletion_reads_no_verdicts_of_other_experiments():
    dataset = factories.make_dataset("many", 1)
    item = dataset.items.get()
    experiments = [factories.make_experiment(slug, dataset=dataset) for slug in ("own", "other")]
    own, other = (factories.make_runs(experiment, status="done")[0] for experiment in experiments)
    with connection.cursor() as cursor:
        cursor.execute(FILL, [own.pk, item.pk, None, ANSWERS])
        cursor.execute(FILL, [other.pk, item.pk, None, VERDICTS])
        first = other.trials.order_by("pk")[0].pk
        cursor.execute(FILL.replace(", sample,", f", sample + {VERDICTS},"), [other.pk, item.pk, first, VERDICTS])
        cursor.execute("ANALYZE runs_app_trial")
    before = count_rows_read()
    delete_run(own, by="owner")
    assert count_rows_read() - before < VERDICTS
    assert set(Trial.objects.values_list("run", flat=True)) == {other.pk}
