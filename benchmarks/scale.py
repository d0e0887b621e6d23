"""What grows with the whole database: a hundred experiments with up to ten million trials, in a cluster of their own.

    python -m benchmarks.scale [--trials 100000 1000000 10000000] [--folder var/scale] [--visits 20] [--only TEXT]
        [--again] [--fill]
    python -m benchmarks.scale --table

Bulk SQL writes finished experiments with calls, ledger, grades and, in every tenth, a judge's verdicts. `reconcile`
must find no difference. Then one more experiment of LIVE_TRIALS trials, the same at every size, is planned, claimed,
recorded, graded, exported and deleted. Pages are measured for it, and for one of the hundred. Each page is opened by a
new process, which has prepared its pages as a web process does: its first visit, then further ones. Beside wall times
it measures the processor time of a visit in the web process and in PostgreSQL, which depends less on other work of the
machine. A visit in the table is: the first one and its processor times; median, 95th percentile and mean processor
times of the others.

An interrupted run continues where it stopped: databases and measurements stay in the folder. `--again` measures anew
what `--only` selects. `--table` prints all measurements as a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

EXPERIMENTS, MODELS, BATCH = 100, 5, 64
LIVE_ITEMS, LIVE_SAMPLES = 1000, 4
LIVE_TRIALS = LIVE_ITEMS * LIVE_SAMPLES * MODELS
LIVE, STORED = "live", "stored-050"
JUDGED_EVERY = 10
LAST = "back up"  # The last step. The live experiment is deleted before it.
PROSE = "First add the two numbers and then check the result against the question once more. " * 3

INSERT_TRIALS = """
INSERT INTO runs_app_trial (run_id, item_id, sample_idx, status, attempts, answer, raw_response, error_class, error,
    truncated, finish_reason, served_model, request_hash, input_tokens, output_tokens, cost_usd, latency_ms,
    claimed_at, completed_at)
SELECT r.id, i.id, sample, CASE WHEN failed THEN 'failed' ELSE 'done' END, 1, text, CASE WHEN NOT failed THEN text END,
    CASE WHEN failed THEN 'timeout' ELSE '' END, CASE WHEN failed THEN 'no reply within 60 s' ELSE '' END,
    n %% 1000 = 0 AND NOT failed, CASE WHEN failed THEN '' ELSE 'stop' END, 'vendor/model-2026',
    encode(sha256(convert_to(r.id || '-' || i.id, 'UTF8')), 'hex'), 200, 80, CASE WHEN NOT failed THEN 0.00036 END,
    850, at, at + interval '850 ms'
FROM runs_app_run r, datasets_app_item i, generate_series(0, %(samples)s - 1) AS sample,
    LATERAL (SELECT i.position + sample * %(items)s AS n, now() - make_interval(days => %(age)s) AS at) AS numbered,
    LATERAL (SELECT n %% 50 = 7 AS failed, random() < 0.6 AS correct) AS outcome,
    LATERAL (SELECT CASE WHEN failed THEN '' ELSE %(prose)s || 'This is answer ' || n || E'.\\nANSWER: '
        || (i.position + CASE WHEN correct THEN i.position ELSE 1 END) END AS text) AS texts
WHERE r.id = ANY(%(answering)s) AND i.dataset_id = %(dataset)s
ORDER BY r.id, sample, i.id"""
INSERT_VERDICTS = """
INSERT INTO runs_app_trial (run_id, item_id, sample_idx, subject_id, status, attempts, answer, raw_response,
    finish_reason, served_model, input_tokens, output_tokens, cost_usd, latency_ms, claimed_at, completed_at)
SELECT %(judge)s, t.item_id, 0, t.id, 'done', 1, '{"score": 1}', '{"score": 1}', 'stop', 'vendor/judge', 400, 60,
    0.0005, 700, t.claimed_at, t.completed_at
FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
WHERE r.experiment_id = %(experiment)s AND r.id <> %(judge)s AND t.status = 'done' ORDER BY t.id"""
INSERT_ATTEMPTS = """
INSERT INTO runs_app_attempt (trial_id, run_id, token, call, outcome, started_at, finished_at, empty, truncated,
    refused, unparsed, batched, input_tokens, output_tokens, cost_usd, list_usd, error_class, error, finish_reason,
    response_id, served_model, served_provider, latency_ms, trace_id, request_hash)
