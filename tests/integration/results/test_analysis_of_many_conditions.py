"""An analysis of 100 conditions over 1,000 items stays far below the time limit of a task."""

import time

import pytest
from django.conf import settings
from django.db import connection
from django.http import QueryDict

from datasets_app.models import Norm
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import SECTIONS
from grading_app.results.scope import ScopeForm
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
ITEMS, MODELS, PROMPTS = 1000, 25, 4
SHARE = (
    0.1  # Share of the time limit for one section, in processor time: a machine with ten times the load still finishes.
)
RATED = """INSERT INTO runs_app_trial (run_id, item_id, dimension_id, sample_idx, status, attempts, answer,
        raw_response, rating, finish_reason, served_model, input_tokens, output_tokens, cost_usd, latency_ms,
        claimed_at, completed_at)
    SELECT r.id, i.id, %(dimension)s, 0, 'done', 1, rating::text, rating::text, rating, 'stop', 'vendor/m', 900, 3,
        0.0001, 300, now(), now()
    FROM runs_app_run r, datasets_app_item i, LATERAL (SELECT least(7, greatest(1, round(
        4 + 2 * sin(i.position * 0.7) + 0.02 * (r.condition_id %% 50) + sin(i.id * 12.9898 + r.id * 78.233)))) AS rating
        ) AS said
    WHERE r.experiment_id = %(experiment)s AND i.dataset_id = %(dataset)s"""


@pytest.fixture
def rated():
    dimension = factories.make_dimension("valence")
    dataset = factories.make_dataset("pictures", ITEMS, approved=False)
    items = enumerate(dataset.items.order_by("position"))
    Norm.objects.bulk_create(Norm(item=i, dimension="valence", mean=2 + at % 40 / 10, sd=1.4, n=90) for at, i in items)
    factories.approve(dataset)
    experiment = factories.make_experiment(
        "rated", dataset=dataset, models=[factories.make_model(f"rater-{at}") for at in range(MODELS)],
        prompts=[factories.make_prompt(f"words-{at}") for at in range(PROMPTS)], dimensions=[dimension],
    )  # fmt: skip
    runs = factories.make_runs(experiment, status="done")
    with connection.cursor() as cursor:
        cursor.execute(RATED, {"dimension": dimension.pk, "experiment": experiment.pk, "dataset": dataset.pk})
    for run in runs:
        factories.refresh_counters(run)
    return experiment


def test_each_section_of_100_conditions_takes_a_tenth_of_the_limit_of_a_task(rated):
    scope = ScopeForm(QueryDict(""), rated).get_scope()
    start = time.process_time()
    data = load_analysis_data(scope)
    load = time.process_time() - start
    assert (len(data.conditions), len(data.scores.items)) == (MODELS * PROMPTS, ITEMS)
    for section in SECTIONS:
        start = time.process_time()
        section.tables(data)
        took = time.process_time() - start
        assert load + took < SHARE * settings.Q_CLUSTER["timeout"], section.name
