"""Files of an experiment: whole tables as streams, and figures for papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.cache import get_conditional_response
from ninja import Router
from pydantic import Field

import evalsite
from evalsite.api import reach
from evalsite.api.problems import Problem
from evalsite.api.reach import FILTERED, find_wave, read_filters
from evalsite.api.schemas import FiguresOut
from evalsite.lib.text.hashing import hash_content
from evalsite.lib.web.form_fields import get_first_error
from grading_app.models import GradeCondition
from grading_app.publish.export.command_process import parquet_from_process
from grading_app.publish.export.file_formats import export_chunks
from grading_app.publish.figures.figure_set import FigureSource
from grading_app.publish.forms import FigureForm
from grading_app.views.files import EXPORT_CONTENT_TYPES, FILE_FORMATS, figure_file
from runs_app.models import Experiment

router = Router(auth=reach.AccessToken(reach.READ), tags=["Files"])
COUNTED_TABLES = frozenset({"trials", "attempts", "gradings"})
"""Tables whose rows change only together with the counters of runs and grade conditions."""
UNCOUNTED_FILTERS = frozenset({"flag", "tag", "note"})
"""Filters that read annotations, which change no counter."""


@router.get(
    "/experiments/{slug:name}/export/{slug:table}.{slug:file_format}",
    tags=["Rows"],
    summary="Stream a whole table",
    openapi_extra=FILTERED,
)
def export(request: HttpRequest, name: str, table: str, file_format: str) -> HttpResponse | StreamingHttpResponse:
    """A table as csv, jsonl or parquet, in constant memory. Data frames read the Parquet address directly.

    Trials, attempts and gradings have an `ETag`: a client that has the current rows gets 304 and no rows. With a filter
    by annotations, they have none.
    """
    found = reach.get_experiment(request, name)
    filters = read_filters(request)
    is_counted = table in COUNTED_TABLES and UNCOUNTED_FILTERS.isdisjoint(filters)
    etag = _build_etag(found, table, file_format, filters) if is_counted else None
    if etag is not None and (unchanged := get_conditional_response(request, etag=etag)) is not None:
        return unchanged
    if file_format == "parquet":
        chunks = parquet_from_process(found, table, filters)
    else:
        chunks = export_chunks(found, table, file_format, filters)
    response = StreamingHttpResponse(chunks, content_type=EXPORT_CONTENT_TYPES[file_format])
    response["Content-Disposition"] = f'attachment; filename="{found.slug}-{table}.{file_format}"'
    if etag is not None:
        response["ETag"] = etag
        response["Cache-Control"] = "private, no-cache"
    return response


@router.get("/experiments/{slug:name}/figures", response=FiguresOut, summary="List figures")
def figures(
    request: HttpRequest,
    name: str,
    wave: Annotated[str, Field(max_length=80, description="A number or label; empty: all waves")] = "",
    measure: Annotated[str, Field(max_length=80, description="Name of a measure; empty: the first one")] = "",
) -> Any:
    """The figures for papers, with their file formats. The parameters of the page *Figures* apply to all of them."""
    found = reach.get_experiment(request, name)
    source = FigureSource(found, request.GET, find_wave(found, wave))
    form = FigureForm(request.GET, source)
    if not form.is_valid():
        raise Problem(422, get_first_error(form))
    listed = [{"name": one.name, "title": one.title, "formats": list(FILE_FORMATS)} for one in source.list_figures()]
    return {"figures": listed, "is_complete": not source.is_waiting}


@router.get("/experiments/{slug:name}/figures/{slug:figure}.{slug:file_format}", summary="Read a figure")
def figure(request: HttpRequest, name: str, figure: str, file_format: str) -> HttpResponse | StreamingHttpResponse:
    """A figure as svg, png or pdf in print style, or its numbers as csv, md or tex. `all.pdf` has every figure."""
    found = reach.get_experiment(request, name)
    query = request.GET.copy()
    query.setdefault("mm", "")  # It marks a printed figure, without a theme.
    request.GET = query  # type: ignore[assignment]
    response: HttpResponse | StreamingHttpResponse = figure_file(request, found.slug, figure, file_format)
    if response.status_code == 400 and isinstance(response, HttpResponse):
        raise Problem(422, response.content.decode())
    return response


def _build_etag(experiment: Experiment, table: str, file_format: str, filters: Mapping[str, str]) -> str:
    """Return a weak ETag that changes with every trial, attempt and grade, and with the names in the rows.

    It is read from counters, never from the rows.
    """
    counters = ("pk", "n_pending", "n_running", "n_done", "n_failed", "n_cancelled", "n_attempts", "spent_usd")
    names = ("wave__label", "condition__model__name", "condition__model__endpoint__provider", "condition__prompt__name")
    runs = experiment.runs.order_by("pk").values_list(*counters, *names)
    grades = GradeCondition.objects.filter(experiment=experiment).order_by("pk").values_list("pk", "changes")
    rows = [[str(value) for value in row] for row in (*runs, *grades)]
    content = [evalsite.__version__, experiment.slug, table, file_format, dict(filters), rows]
    return f'W/"{hash_content(content)[:32]}"'
