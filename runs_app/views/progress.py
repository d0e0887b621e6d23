"""The page of one run, and what it shares with the progress page of an experiment. They update while a run is live."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from datasets_app.tables import HistoryTable
from evalsite.lib.permissions import readers_only
from evalsite.lib.web.htmx import wants_part
from runs_app.models import Experiment, Run
from runs_app.models.totals import Totals
from runs_app.monitoring import progress
from runs_app.monitoring.blockers import find_blockers, find_stop_reasons
from runs_app.monitoring.sparklines import build_throughput_curve
from runs_app.planning.manifests import sample_served_models
from runs_app.tables.trials import RecentAttemptTable
from runs_app.views.batches import BatchTable
from runs_app.views.permissions import get_visible_run, may_edit
from runs_app.views.run_control import Action, build_deletion_action, list_actions

RECENT_ROWS = 20


@require_safe
@readers_only
def run_detail(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_visible_run(request, pk)
    hides_outcomes = run.experiment.runs_a_plan
    attempts = run.attempt_rows.select_related("worker").defer("raw_response").order_by("-pk")[:RECENT_ROWS]
    context = {
        "run": run,
        "experiment": run.experiment,
        "hides_outcomes": hides_outcomes,
        "attempts": RecentAttemptTable(list(attempts)),
        "editable": may_edit(request, run.experiment),
        "history": HistoryTable(list(run.history[:50])),
        "trials_query": f"run={run.pk}",
        "retry_url": reverse("run_action", args=[run.pk, "retry"]),
        "served": sample_served_models(run),
        "batches": BatchTable(list(run.batches.all()[:RECENT_ROWS])) if run.is_batched else None,
        "endpoint_pause": run.endpoint.is_paused,
        **build_live_context(run.experiment, [run]),
    }
    more = build_deletion_action(run, hides_outcomes=hides_outcomes)
    context |= build_action_context(
        request, [run], editable=context["editable"], more=more, hides_outcomes=hides_outcomes
    )
    return render(request, choose_template(request, "runs_app/run_detail.html", "run_live"), context)


def build_action_context(
    request: HttpRequest,
    runs: list[Run],
    *,
    editable: bool,
    more: Sequence[Action] = (),
    hides_outcomes: bool = False,
) -> dict[str, Any]:
    """Return the actions and whether they differ from those on the page, which a poll names in `shown`."""
    actions = [*list_actions(runs, hides_outcomes=hides_outcomes), *more] if editable else []
    is_under_way = any(run.status in Run.UNDER_WAY for run in runs)
    names = ",".join([action.verb for action in actions] + (["priority"] if editable and is_under_way else []))
    return {
        "actions": actions,
        "action_names": names,
        "is_poll": wants_part(request),
        "actions_changed": request.GET.get("shown") != names,
    }


def choose_template(request: HttpRequest, page: str, part: str) -> str:
    # Django 6.0 supports `page#part`; until then the part is a file of its own.
    return f"runs_app/partials/{part}.html" if wants_part(request) else page


def _find_budget_gap(experiment: Experiment, runs: list[Run], totals: Totals) -> Decimal | None:
    """Return what the pending trials cost beyond the budget, at the mean cost so far. None if unknown or not beyond."""
    ended = totals.done + totals.failed
    if experiment.max_usd is None or not ended or not totals.pending:
        return None
    needed = progress.sum_spent(runs) / ended * totals.pending
    gap = needed - (experiment.max_usd - experiment.spent_usd - experiment.reserved_usd)
    return gap if gap > 0 else None


def build_live_context(experiment: Experiment, runs: list[Run]) -> dict[str, Any]:
    totals = Totals.of(runs)
    pace = progress.measure_pace(runs, totals.remaining)
    blockers = find_blockers(runs)
    errors, workers = progress.count_errors(runs), list(progress.find_live_workers())
    return {
        "totals": totals,
        # Rounded down, so that 100 appears only when all trials are done.
        "done_share": f"{math.floor(1000 * totals.done / totals.trials) / 10:.1f}" if totals.trials else "0",
        "per_minute": round(pace.per_minute),
        "unpriced": totals.unpriced,
        "stop_reasons": find_stop_reasons(runs),
        "blockers": blockers,
        "lacks_budget": any(run.is_paused_by_budget and not run.fits_budget for run in runs),
        "state": experiment.find_state(totals),
        "pace": pace,
        "curve": build_throughput_curve(pace.points),
        "errors": errors,
        "unusable_answers": progress.count_unusable_answers(runs, errors),
        "spent": totals.find_known_cost(progress.sum_spent(runs)),
        "spent_of_budget": totals.find_known_cost(experiment.spent_usd),
        "projection": progress.project_cost(runs, experiment.max_usd),
        "to_retry": sum(run.n_failed for run in runs if run.is_callable_here and run.status != Run.Status.CANCELLED),
        "budget_gap": _find_budget_gap(experiment, runs, totals),
        "budget_call": max((run.reserve_usd for run in runs if not run.fits_budget), default=None),
        "workers": workers,
        "is_unattended": any(blocker.kind == "worker" for blocker in blockers),
        "points": progress.count_points(runs) if experiment.adaptive else None,
    }