SELECT t.id, t.run_id, gen_random_uuid(), 0, CASE t.status WHEN 'done' THEN 'ok' ELSE 'permanent' END, t.claimed_at,
    t.completed_at, false, t.truncated, false, false, false, t.input_tokens, t.output_tokens, t.cost_usd, t.cost_usd,
    t.error_class, t.error, t.finish_reason, 'chatcmpl-' || t.id, t.served_model, 'vendor', t.latency_ms,
    md5(t.id::text), t.request_hash
FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id WHERE r.experiment_id = %(experiment)s ORDER BY t.id"""
INSERT_SCORES = """
INSERT INTO grading_app_grading (condition_id, trial_id, score, score_raw, parse_ok, parse_error, reasoning, detail,
    created_at)
SELECT %(rule)s, t.id, t.id %% 3 / 2, '1', true, '', '', '{"extracted": "1", "normalised": "1", "valid": true}', now()
FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
WHERE r.experiment_id = %(experiment)s AND t.subject_id IS NULL AND t.status = 'done' ORDER BY t.id"""
INSERT_JUDGED = """
INSERT INTO grading_app_grading (condition_id, trial_id, judged_by_id, score, score_raw, parse_ok, parse_error,
    reasoning, detail, created_at)
SELECT %(condition)s, v.subject_id, v.id, v.id %% 2, '1', true, '', 'Both steps are right.',
    '{"criteria": {"correct": true, "clear": false}}', now()
FROM runs_app_trial v WHERE v.run_id = %(judge)s ORDER BY v.id"""
COUNT_RUNS = """
UPDATE runs_app_run r SET n_done = units.n_done, n_failed = units.n_failed, n_attempts = calls.n,
    n_permanent = calls.n_permanent, n_unpriced = calls.n_unpriced, spent_usd = calls.usd,
    input_tokens = calls.input_tokens, output_tokens = calls.output_tokens,
    errors = CASE WHEN units.n_failed > 0 THEN jsonb_build_object('timeout', units.n_failed) ELSE '{}' END
FROM (SELECT run_id, count(*) FILTER (WHERE status = 'done') AS n_done,
        count(*) FILTER (WHERE status = 'failed') AS n_failed FROM runs_app_trial WHERE run_id = ANY(%(runs)s)
    GROUP BY 1) units,
    (SELECT run_id, count(*) AS n, count(*) FILTER (WHERE outcome = 'permanent') AS n_permanent,
        count(*) FILTER (WHERE cost_usd IS NULL) AS n_unpriced, coalesce(sum(cost_usd), 0) AS usd,
        sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens FROM runs_app_attempt
    WHERE run_id = ANY(%(runs)s) GROUP BY 1) calls
WHERE units.run_id = r.id AND calls.run_id = r.id"""
COUNT_EXPERIMENT = """
UPDATE runs_app_experiment SET spent_usd =
    (SELECT sum(spent_usd) FROM runs_app_run WHERE experiment_id = %(experiment)s)
