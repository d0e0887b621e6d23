"""The written report of an experiment: its page, its files, its figures, and the author's choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_safe

from evalsite.lib.permissions import members_only, readers_only
from grading_app.models import ReportChoices, Snapshot
from grading_app.publish.forms import ReportForm
from grading_app.publish.report.build import StoredReport, compose, get_report, read_frozen
from grading_app.publish.report.document import (
    FOLDED,
    PASTED,
    SECTION_NAMES,
    Block,
    Document,
    FigureBlock,
    Heading,
    Paragraph,
    ReportSection,
    TableBlock,
)
from grading_app.publish.report.files import FILE_TYPES, get_file
from grading_app.publish.report.typst_process import TypesettingError
from grading_app.results.cached_aggregates import Cached
from grading_app.results.plot_style import NARROW, apply_theme
from grading_app.views.tables_and_figures import read_theme, read_width, svg_policy
from runs_app.models import Experiment
from runs_app.views.permissions import get_editable_experiment, get_posted_data, get_visible_experiment, may_edit

MAX_SNAPSHOTS = 20  # Snapshots on the page.


@require_safe
@readers_only
def experiment_report(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the report of the current rows, or the report in the snapshot of the address."""
    experiment = get_visible_experiment(request, slug)
    cached, document = _get_requested_report(request, experiment)
    digest = request.GET.get("snapshot", "")
    query = f"?{urlencode({'snapshot': digest})}" if digest else ""
    context: dict[str, Any] = {
        "experiment": experiment,
        "state": experiment.state,
        "cached": cached,
        "document": document,
        "here": request.get_full_path(),
        "snapshot": request.GET.get("snapshot", "")[:12],
        "snapshots": list(Snapshot.objects.filter(experiment=experiment)[:MAX_SNAPSHOTS]),
        "may_edit": may_edit(request, experiment),
    }
    if document is not None:
        figures = reverse("report_figure", args=[slug, "NAME"]) + query
        context["sections"] = list_page_sections(document, lambda name: figures.replace("NAME", name))
        context["files"] = [(name, reverse("report_file", args=[slug, name]) + query) for name in FILE_TYPES]
    return render(request, "grading_app/report/experiment_report.html", context)


def _get_requested_report(
    request: HttpRequest, experiment: Experiment
) -> tuple[Cached[StoredReport] | None, Document | None]:
    """Return the stored report with its document, or the document of a snapshot. Raise Http404 if it has no report."""
    digest = request.GET.get("snapshot", "")
    if digest:
        snapshot = Snapshot.objects.filter(experiment=experiment, digest=digest).first()
        frozen = read_frozen(snapshot) if snapshot else None
        if frozen is None:
            raise Http404
        return None, frozen
    return get_stored_document(experiment)


def get_stored_document(experiment: Experiment) -> tuple[Cached[StoredReport], Document | None]:
    """Return the stored report, and its document with the author's choices, or None before a worker has written it."""
    cached = get_report(experiment)
    return cached, compose(cached.value.document, ReportChoices.load(experiment)) if cached.value else None


