"""The ledger pages: costs and savings of one experiment and, for operators, of the whole lab."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import operators_only, readers_only
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from evalsite.lib.web.form_fields import fetch_choices
from evalsite.lib.web.list_page import paginate_table
from runs_app.filters import LabLedgerFilter, LedgerFilter
from runs_app.models import LedgerEntry
from runs_app.models.totals import Totals
from runs_app.monitoring import ledger_report
from runs_app.tables.columns import NUMBER, TIGHT, CountColumn, MoneyColumn
from runs_app.views.permissions import get_visible_experiment

PER_PAGE = 100


class LedgerTable(tables.Table):
    """The lines of the ledger. `by` is the key of their groups."""

    label = tables.Column(attrs=TIGHT)
    calls = CountColumn(accessor="sums__calls")
    input_tokens = CountColumn(accessor="sums__input_tokens", verbose_name="Tokens in")
    output_tokens = CountColumn(accessor="sums__output_tokens", verbose_name="Tokens out")
    list_usd = MoneyColumn(accessor="sums__list_usd", verbose_name="List price")
    saved_usd = tables.Column(accessor="sums__saved_usd", verbose_name="Saved", attrs=NUMBER)
    paid_usd = MoneyColumn(accessor="sums__paid_usd", verbose_name="Paid")
    unpriced = CountColumn(accessor="sums__unpriced", verbose_name="Unknown cost")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def __init__(self, lines: Any, *, by: str, **kwargs: Any) -> None:
        super().__init__(lines, **kwargs)
        self.by = by
        self.columns["label"].column.verbose_name = by.capitalize()

    def render_label(self, record: Any) -> SafeString | str:
        # A preflight has no run and may have no experiment.
        page = {"run": "run_detail", "experiment": "experiment_ledger"}.get(self.by)
        if page is None or record.key is None:
            return str(record.label)
        return format_html('<a href="{}">{}</a>', reverse(page, args=[record.key]), record.label)

    def render_calls(self, record: Any) -> SafeString:
        return _render_total(record.sums.calls, (("reused", record.sums.reused),))

    def render_input_tokens(self, record: Any) -> SafeString:
        sums = record.sums
        return _render_total(
            sums.input_tokens, (("from cache", sums.cache_read_tokens), ("into cache", sums.cache_write_tokens))
        )

    def render_output_tokens(self, record: Any) -> SafeString:
        return _render_total(record.sums.output_tokens, (("reasoning", record.sums.reasoning_tokens),))

    def render_saved_usd(self, record: Any) -> SafeString | str:
        return tags.money(record.sums.saved_usd) if record.sums.saved_usd else number_format.MISSING

    def render_unpriced(self, record: Any) -> SafeString | str:
        if not record.sums.unpriced:
            return number_format.MISSING
        amount = record.sums.kept_usd
        note = f"{number_format.format_money(amount)} reserved" if amount else "nothing reserved"
        return format_html('{} <span class="muted">{}</span>', number_format.format_count(record.sums.unpriced), note)


def _render_total(total: int, parts: tuple[tuple[str, int], ...]) -> SafeString:
    """Return a total with its non-zero parts, for example `1,200 (300 from cache)`."""
    note = ", ".join(f"{number_format.format_count(n)} {name}" for name, n in parts if n)
    if not note:
        return format_html("{}", number_format.format_count(total))
    return format_html('{} <span class="muted">{}</span>', number_format.format_count(total), note)


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