WHERE id = %(experiment)s"""
TABLE_SIZES = """
SELECT c.relname, pg_table_size(c.oid), pg_indexes_size(c.oid) FROM pg_class c
WHERE c.relname IN ('runs_app_trial', 'runs_app_attempt', 'grading_app_grading') ORDER BY c.oid"""


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--folder", type=Path, default=ROOT / "var" / "scale")
    parser.add_argument("--only", default="", help="measure only what has this in its name")
    parser.add_argument("--visits", type=int, default=20, help="visits of each page after the first")
    parser.add_argument("--again", action="store_true", help="measure also what was measured before")
    parser.add_argument("--fill", action="store_true", help="fill the databases, and measure nothing")
    parser.add_argument(
        "--table", action="store_true", help="print the measurements of the folder, and measure nothing"
    )
    return parser.parse_args()


class Measurements:
    """The measurements of one size, by name: milliseconds of the median and the 95th percentile, and more."""

    def __init__(self, folder: Path, trials: int) -> None:
        self._file = folder / f"measured-{trials}.json"
        self.rows: dict[str, dict[str, Any]] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def add(self, name: str, **numbers: Any) -> None:
        load = os.getloadavg()[0]
        self.rows[name] = {**numbers, "load": round(load, 1)}
        draft = self._file.with_suffix(".new")
        draft.write_text(json.dumps(self.rows, indent=1))
        draft.replace(self._file)
        texts = ", ".join(f"{key} {value:,.1f}" for key, value in self.rows[name].items())
        print(f"{time.strftime('%H:%M:%S')} {name}: {texts}", flush=True)

    def time(self, name: str, work: Callable[[], Any], **numbers: Any) -> Any:
        start = time.perf_counter()
        result = work()
        self.add(name, seconds=time.perf_counter() - start, **numbers)
        return result


def fill(trials: int) -> None:
    """Write the experiments that are missing, each in one transaction."""
    from django.db import connection, transaction

    from datasets_app.models import Dataset
    from runs_app.models import Experiment
    from tests import factories

    per_model = trials // EXPERIMENTS // MODELS
    items = min(1000, per_model)
    present = set(Experiment.objects.values_list("slug", flat=True))
    for number in range(EXPERIMENTS):
        slug = f"stored-{number:03}"
        if slug in present:
            continue
        start = time.perf_counter()
        with transaction.atomic():
            dataset_slug = f"items-{number // 10}"
            dataset = Dataset.objects.filter(slug=dataset_slug).first() or factories.make_dataset(dataset_slug, items)
            _store_experiment(slug, dataset, items, per_model // items, number)
        if number % 10 == 0:
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE runs_app_trial, runs_app_attempt, grading_app_grading")
        print(f"{slug}: {time.perf_counter() - start:.1f} s", flush=True)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    store_results(Experiment.objects.filter(slug__startswith="stored-").order_by("pk"))


def _store_experiment(slug: str, dataset: Any, items: int, samples: int, number: int) -> None:
    from django.db import connection

    from grading_app.grading.judging import grade_conditions
    from grading_app.models import GradeCondition, Grader
    from tests import factories
    from tests.factories.judges import make_grader

    experiment = factories.make_experiment(
        slug,
        dataset=dataset,
        models=[factories.make_model(f"model-{at}") for at in range(MODELS)],
        samples=samples,
        status="active",
        max_usd=None,
    )
    runs = factories.make_runs(experiment, status="done")
    rule = GradeCondition.objects.create(
        experiment=experiment, grade_condition_id="final_answer--scale", kind="rule", scorer="final_answer"
    )
    numbers = {"experiment": experiment.pk, "dataset": dataset.pk, "samples": samples, "items": items, "rule": rule.pk}
    numbers |= {"prose": PROSE, "age": EXPERIMENTS - number}
    numbers |= {"answering": [run.pk for run in runs], "runs": [run.pk for run in runs]}
    statements = [INSERT_TRIALS, INSERT_SCORES]
    if number % JUDGED_EVERY == 0:
        grader = Grader.objects.filter(name="judge-a").first() or make_grader("judge-a")
        condition = grade_conditions.get_or_create_condition(experiment, grader)
        judge = experiment.runs.create(
            condition=condition.judge_condition, wave=experiment.waves.get(), status="done", started_at=factories.NOON
        )
        numbers |= {"judge": judge.pk, "condition": condition.pk, "runs": [*numbers["runs"], judge.pk]}
        statements += [INSERT_VERDICTS, INSERT_JUDGED]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # No check of each key.
        for statement in statements:
            cursor.execute(statement, numbers)
        cursor.execute("SET LOCAL session_replication_role = origin")  # A trigger writes the ledger of the attempts.
        for statement in (INSERT_ATTEMPTS, COUNT_RUNS, COUNT_EXPERIMENT):
            cursor.execute(statement, numbers)
        experiment.grade_conditions.update(changes=1)


def get_live() -> Any:
    """Return the experiment that is the same at every size, or create its design.

    A deleted one leaves its dataset, its models, its prompt and its sampler.
    """
    from datasets_app.models import Dataset
    from runs_app.models import Experiment, LanguageModel, Prompt, Sampler
    from tests import factories

    if live := Experiment.objects.filter(slug=LIVE).first():
        return live
    models = list(LanguageModel.objects.filter(name__startswith="live-").order_by("pk"))
    if not models:
        endpoint = factories.make_endpoint("fast", max_concurrency=100_000, is_free=True)
        models = [factories.make_model(f"live-{at}", endpoint=endpoint) for at in range(MODELS)]
    return factories.make_experiment(
        LIVE,
        dataset=Dataset.objects.filter(slug="live-items").first() or factories.make_dataset("live-items", LIVE_ITEMS),
        models=models,
        prompts=Prompt.objects.filter(name=f"{LIVE}-prompt") or None,
        samplers=Sampler.objects.filter(name=f"{LIVE}-sampler") or None,
        samples=LIVE_SAMPLES,
        max_usd=None,
        max_concurrency=100_000,
        cache=False,
    )


def plan_live(measured: Measurements) -> None:
    from runs_app.models import Experiment, Run, Trial
    from runs_app.planning import plan as plan_module

    live = get_live()
    if Trial.objects.filter(run__experiment=live).exists():
        return
    measured.time(f"plan {LIVE_TRIALS:,} trials", lambda: plan_module.plan(live))
    measured.time("plan them again", lambda: plan_module.plan(live))
    Experiment.objects.filter(pk=live.pk).update(status="active")
    Run.objects.filter(experiment=live).update(status="running")


def drain_live(measured: Measurements) -> None:
    """Claim and record all live trials, BATCH in a cycle."""
    from benchmarks.claiming import ANSWER, CALL
    from runs_app.engine.admission import WorkerCapacity
    from runs_app.engine.claim_order import ClaimPositions
    from runs_app.engine.recorder import Result
    from runs_app.engine.worker_cycle import run_cycle
    from runs_app.engine.worker_registration import WorkerRegistration
    from runs_app.models import Run

    worker, positions, times = WorkerRegistration().worker_id, ClaimPositions(), []
    results: list[Result] = []
    while results or Run.objects.filter(experiment__slug=LIVE, n_pending__gt=0).exists():
        start = time.perf_counter()
        cycle = run_cycle(results, worker, WorkerCapacity(BATCH, positions=positions))
        if len(results) == len(cycle.claims) == BATCH:
            times.append(1000 * (time.perf_counter() - start))
        results = [Result(claim, "done", dict(ANSWER), [dict(CALL)]) for claim in cycle.claims]
    if times:
        measured.add(f"record {BATCH} and claim {BATCH}", **summarize(times))


def summarize(milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {"p50": statistics.median(ordered), "p95": ordered[int(0.95 * (len(ordered) - 1) + 0.5)]}


def list_site_pages() -> dict[str, str]:
    from django.urls import reverse

    names = (
        "home", "experiment_list", "dataset_list", "judge_list", "endpoint_list", "worker_list",
        "batch_list", "ledger", "leaderboard", "rating_queue_list", "text_sets", "start", "experiment_new", "compare",
        "trial_list",
    )  # fmt: skip
    trials = reverse("trial_list")
    queries = ("status=failed", "status=running", "error=timeout", "truncated=true", "item=item-7", "sort=-item",
               "sort=status", "contains=answer+is+777", "contains=no+such+words", "flag=true", "rating=7")  # fmt: skip
    return {
        **{name: reverse(name) for name in names},
        **{kind: reverse("library_list", args=[kind]) for kind in ("prompts", "samplers", "dimensions", "rubrics")},
        **{f"trials?{query}": f"{trials}?{query}" for query in queries},
        "search for an item": f"{reverse('search')}?q=item-7",
        "search for words": f"{reverse('search')}?q=what+plus",
        "search for nothing": f"{reverse('search')}?q=no+such+words",
        "metrics": reverse("metrics"),
        "api experiments": "/api/v1/experiments",
        "api models": "/api/v1/models",
    }


def list_experiment_pages(experiment: Any) -> dict[str, str]:
    from django.urls import reverse

    from runs_app.models import Trial

    names = (
        "experiment_detail", "experiment_progress", "experiment_results", "experiment_matrix", "experiment_analysis",
        "experiment_agreement", "experiment_disagreements", "experiment_grading", "experiment_waves",
        "experiment_report", "experiment_figures", "experiment_files", "experiment_ledger", "experiment_annotations",
        "experiment_preview",
    )  # fmt: skip
    run = experiment.runs.order_by("pk").first()
    middle = Trial.objects.filter(run=run).order_by("pk")[len(experiment.slug)]
    first, second = experiment.answer_conditions.order_by("pk").values_list("pk", flat=True)[:2]
    trials, slug = reverse("trial_list"), experiment.slug
    queries = ("", "&status=failed", "&sort=-cost_usd", "&sort=latency_ms", "&contains=no+such+words",
               "&disagree=true", "&category=even", "&sort=-item")  # fmt: skip
    api = f"/api/v1/experiments/{slug}"
    return {
        **{name: reverse(name, args=[slug]) for name in names},
        **{f"trials of it{query}": f"{trials}?experiment={slug}{query}" for query in queries},
        "run": reverse("run_detail", args=[run.pk]),
        "trials of a run": f"{trials}?run={run.pk}&sort=-output_tokens",
        "trial": reverse("trial_detail", args=[middle.pk]),
        "item": reverse("item_page", args=[middle.item_id]),
        "compare two conditions": f"{reverse('compare')}?a={slug}:{first}&b={slug}:{second}",
        **{f"api {name}": f"{api}/{name}" for name in ("status", "runs", "trials", "gradings", "results")},
        "api trial": f"/api/v1/trials/{middle.pk}",
    }


def visit_page(address: str, visits: int) -> dict[str, float]:
    """Open the page in this new process: once with cold caches, then as often as `visits` says."""
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from evalsite.lib.ops.call_stack import call_with_room
    from evalsite.wsgi import Handler

    client = Client(headers={"host": "localhost"})
    client.force_login(get_user_model().objects.get(username="operator"))
    if address.startswith("/api/") or address == "/metrics":
        client = Client(headers={"host": "localhost", "Authorization": f"Bearer {_make_token()}"})

    def visit() -> float:
        start = time.perf_counter()
        response = call_with_room(client.get, address)
        assert response.status_code == 200, (address, response.status_code)
        return 1000 * (time.perf_counter() - start)

    client.handler.load_middleware()  # A web process has done so before its first request.
    connection.close()
    Handler.warm_up_thread()
    busy, sql_busy = time.process_time(), read_server_seconds()
    first = visit()
    first_web, first_sql = 1000 * (time.process_time() - busy), 1000 * (read_server_seconds() - sql_busy)
    worker_s = run_requested_computations()
    visit()
    busy, sql_busy = time.process_time(), read_server_seconds()
    times = [visit() for _ in range(visits)]
    processor = {
        "web": 1000 * (time.process_time() - busy) / visits,
        "sql": 1000 * (read_server_seconds() - sql_busy) / visits,
    }
    with CaptureQueriesContext(connection) as queries:
        client.get(address)
    first_visit = {"first": first, "first_web": first_web, "first_sql": first_sql}
    return {**first_visit, **summarize(times), **processor, "queries": len(queries), "worker_s": worker_s}


def read_server_seconds() -> float:
    """Return the processor seconds of this connection's server process, without its parallel workers."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _make_token() -> str:
    from django.contrib.auth import get_user_model

    from tests.factories.tokens import make_token

    return str(make_token(get_user_model().objects.get(username="operator"))[1])


