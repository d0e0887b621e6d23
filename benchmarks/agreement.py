"""Agreement over a million answers: `python benchmarks/agreement.py [ANSWERS]`, on a temporary database.

Two judges score every answer. The benchmark prints a worker's time and memory for the comparison, and its time for the
sums of the grading and length pages. For each page it prints the median and the slowest of REPEATS requests, with the
queries. For the grading and length pages it also prints the first visit, before any result is stored.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

import django

django.setup()

from django.db import connection
from django.test import Client
from django.urls import reverse
from django_q.models import OrmQ

from benchmarks.pages import measure_page
from benchmarks.stored import create_answers, temporary_database
from grading_app.models import CachedAggregate, GradeCondition, Rubric
from grading_app.results.cached_aggregates import TASK
from grading_app.tasks import compute_aggregates
from runs_app.models import Experiment

# Scores from 1 to 7 for a quality of each answer. The second judge is milder and noisier.
INSERT_SCORES = """INSERT INTO grading_app_grading
        (trial_id, condition_id, score, score_raw, parse_ok, parse_error, reasoning, created_at)
    SELECT t.id, %(condition)s, score, score, true, '', 'It is so.', now()
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id, LATERAL (
        SELECT least(7, greatest(1, round(4 + 1.5 * sin(t.id * 12.9898) + %(milder)s
            + %(noise)s * (random() + random() + random() - 1.5)))) AS score) AS scores
    WHERE r.experiment_id = %(experiment)s"""
JUDGES = (("strict", 0.0, 1.0), ("mild", 0.5, 2.0))


def create_scores(experiment: Experiment) -> None:
    rubric = Rubric.objects.create(
        name="seven", messages=[{"role": "user", "content": "{{answer}}"}], scale_min=1, scale_max=7
    )
    for name, milder, noise in JUDGES:
        condition = GradeCondition.objects.create(
            experiment=experiment, grade_condition_id=name, kind="judge", rubric=rubric
        )
        with connection.cursor() as cursor:
            cursor.execute(
                INSERT_SCORES,
                {"condition": condition.pk, "milder": milder, "noise": noise, "experiment": experiment.pk},
            )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def measure_computation(client: Client, address: str) -> None:
    """Measure a first visit, and the worker's task that it starts."""
    start = time.perf_counter()
    assert client.get(address).status_code == 200
    first_s = time.perf_counter() - start
    (task,) = [row.task for row in OrmQ.objects.all() if row.task["func"] == TASK]
    OrmQ.objects.all().delete()
    start = time.perf_counter()
    compute_aggregates(*task["args"])
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{address}: first visit {1000 * first_s:.0f} ms, computed by a worker in {took:.1f} s, {peak} MB", flush=True
    )


def list_pages(experiment: Experiment, row: CachedAggregate) -> dict[str, str]:
    agreement = reverse("experiment_agreement", args=[experiment.slug])
    disagreements = reverse("experiment_disagreements", args=[experiment.slug])
    middle = row.disagreements.order_by("minus_range", "unit")[int(row.value or 0) // 2]
    cursor = f"{-middle.minus_range!r}_{middle.unit}"
    return {
        "agreement": agreement,
        "disagreements": disagreements,
        "by variance": f"{disagreements}?by=variance",
        "from the middle": f"{disagreements}?after={cursor}",
        "and back": f"{disagreements}?before={cursor}",
        "grading": reverse("experiment_grading", args=[experiment.slug]),
        "length": reverse("grading_length", args=[experiment.slug]),
        "the middle one": reverse("disagreement", args=[experiment.slug, middle.unit]),
    }


def main(answers: int) -> None:
    experiment = create_answers(answers)
    create_scores(experiment)
    client = Client(headers={"host": "localhost"})
    client.force_login(experiment.owner)
    for page in ("experiment_agreement", "experiment_disagreements", "experiment_grading", "grading_length"):
        measure_computation(client, reverse(page, args=[experiment.slug]))
    row = CachedAggregate.objects.get(name="disagreements")
    print(f"{row.value:,} disagreements", flush=True)
    print(f"{'page':18} median ms  slowest  processor    SQL  queries    kB")
    for name, address in list_pages(experiment, row).items():
        print(f"{name:18} {measure_page(client, address)}", flush=True)


if __name__ == "__main__":
    with temporary_database():
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