def list_page_sections(document: Document, figure_address: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the sections as `grading_app/report/block.html` shows them."""
    return [
        {
            "name": section.name,
            "title": section.title,
            "parts": _split_parts(section, labelled, figure_address),
            "pasted": _read_plain_text(section) if section.name in PASTED else "",
            "is_folded": section.name in FOLDED,
        }
        for section, labelled in document.label_sections()
    ]


def _split_parts(
    section: ReportSection, labelled: list[tuple[str, Block]], figure_address: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Return the blocks in parts. A part with titles is folded: details, and results on all but the first measure.

    The title of a folded measure is its heading. Details carry the titles of their tables and figures.
    """
    parts: list[dict[str, Any]] = [{"titles": [], "blocks": []}]
    measures, in_details = 0, False
    for label, block in labelled:
        if section.name == "results" and isinstance(block, Heading):
            measures += 1
            if measures > 1:
                parts.append({"titles": [block.text], "blocks": []})
                continue
        if measures <= 1 and section.name not in FOLDED:
            is_detail = isinstance(block, TableBlock | FigureBlock) and block.is_detail
            if is_detail != in_details:
                parts.append({"titles": [], "blocks": []})
                in_details = is_detail
            if isinstance(block, TableBlock | FigureBlock) and is_detail:
                parts[-1]["titles"].append(f"{label}. {block.title}")
        parts[-1]["blocks"].append(_make_block_context(block, figure_address) | {"label": label})
    return [part for part in parts if part["blocks"]]


def _read_plain_text(section: ReportSection) -> str:
    """Return the text of the paragraphs, without links to rows."""
    paragraphs = [block for block in section.blocks if isinstance(block, Paragraph)]
    return "\n\n".join("".join(span.text for span in paragraph.spans).strip() for paragraph in paragraphs)


def _make_block_context(block: Block, figure_address: Callable[[str], str]) -> dict[str, Any]:
    context: dict[str, Any] = {"kind": block.kind, "block": block}
    if isinstance(block, TableBlock):
        table = block.shown_table
        cells = [list(zip(table.columns, row, strict=True)) for row in table.cells()]
        return {**context, "table": table, "cells": cells}
    if isinstance(block, FigureBlock):
        address = figure_address(block.name)
        narrow = f"{address}{'&' if '?' in address else '?'}width=narrow" if block.narrow_svg else ""
        return {**context, "address": address, "narrow": narrow}
    return context


@require_safe
@readers_only
@svg_policy
def report_figure(request: HttpRequest, slug: str, name: str) -> HttpResponse:
    """Return a figure of the report as SVG, the same as in all files."""
    experiment = get_visible_experiment(request, slug)
    return make_figure_response(request, _get_requested_report(request, experiment)[1], name)


def make_figure_response(request: HttpRequest, document: Document | None, name: str) -> HttpResponse:
    figure = document.find_figure(name) if document else None
    if figure is None:
        raise Http404
    is_narrow = read_width(request) == NARROW and figure.narrow_svg
    svg = apply_theme(figure.narrow_svg if is_narrow else figure.svg, read_theme(request)).encode()
    return HttpResponse(svg, content_type="image/svg+xml")


@require_safe
@readers_only
def report_file(request: HttpRequest, slug: str, file_format: str) -> HttpResponse:
    """Return the report as one HTML file, as PDF, or as a zip. A bounded process writes PDF and zip."""
    experiment = get_visible_experiment(request, slug)
    return make_file_response(_get_requested_report(request, experiment)[1], file_format)


def make_file_response(document: Document | None, file_format: str) -> HttpResponse:
    """Return a file of the document. Raise Http404 if there is no document, or for an unknown format."""
    if document is None or file_format not in FILE_TYPES:
        raise Http404
    try:
        content = get_file(document, file_format)
    except TypesettingError as error:
        text = f"The report could not be typeset: {error}. The command `report` has no time limit."
        return HttpResponse(text, status=503, content_type="text/plain; charset=utf-8")
    name = f"{document.experiment}-report.{file_format}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(content, content_type=FILE_TYPES[file_format], headers=headers)


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def report_edit(request: HttpRequest, slug: str) -> HttpResponse:
    """Choose the sections of the report, and write text between them."""
    experiment = get_editable_experiment(request, slug)
    choices = ReportChoices.load(experiment)
    form = ReportForm(get_posted_data(request)[0], choices=choices, sections=list(SECTION_NAMES.items()))
    if request.method == "POST" and form.is_valid():
        changed = form.save(by=request.user)
        messages.success(request, "The report was saved." if changed else "Nothing changed.")
        return redirect("experiment_report", slug)
    return render(request, "grading_app/report/report_edit.html", {"experiment": experiment, "form": form})
