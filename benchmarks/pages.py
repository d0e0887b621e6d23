"""The response time of pages at a million trials: `python benchmarks/pages.py [TRIALS]`, on a temporary database.

For each page it prints the median and the slowest of REPEATS requests in milliseconds, the queries, and the size. The
trials belong to RUNS runs in each of EXPERIMENTS experiments. A researcher sees only the experiment that was planned
last.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

import django

django.setup()

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evalsite.lib import permissions
from runs_app.models import Experiment, Run, Trial
from runs_app.models.annotations import annotate
from tests import factories

EXPERIMENTS, RUNS, ITEMS, REPEATS = 4, 10, 1000, 5

FILL = """
INSERT INTO runs_app_trial (run_id, item_id, dimension_id, sample_idx, status, attempts, rating, answer, raw_response,
    error_class, truncated, cost_usd, completed_at)
SELECT %(run)s, item.id, NULL, sample_idx,
    CASE WHEN n %% 50 = 0 THEN 'failed' WHEN n %% 97 = 0 THEN 'pending' ELSE 'done' END, 1, 1 + n %% 7,
    'The answer is ' || n || '. ' || repeat('It was reasoned about at some length. ', 12), repeat('x', 600),
    CASE WHEN n %% 500 = 0 THEN 'refusal' WHEN n %% 50 = 0 THEN 'timeout' ELSE '' END, n %% 1000 = 0, 0.0001, now()
FROM (SELECT id, row_number() OVER (ORDER BY id) AS at FROM datasets_app_item WHERE dataset_id = %(dataset)s) AS item
CROSS JOIN generate_series(0, %(samples)s - 1) AS sample_idx
CROSS JOIN LATERAL (SELECT item.at + sample_idx * %(items)s AS n) AS numbered
ORDER BY sample_idx, item.id
"""


def create_trials(trials: int) -> list[Experiment]:
    samples = trials // (EXPERIMENTS * RUNS * ITEMS)
    dataset = factories.make_dataset("many", ITEMS)
    models = [factories.make_model(f"m{at}") for at in range(RUNS)]
    experiments = []
    for at in range(EXPERIMENTS):
        experiment = factories.make_experiment(
            f"big-{at}", dataset=dataset, models=models, samples=samples, status="active"
        )
        for run in factories.make_runs(experiment, status="done"):
            with connection.cursor() as cursor:
                cursor.execute(FILL, {"run": run.pk, "dataset": dataset.pk, "samples": samples, "items": ITEMS})
            factories.refresh_counters(run)
            Run.objects.filter(pk=run.pk).update(errors={"timeout": 450, "refusal": 50})
        experiments.append(experiment)
        create_annotations(experiment)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return experiments


def create_annotations(experiment: Experiment) -> None:
    """Annotate two hundred trials and fifty items, as people do over some weeks."""
    for trial in Trial.objects.filter(run__experiment=experiment).select_related("run", "item")[:200]:
        annotate(trial, "flag" if trial.pk % 2 else "note", f"I looked at {trial}.", by=experiment.owner)
    for item in experiment.dataset.items.all()[:50]:
        annotate(item, "flag", f"{experiment}: ambiguous", by=experiment.owner)


def list_pages(experiment: Experiment) -> dict[str, str]:
    trials, run = reverse("trial_list"), experiment.runs.latest("pk")
    middle = Trial.objects.filter(run=run).order_by("pk")[1000]
    return {
        "home": reverse("home"),
        "experiments": reverse("experiment_list"),
        "progress": reverse("experiment_progress", args=[experiment.slug]),
        "run": reverse("run_detail", args=[run.pk]),
        "trials": trials,
        "trials, deep": f"{trials}?after={middle.pk}",
        "trials, back": f"{trials}?before={middle.pk}",
        "experiment": f"{trials}?experiment={experiment.slug}",
        "run's trials": f"{trials}?run={run.pk}",
        "failed": f"{trials}?status=failed",
        "running (none)": f"{trials}?status=running",
        "error class": f"{trials}?error=refusal",
        "one item": f"{trials}?item=item-7",
        "an item's rating": f"{trials}?item=item-7&rating=3",
        "category": f"{trials}?category=even",
        "rating": f"{trials}?rating=7",
        "truncated": f"{trials}?truncated=true",
        "from cache (none)": f"{trials}?from_cache=true",
        "text": f"{trials}?contains=answer+is+777",
        "text (none)": f"{trials}?contains=no+such+words",
        "text in a run": f"{trials}?contains=no+such+words&run={run.pk}",
        "by item": f"{trials}?sort=-item",
        "by status, deep": f"{trials}?sort=status&after=done~{middle.pk}",
        "a run by rating": f"{trials}?run={run.pk}&sort=-rating",
        "a run by cost": f"{trials}?run={run.pk}&sort=cost_usd",
        "flagged": f"{trials}?flag=true",
        "flagged by rating": f"{trials}?flag=true&sort=rating",
        "notes": f"{trials}?note=looked",
        "disagree": f"{trials}?experiment={experiment.slug}&disagree=true",
        "item": reverse("item_page", args=[middle.item_id]),
        "notes of experiment": reverse("experiment_annotations", args=[experiment.slug]),
        "trial": reverse("trial_detail", args=[middle.pk]),
        "trial, by text": reverse("trial_detail", args=[middle.pk]) + "?contains=no+such+words",
    }


@dataclass
class PageTimes:
    """The times of the requests to a page, in milliseconds.

    wall: by the clock. processor: of this process. sql: of all queries of one request. size: of the response, in bytes.
    """

    wall: list[float]
    processor: list[float]
    sql: float
    queries: int
    size: int

    def __str__(self) -> str:
        middle = [f"{statistics.median(self.wall):8.0f}", f"{max(self.wall):8.0f}"]
        totals = [f"{statistics.median(self.processor):10.0f}", f"{self.sql:6.0f}", f"{self.queries:8}"]
        return " ".join([*middle, *totals, f"{self.size / 1000:5.0f}"])


def measure_page(client: Client, address: str) -> PageTimes:
    wall, processor = [], []
    for _ in range(REPEATS):
        start, busy = time.perf_counter(), time.process_time()
        response = client.get(address)
        wall.append(1000 * (time.perf_counter() - start))
        processor.append(1000 * (time.process_time() - busy))
        assert response.status_code == 200, address
    with CaptureQueriesContext(connection) as queries:
        client.get(address)
    sql = 1000 * sum(float(query["time"]) for query in queries)
    return PageTimes(wall, processor, sql, len(queries), len(response.content))


def main(trials: int) -> None:
    start = time.perf_counter()
    experiments = create_trials(trials)
    print(f"{Trial.objects.count():,} trials, filled in {time.perf_counter() - start:.0f} s", flush=True)
    late = experiments[-1]
    late.owner = factories.make_user("researcher", permissions.RESEARCHER)
    late.save()
    people = {"operator, who sees all": factories.make_user("operator", permissions.OPERATOR), "researcher": late.owner}
    for role, user in people.items():
        client = Client(headers={"host": "localhost"})
        client.force_login(user)
        print(f"\n{role}\n{'page':18} median ms  slowest  processor    SQL  queries    kB")
        for name, address in list_pages(late).items():
            print(f"{name:18} {measure_page(client, address)}", flush=True)


if __name__ == "__main__":
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)
