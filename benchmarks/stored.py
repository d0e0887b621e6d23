"""Millions of answers, written directly into the database, for benchmarks that read them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

import django

django.setup()

from django.db import connection

from grading_app.grading.judging import grade_conditions
from runs_app.models import Experiment
from tests import factories
from tests.factories.judges import make_grader

ITEMS, MODELS = 1000, 5
PROSE = "First add the two numbers and then check the result against the question once more. " * 3

FILL = """INSERT INTO runs_app_trial (run_id, item_id, sample_idx, status, attempts, answer, raw_response,
        finish_reason, served_model, input_tokens, output_tokens, cost_usd, latency_ms, claimed_at, completed_at)
    SELECT r.id, i.id, sample, 'done', 1, text, text, 'stop', 'vendor/model-2026', 200, 80, 0.00036, 850, now(), now()
    FROM runs_app_run r, datasets_app_item i, generate_series(0, %s - 1) AS sample,
        LATERAL (
            SELECT %s || E'\\nANSWER: ' || (i.position + CASE WHEN random() < 0.6 THEN i.position ELSE 1 END) AS text
        )
    WHERE r.experiment_id = %s AND i.dataset_id = %s"""


def create_answers(rows: int, slug: str = "stored") -> Experiment:
    """Return an experiment of five models over a thousand items, with `rows` done trials.

    The number of trials is rounded down to a full design. The tables are vacuumed, as autovacuum does soon after.
    Otherwise the first reader would have to write each page.
    """
    samples = max(1, rows // ITEMS // MODELS)
    experiment: Experiment = factories.make_experiment(
        slug,
        dataset=factories.make_dataset(f"{slug}-items", ITEMS),
        models=[factories.make_model(f"model-{at}") for at in range(MODELS)],
        samples=samples,
    )
    runs = factories.make_runs(experiment, status="done")
    with connection.cursor() as cursor:
        cursor.execute(FILL, [samples, PROSE, experiment.pk, experiment.dataset_id])
        cursor.execute("VACUUM ANALYZE")
    for run in runs:
        factories.refresh_counters(run)
    return experiment


VERDICTS = """INSERT INTO runs_app_trial (run_id, item_id, sample_idx, subject_id, status, attempts, answer,
        raw_response, finish_reason, served_model, input_tokens, output_tokens, cost_usd, latency_ms, claimed_at,
        completed_at)
    SELECT %(judge)s, t.item_id, 0, t.id, 'done', 1, '{"score": 1}', '{"score": 1}', 'stop', 'vendor/judge', 400, 60,
        0.0005, 700, now(), now()
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id WHERE r.experiment_id = %(experiment)s"""
JUDGED = """INSERT INTO grading_app_grading
        (condition_id, trial_id, judged_by_id, score, score_raw, parse_ok, parse_error, reasoning, detail, created_at)
    SELECT %(condition)s, v.subject_id, v.id, v.id %% 2, '1', true, '', 'Both steps are right.',
        '{"criteria": {"correct": true, "clear": false}}', now()
    FROM runs_app_trial v WHERE v.run_id = %(judge)s"""


def create_verdicts(experiment: Experiment) -> None:
    """Store a judge's verdict on each stored answer, and its grading."""
    grader = make_grader("judge")
    condition = grade_conditions.get_or_create_condition(experiment, grader)
    assert condition.judge_condition is not None
    judge = experiment.runs.create(condition=condition.judge_condition, wave=experiment.waves.get(), status="done")
    params = {"experiment": experiment.pk, "judge": judge.pk, "condition": condition.pk}
    with connection.cursor() as cursor:
        cursor.execute(VERDICTS, params)
        cursor.execute(JUDGED, params)
        cursor.execute("ANALYZE")


@contextmanager
def temporary_database() -> Iterator[None]:
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
