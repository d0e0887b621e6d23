"""Numbers for Prometheus: queues, calls in flight, attempts, errors, spending and expired leases."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from evalsite.api.reach import get_token
from evalsite.lib.permissions import operators_only
from evalsite.lib.web.model_names import hides_model_names
from evalsite.lib.web.problem_responses import make_problem
from runs_app.llm.calls import LOST
from runs_app.models import Endpoint
from runs_app.models.totals import STATUSES
from runs_app.monitoring.health import measure_worker_health

# Counters of runs, never their trials: the cost does not depend on the number of trials.
TOTALS = f"""
SELECT {", ".join(f"coalesce(sum(n_{status}), 0)::bigint" for status in STATUSES)},
    coalesce(sum(n_pending) FILTER (WHERE status = 'running'), 0)::bigint,
    (coalesce(sum(n_attempts), 0) + (SELECT coalesce(sum(attempts), 0) FROM runs_app_deletedrun))::bigint,
    (SELECT coalesce(sum(spent_usd), 0)::float8 FROM runs_app_experiment),
    (SELECT coalesce(sum(reserved_usd), 0)::float8 FROM runs_app_experiment),
    (SELECT count(*) FROM django_q_ormq)
FROM runs_app_run
"""  # noqa: S608 - fixed text
ERRORS = """
SELECT e.key, sum(e.value::bigint)::bigint FROM runs_app_run r, jsonb_each_text(r.errors) AS e
WHERE r.errors <> '{}' GROUP BY e.key ORDER BY e.key
"""


@require_safe
@operators_only
@hides_model_names()
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the numbers of the whole site, for a token of an operator that reaches all experiments."""
    token = get_token(request)
    if token and token.experiment_id:
        return make_problem(403, f"The token {token} reaches only the experiment {token.experiment}.")
    registry = CollectorRegistry()
    registry.register(LabCollector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class LabCollector(Collector):
    """A collector that reads the counters of the site in four queries."""

    def describe(self) -> list[Metric]:
        return []  # Without it, registration would already collect.

    def collect(self) -> Iterator[Metric]:
        with connection.cursor() as cursor:
            cursor.execute(TOTALS)
            *by_status, ready, attempts, spent, reserved, tasks = cursor.fetchone()
            cursor.execute(ERRORS)
            errors = dict(cursor.fetchall())
        trials = GaugeMetricFamily("evalsite_trials", "Trials by status, of all runs.", labels=["status"])
        for status, n in zip(STATUSES, by_status, strict=True):
            trials.add_metric([status], n)
        in_flight = GaugeMetricFamily("evalsite_calls_in_flight", "Calls in flight.", labels=["endpoint"])
        in_batches = GaugeMetricFamily("evalsite_trials_in_batches", "Trials in open batches.", labels=["endpoint"])
        for name, n_calls, n_batched in Endpoint.objects.order_by("name").values_list(
            "name", "in_flight", "in_batches"
        ):
            in_flight.add_metric([name], n_calls)
            in_batches.add_metric([name], n_batched)
        failed = CounterMetricFamily("evalsite_errors", "Attempts with an error, by its class.", labels=["error_class"])
        for error_class, n in errors.items():
            failed.add_metric([error_class], n)
        health = measure_worker_health()
        yield from (trials, in_flight, in_batches, failed)
        yield GaugeMetricFamily("evalsite_queue_depth", "Pending trials of running runs.", value=ready)
        yield GaugeMetricFamily("evalsite_tasks_waiting", "Tasks in the task queue.", value=tasks)
        yield GaugeMetricFamily("evalsite_workers_alive", "Workers with a recent heartbeat.", value=health.alive)
        yield CounterMetricFamily("evalsite_attempts", "Ended attempts, one for each claim.", value=attempts)
        yield CounterMetricFamily("evalsite_spent_usd", "US dollars spent on calls.", value=spent)
        yield GaugeMetricFamily("evalsite_reserved_usd", "US dollars reserved for calls.", value=reserved)
        expired = errors.get(LOST, 0)
        yield CounterMetricFamily("evalsite_lease_expiries", "Claims whose lease expired.", value=expired)