def store_results(experiments: Iterable[Any]) -> None:
    """Store the results of these experiments, as a worker does after the last grade, and not in this process."""
    from django.core.cache import cache

    from grading_app import tasks

    for experiment in experiments:
        tasks.store_results(experiment)
    run_requested_computations()
    cache.clear()


def run_requested_computations() -> float:
    """Compute what the page has requested of a worker, and return the seconds."""
    from django_q.models import OrmQ

    from grading_app.results.cached_aggregates import TASK
    from grading_app.tasks import compute_aggregates

    start = time.perf_counter()
    for row in OrmQ.objects.all():
        if row.task["func"] == TASK:
            compute_aggregates(*row.task["args"])
        row.delete()
    return time.perf_counter() - start


def measure_pages(measured: Measurements, group: str, pages: dict[str, str], options: argparse.Namespace) -> None:
    from django.db import connections

    for name, address in pages.items():
        full_name = f"{group}: {name}"
        if options.only in full_name and (options.again or full_name not in measured.rows):
            connections.close_all()
            with multiprocessing.get_context("fork").Pool(1) as pool:
                measured.add(full_name, **pool.apply(visit_page, [address, options.visits]))


def list_steps(measured: Measurements, options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the steps in their order. Each can be repeated, except those of the live experiment's own rows."""
    from django.core.management import call_command

    from grading_app.grading.consistency_check import find_differences
    from grading_app.grading.scoring import grade
    from runs_app import deletion
    from runs_app.models import Experiment

    backup, exported = options.folder / "backup", str(options.folder / "exported.csv")

    def check() -> None:
        if differences := find_differences():
            raise SystemExit(f"counters differ from the rows: {differences[:3]}")

    def back_up() -> None:
        call_command("backup", str(backup), verbosity=0)
        shutil.rmtree(backup)

    def export() -> None:
        call_command("export", LIVE, table="trials", format="csv", out=exported, verbosity=0)
        Path(exported).unlink()

    def delete() -> None:
        deletion.delete(get_live(), by="benchmark")

    def measure_once(name: str, work: Callable[[], Any]) -> tuple[str, Callable[[], Any]]:
        return name, lambda: measured.time(name, work) if options.only in name else None

    yield measure_once("reconcile", check)
    yield "plan", lambda: plan_live(measured)
    yield (
        "pages of the live experiment while it runs",
        lambda: measure_pages(measured, "running", dict(islice(list_experiment_pages(get_live()).items(), 2)), options),
    )
    yield "record", lambda: drain_live(measured)
    yield "grade", lambda: measured.time("grade", lambda: grade(get_live(), scorers=["exact_match"], by="benchmark"))
    yield "store results", lambda: measured.time("store results", lambda: store_results([get_live()]))
    yield "site pages", lambda: measure_pages(measured, "site", list_site_pages(), options)
    for group, slug in ((f"{LIVE_TRIALS:,} trials", LIVE), ("a hundredth", STORED)):
        pages = list_experiment_pages(Experiment.objects.get(slug=slug))
        yield f"pages: {group}", partial(measure_pages, measured, group, pages, options)
    yield measure_once(f"export {LIVE_TRIALS:,} trials", export)
    yield measure_once(f"delete {LIVE_TRIALS:,} trials", delete)
    yield measure_once(LAST, back_up)


def measure(trials: int, options: argparse.Namespace) -> None:
    from django.contrib.auth import get_user_model
    from django.db import connection

    from evalsite.lib import permissions
    from evalsite.wsgi import application
    from tests import factories

    measured = Measurements(options.folder, trials)
    if LAST in measured.rows and not options.again:
        return
    fill(trials)
    if options.fill:
        return
    application.warm_up()
    if not get_user_model().objects.filter(username="operator").exists():
        factories.make_user("operator", permissions.OPERATOR)
    with connection.cursor() as cursor:
        cursor.execute(TABLE_SIZES)
        for table, rows, indexes in cursor.fetchall():
            measured.add(f"size of {table}", rows_mb=rows / 1e6, indexes_mb=indexes / 1e6)
    for name, step in list_steps(measured, options):
        # Steps that write rows of the live experiment run again with it. A page group knows which pages are left.
        if name not in measured.rows or options.again:
            step()


def print_table(folder: Path) -> None:
    """Print one row for each measurement, with the columns of each size."""
    sizes = sorted(int(path.stem.split("-")[1]) for path in folder.glob("measured-*.json"))
    by_size = {size: Measurements(folder, size).rows for size in sizes}
    print("| what | " + " | ".join(f"{size:,}" for size in sizes) + " |")
    print("| --- |" + " --- |" * len(sizes))
    for name in dict.fromkeys(name for rows in by_size.values() for name in rows):
        cells = (_format_cell(by_size[size].get(name)) for size in sizes)
        print(f"| {name} | " + " | ".join(cells) + " |")


def _format_cell(numbers: dict[str, float] | None) -> str:
    if numbers is None:
        return "-"
    if "seconds" in numbers:
        return f"{numbers['seconds']:,.2f} s"
    if "rows_mb" in numbers:
        return f"{numbers['rows_mb']:,.0f} + {numbers['indexes_mb']:,.0f} MB"
    first = ""
    if "first" in numbers:
        first = f"{numbers['first']:,.0f} ({numbers['first_web']:,.0f} + {numbers['first_sql']:,.0f}); "
    processor = f"; {numbers['web']:,.0f} + {numbers['sql']:,.0f}" if "web" in numbers else ""
    return f"{first}{numbers['p50']:,.0f}, {numbers['p95']:,.0f}{processor} ms"


def main() -> None:
    options = read_options()
    if options.table:
        return print_table(options.folder)
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ["EVALSITE_DATA_DIR"] = str(options.folder)  # The cluster and all files of the site are in it.
    os.environ.pop("DATABASE_URL", None)
    import django

    django.setup()
    from django.conf import settings
    from django.db import connection

    from evalsite.lib.ops.postgres import Embedded

    with Embedded(settings.DATA_DIR / "postgres").running():
        site = connection.settings_dict["NAME"]
        for trials in options.trials:
            connection.settings_dict["TEST"]["NAME"] = f"scale_{trials}"
            connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False, keepdb=True)
            measure(trials, options)
            connection.close()
            connection.settings_dict["NAME"] = site
    return None


if __name__ == "__main__":
    main()
