"""The leaderboard and the explorer over a million parametric trials: `python -m benchmarks.surfaces [TRIALS]`.

A hundred conditions in two experiments answer ten tasks of 25 points each. For each page it prints the median and the
slowest of five requests in milliseconds, the processor time, the queries and the size; then the first request of a
process, whose memory holds nothing. The database is its own, and dropped at the end.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from benchmarks.pages import measure_page
from benchmarks.stored import temporary_database

TASKS, SIDE, EXPERIMENTS, MODELS = 10, 5, 2, 50
WORST_MS = 300

ITEMS = """INSERT INTO datasets_app_item (dataset_id, key, position, input, target, choices, grading_scheme, category,
        metadata, excluded, note)
    SELECT %(dataset)s, 'task-' || task || '-' || x || '-' || y || '-' || n, row_number() OVER (), repeat('( [ ', 20),
        'A', '["A", "B", "C", "D"]', '', 'task-' || task,
        jsonb_build_object('task', 'brackets', 'params', jsonb_build_object('length', 4 * x, 'max_depth', y),
            'number', n, 'guess_chance', 0.25, 'instruction', repeat('Close all brackets. ', 60)), false, ''
    FROM generate_series(1, %(tasks)s) task, generate_series(1, %(side)s) x, generate_series(1, %(side)s) y,
        generate_series(0, %(cases)s - 1) n"""
TRIALS = """INSERT INTO runs_app_trial (run_id, item_id, sample_idx, status, attempts, answer, raw_response,
        finish_reason, truncated, input_tokens, output_tokens, cost_usd, latency_ms, claimed_at, completed_at)
    SELECT %(run)s, i.id, 0, 'done', 1, text, text, 'stop', random() < 0.03, 200, 40 + (random() * 4000)::int, 0.0001,
        850, now(), now()
    FROM datasets_app_item i, LATERAL (SELECT repeat('Let me think. ', 6) || 'Final Answer: A' || i.id AS text) answers
    WHERE i.dataset_id = %(dataset)s"""
GRADINGS = """INSERT INTO grading_app_grading (condition_id, trial_id, score, score_raw, parse_ok, parse_error,
        reasoning, detail, created_at)
    SELECT %(grader)s, t.id, CASE WHEN NOT t.truncated THEN (random() < %(skill)s::float8
            - 0.02 * (i.metadata -> 'params' ->> 'length')::int)::int END, 'A', NOT t.truncated,
        CASE WHEN t.truncated THEN 'truncated' ELSE '' END, '', '{"valid": true, "extracted": "A"}', now()
    FROM runs_app_trial t JOIN datasets_app_item i ON i.id = t.item_id WHERE t.run_id = %(run)s"""


def create_trials(trials: int) -> list[Any]:
    """Store two experiments with all of their answers and gradings, and return them."""
    from django.db import connection

    from datasets_app.models import Dataset
    from grading_app.models import GradeCondition
    from tests import factories

    cases = max(1, trials // (EXPERIMENTS * MODELS * TASKS * SIDE * SIDE))
    dataset = factories.make_dataset("space", [], approved=False, recipe={"strategy": "parametric", "space": "large"})
    cursor = connection.cursor()
    cursor.execute(ITEMS, {"dataset": dataset.pk, "tasks": TASKS, "side": SIDE, "cases": cases})
    factories.approve(Dataset.objects.get(pk=dataset.pk))
    experiments = []
    for number in range(EXPERIMENTS):
        models = [factories.make_model(f"model-{number}-{at}") for at in range(MODELS)]
        experiment = factories.make_experiment(f"large-{number}", dataset=dataset, models=models, status="active")
        grader = GradeCondition.objects.create(
            experiment=experiment, grade_condition_id="final_answer--0123456789ab", scorer="final_answer"
        )
        for at, run in enumerate(factories.make_runs(experiment, status="done")):
            params = {"run": run.pk, "dataset": dataset.pk, "grader": grader.pk, "skill": 1.1 - at / 100}
            cursor.execute(TRIALS, params)
            cursor.execute(GRADINGS, params)
            factories.refresh_counters(run)
        experiments.append(experiment)
    cursor.execute("VACUUM ANALYZE")
    return experiments


def compute_pages(client: Any, addresses: list[str]) -> None:
    """Request each page once, and run the computations of the workers."""
    from grading_app.models import CachedAggregate
    from grading_app.results.cached_aggregates import compute_rows

    for _ in range(2):  # Some numbers are requested only after the counts are stored.
        for address in addresses:
            client.get(address)
        for row in CachedAggregate.objects.filter(computed_at=None):
            start = time.perf_counter()
            compute_rows([row.pk], seconds=600)
            print(f"a worker computes {row.name}: {time.perf_counter() - start:.1f} s", flush=True)


def list_pages(experiment: Any) -> dict[str, str]:
    from django.urls import reverse

    condition, rival = experiment.conditions.order_by("pk")[:2]
    explorer, board = reverse("explorer", args=[experiment.slug]), reverse("leaderboard")
    cell = f"experiment={experiment.slug}&condition={condition.pk}&category=task-3&point=length%3D8%26max_depth%3D2"
    return {
        "leaderboard": board,
        "leaderboard, sorted": f"{board}?sort=task-task-4",
        "leaderboard, CSV": f"{board}?table=leaderboard&format=csv",
        "heat map": f"{explorer}?task=task-2",
        "heat map, averaged": f"{explorer}?task=task-2&y=-",
        "curves": f"{explorer}?view=curves&task=task-2",
        "side by side": f"{explorer}?view=models&task=task-2",
        "difference": f"{explorer}?view=difference&condition={condition.pk}&against={rival.pk}",
        "tasks": f"{explorer}?view=tasks",
        "clusters": f"{explorer}?view=clusters",
        "compression": f"{explorer}?view=compression",
        "tokens": f"{explorer}?view=hazard",
        "prompts": f"{explorer}?view=spectrum",
        "trials of a cell": f"{reverse('trial_list')}?{cell}",
    }


def main(trials: int) -> None:
    from django.core.cache import cache
    from django.test import Client

    from runs_app.models import Trial

    fill_start = time.perf_counter()
    experiments = create_trials(trials)
    print(f"{Trial.objects.count():,} trials, filled in {time.perf_counter() - fill_start:.0f} s", flush=True)
    client = Client(headers={"host": "localhost"})
    client.force_login(experiments[0].owner)
    addresses = list_pages(experiments[0])
    compute_pages(client, list(addresses.values()))
    print(f"\n{'page':20} median ms  slowest  processor    SQL  queries    kB     first")
    for name, address in addresses.items():
        client.get(address)  # Templates and libraries are loaded once in the life of a process.
        cache.clear()
        start = time.perf_counter()
        client.get(address)
        first_ms = 1000 * (time.perf_counter() - start)
        print(f"{name:20} {measure_page(client, address)}  {first_ms:8.0f}", flush=True)


if __name__ == "__main__":
    with temporary_database():
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
