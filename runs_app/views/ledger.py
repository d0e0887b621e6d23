"""The ledger pages: costs and savings of one experiment and, for operators, of the whole lab."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import operators_only, readers_only
from evalsite.lib.web.form_fields import fetch_choices
from evalsite.lib.web.list_page import paginate_table
from runs_app.filters import LabLedgerFilter, LedgerFilter
from runs_app.models import LedgerEntry
from runs_app.models.totals import Totals
from runs_app.monitoring import ledger_report
from runs_app.tables.ledger import LedgerTable
from runs_app.views.permissions import get_visible_experiment

PER_PAGE = 100


@require_safe
@readers_only
def experiment_ledger(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    entries = LedgerEntry.objects.filter(ledger_report.filter_experiment(experiment))
    runs = list(experiment.runs.all())
    context = {
        "experiment": experiment,
        "deleted_runs": list(experiment.deleted_runs.all()),
        "state": experiment.find_state(Totals.of(runs)),
    }
    filter_ = LedgerFilter(request.GET, queryset=entries, request=request)
    return render(request, "runs_app/experiment_ledger.html", context | _build_context(request, filter_))


@require_safe
@operators_only
def lab_ledger(request: HttpRequest) -> HttpResponse:
    filter_ = LabLedgerFilter(request.GET, queryset=LedgerEntry.objects.all(), request=request)
    return render(request, "runs_app/lab_ledger.html", _build_context(request, filter_))


def _build_context(request: HttpRequest, filter_: LedgerFilter) -> dict[str, Any]:
    lines = ledger_report.sum_by_group(filter_.qs, filter_.grouping)
    table = LedgerTable(lines, by=filter_.grouping)
    paginate_table(request, table, PER_PAGE)
    fetch_choices(filter_.form)
    return {"filter": filter_, "table": table, "lines": lines, "sums": ledger_report.Sums.add_up(lines)}
