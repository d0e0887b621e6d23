"""The pages that read a finished experiment, at a million trials: `python benchmarks/reading.py [TRIALS] [--keep]`.

One experiment has TRIALS ratings of a hundred conditions, with norms and two waves. Another has half as many answers of
five models, which a rule scored. For each page it prints a worker's time, if the page uses stored numbers, and the
medians of three requests: wall and processor time with an empty cache (the first visit of a web process) and with a
filled cache. It also prints the queries, the size, and the peak memory of the process. `--keep` keeps the database
for the next run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

import django

django.setup()

from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django_q.models import OrmQ

from benchmarks.stored import create_answers
from datasets_app.models import Norm
from evalsite.lib import permissions
from evalsite.lib.ops.postgres import Embedded
from grading_app.models import GradeCondition
from grading_app.results import stored_results
from grading_app.results.cached_aggregates import TASK
from grading_app.tasks import compute_aggregates
from runs_app.models import Experiment, Trial
from tests import factories

REPEATS, ITEMS, MODELS, PROMPTS, WAVES = 3, 1000, 25, 4, 2

# Each item is right with a probability of its own, and better models are right more often.
INSERT_SCORES = """INSERT INTO grading_app_grading
        (trial_id, condition_id, score, score_raw, parse_ok, parse_error, reasoning, created_at)
    SELECT t.id, %(condition)s, (sin(t.item_id * 12.9898) + 0.1 * (r.condition_id - %(first)s) + 1.6 * random() - 0.8
        > 0)::int, 'x', true, '', '', now()
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id WHERE r.experiment_id = %(experiment)s"""
INSERT_RATINGS = """INSERT INTO runs_app_trial (run_id, item_id, dimension_id, sample_idx, status, attempts, answer,
        raw_response, rating, finish_reason, served_model, input_tokens, output_tokens, cost_usd, latency_ms,
        claimed_at, completed_at)
    SELECT r.id, i.id, %(dimension)s, sample, 'done', 1, rating::text, rating::text, rating, 'stop', 'vendor/m', 900, 3,
        0.0001, 300, now(), now()
    FROM runs_app_run r, datasets_app_item i, generate_series(0, %(samples)s - 1) AS sample, LATERAL (SELECT
        least(7, greatest(1, round(4 + 2 * sin(i.position * 0.7) + 0.02 * (r.condition_id %% 50) + 3 * random() - 1.5)))
        AS rating) AS ratings
    WHERE r.experiment_id = %(experiment)s AND i.dataset_id = %(dataset)s"""


def make_graded(trials: int) -> Experiment:
    experiment = create_answers(trials, "graded")
    condition = GradeCondition.objects.create(
        experiment=experiment, grade_condition_id="exact", kind="rule", scorer="exact_match", changes=trials
    )
    first = experiment.conditions.order_by("pk").values_list("pk", flat=True)[0]
    with connection.cursor() as cursor:
        cursor.execute(INSERT_SCORES, {"condition": condition.pk, "first": first, "experiment": experiment.pk})
    return experiment


def make_rated(trials: int) -> Experiment:
    dimension = factories.make_dimension("valence")
    dataset = factories.make_dataset("pictures", ITEMS, approved=False)
    rows = enumerate(dataset.items.order_by("position"))
    Norm.objects.bulk_create(Norm(item=i, dimension="valence", mean=2 + at % 40 / 10, sd=1.4, n=90) for at, i in rows)
    factories.approve(dataset)
    samples = max(1, trials // ITEMS // MODELS // PROMPTS // WAVES)
    experiment: Experiment = factories.make_experiment(
        "rated",
        dataset=dataset,
        models=[factories.make_model(f"rater-{at}") for at in range(MODELS)],
        prompts=[factories.make_prompt(f"words-{at}") for at in range(PROMPTS)],
        dimensions=[dimension],
        samples=samples,
    )
    runs = [run for wave in range(WAVES) for run in factories.make_runs(experiment, wave=wave, status="done")]
    params = {"dimension": dimension.pk, "samples": samples, "experiment": experiment.pk, "dataset": dataset.pk}
    with connection.cursor() as cursor:
        cursor.execute(INSERT_RATINGS, params)
    for run in runs:
        factories.refresh_counters(run)
    return experiment


def list_pages(graded: Experiment, rated: Experiment) -> dict[str, str]:
    """Return the address of each page by its name. Keys of conditions are those of this database."""
    first, second = rated.conditions.order_by("pk").values_list("pk", flat=True)[:2]
    condition, rival = graded.conditions.order_by("pk").values_list("pk", flat=True)[:2]
    item = rated.dataset.items.order_by("position").values_list("pk", flat=True)[7]
    matrix, of_ratings = (reverse("experiment_matrix", args=[experiment.slug]) for experiment in (graded, rated))
    addresses = {"experiments": reverse("experiment_list")}
    for experiment, baseline in ((graded, condition), (rated, first)):
        results = reverse("experiment_results", args=[experiment.slug])
        addresses |= {
            f"results, {experiment.slug}": results,
            f"results, {experiment.slug}, baseline": f"{results}?baseline={baseline}",
            f"results, {experiment.slug}, no score wrong": f"{results}?missing=wrong",
        }
    addresses["cost figure"] = reverse("figure_file", args=[graded.slug, "cost-exact_match", "svg"])
    for name, stem in (("graded", matrix), ("rated", of_ratings)):
        for sort in ("", "disagreement", "repetitions", "difficulty", "easiest", "norm"):
            addresses[f"matrix, {name}, sort {sort or 'of dataset'}"] = f"{stem}?sort={sort}"
        for show in ("different", "failures", "unsolved"):
            addresses[f"matrix, {name}, {show}"] = f"{stem}?show={show}"
        for display in ("answer", "length", "cost", "latency"):
            addresses[f"matrix, {name}, display {display}"] = f"{stem}?display={display}"
        addresses[f"matrix, {name}, category"] = f"{stem}?category=even"
        addresses[f"matrix, {name}, page 10"] = f"{stem}?page=10"
    addresses |= {
        "matrix, graded, A right, B wrong": f"{matrix}?a={rival}&b={condition}",
        "matrix, rated, A higher": f"{of_ratings}?a={second}&b={first}",
        "side panel": reverse("matrix_cell", args=[rated.slug, item, first]),
        "compare conditions, graded": f"{reverse('compare')}?a=graded:{condition}&b=graded:{rival}",
        "compare, lost": f"{reverse('compare')}?a=graded:{condition}&b=graded:{rival}&filter=lost",
        "compare conditions, rated": f"{reverse('compare')}?a=rated:{first}&b=rated:{second}&margin=0.2",
        "compare one condition's waves": f"{reverse('compare')}?a=rated:{first}:0&b=rated:{first}:1",
        "trials, graded": f"{reverse('trial_list')}?experiment={graded.slug}",
        "trials, rated": f"{reverse('trial_list')}?experiment={rated.slug}",
        "analysis, graded": reverse("experiment_analysis", args=[graded.slug]),
        "analysis, rated": reverse("experiment_analysis", args=[rated.slug]),
        "analysis, rated, a table": f"{reverse('experiment_analysis', args=[rated.slug])}?table=differences&format=csv",
        "analysis figure": reverse("figure_file", args=[rated.slug, "analysis-means", "svg"]),
    }
    return addresses


def run_requested_computations() -> float | None:
    """Run the requested computations as a worker would, and return the seconds; None without a request."""
    rows = [row for row in OrmQ.objects.all() if row.task["func"] == TASK]
    start = time.perf_counter()
    for row in rows:
        compute_aggregates(*row.task["args"])
        row.delete()
    return time.perf_counter() - start if rows else None


def empty_caches() -> None:
    cache.clear()
    stored_results._decode.cache_clear()


@dataclass
class PageTimes:
    """Milliseconds of the requests: wall and processor, with an empty cache and after it. memory: peak in MB."""

    cold: list[tuple[float, float]]
    warm: list[tuple[float, float]]
    queries: int
    size: int
    memory: int

    def __str__(self) -> str:
        times = [
            statistics.median(values)
            for measurements in (self.cold, self.warm)
            for values in zip(*measurements, strict=True)
        ]
        return (
            " ".join(f"{value:7.0f}" for value in times) + f" {self.queries:8} {self.size / 1000:7.0f} {self.memory:7}"
        )


def send_request(client: Client, address: str) -> tuple[float, float]:
    start, busy = time.perf_counter(), time.process_time()
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return 1000 * (time.perf_counter() - start), 1000 * (time.process_time() - busy)


def measure_page(client: Client, address: str) -> PageTimes:
    Path("/proc/self/clear_refs").write_text("5")  # Reset the peak.
    cold = []
    for _ in range(REPEATS):
        empty_caches()
        cold.append(send_request(client, address))
    warm = [send_request(client, address) for _ in range(REPEATS)]
    empty_caches()
    with CaptureQueriesContext(connection) as queries:
        response = client.get(address)
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return PageTimes(cold, warm, len(queries), len(response.content), int(peak.split()[1]) // 1024)


def main(trials: int, name_part: str) -> None:
    graded = Experiment.objects.filter(slug="graded").first() or measure_time(
        "graded", lambda: make_graded(trials // 2)
    )
    rated = Experiment.objects.filter(slug="rated").first() or measure_time("rated", lambda: make_rated(trials))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    print(f"{Trial.objects.count():,} trials", flush=True)
    from django.contrib.auth import get_user_model

    user = get_user_model().objects.filter(username="operator").first()
    client = Client(headers={"host": "localhost"})
    client.force_login(user or factories.make_user("operator", permissions.OPERATOR))
    print(f"{'page':36} {'worker s':>8}  first ms    cpu   later     cpu  queries      kB      MB")
    for name, address in list_pages(graded, rated).items():
        if name_part not in name:
            continue
        client.get(address)
        worker = run_requested_computations()
        print(f"{name:36} {worker or 0:8.1f}   {measure_page(client, address)}", flush=True)


def measure_time(label: str, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    print(f"{label}: made in {time.perf_counter() - start:.0f} s", flush=True)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--keep", action="store_true", help="keep the database, and use it again")
    parser.add_argument("--only", default="", help="measure only pages whose name contains this")
    options = parser.parse_args()
    with nullcontext() if os.environ.get("DATABASE_URL") else Embedded(settings.DATA_DIR / "postgres").running():
        name = connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False, keepdb=options.keep)
        try:
            main(options.trials, options.only)
        finally:
            if not options.keep:
                connection.creation.destroy_test_db(name, verbosity=0)
            connection.close()
