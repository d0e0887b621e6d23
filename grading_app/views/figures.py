"""The figures of an experiment for papers: a page with a small form, and the files of every figure."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.figures import FigureForm
from grading_app.models import BlindReading
from grading_app.publish.export.command_process import stream_command
from grading_app.publish.figures.figure_set import HIDE_NAMES, FigureSource, find_figure, list_figures
from grading_app.publish.figures.print_style import CONTENT_TYPES, PrintStyle
from grading_app.publish.figures.rating_summary import summarize_ratings
from grading_app.results.figure import Figure
from grading_app.results.table import CONTENT_TYPES as TABLE_TYPES
from grading_app.views.svg_figures import STATE_LENGTH, make_svg_response, read_theme, read_width, svg_policy
from runs_app.models import Experiment
from runs_app.views.permissions import get_chosen_wave, get_visible_experiment

TABLE_FORMATS = {"csv": "csv", "md": "md", "tex": "latex"}
"""The formats of `ResultTable` by the suffix in the address."""
FILE_FORMATS = (*CONTENT_TYPES, *TABLE_FORMATS)

MAX_VALUE = 200


@require_safe
@readers_only
def experiment_figures(request: HttpRequest, slug: str) -> HttpResponse:
    """Show every figure in the chosen style, with its files. Every choice is in the address."""
    experiment = get_visible_experiment(request, slug)
    wave = get_chosen_wave(request, experiment)
    source = FigureSource(experiment, request.GET, wave)
    form = FigureForm(request.GET, source)
    listed = list_figures(source) if form.is_valid() else []
    form.offer_figures(listed, are_all=not source.is_waiting)
    figures = [one for one in listed if form.is_valid() and form.cleaned_data["only"] in ("", one.name)]
    context = {
        "experiment": experiment,
        "state": experiment.state,
        "form": form,
        "figures": [_make_figure_context(request, experiment, figure, form.style) for figure in figures],
        "is_waiting": source.is_waiting,
        "all_pdf": _get_file_url(request, experiment, "all", "pdf"),
        "summary": reverse("figures_summary", args=[slug], query={"wave": wave.number} if wave else None),
    }
    return render(request, "grading_app/figures.html", context)


def _make_figure_context(
    request: HttpRequest, experiment: Experiment, figure: Figure, style: PrintStyle
) -> dict[str, Any]:
    files = [(kind.upper(), _get_file_url(request, experiment, figure.name, kind)) for kind in FILE_FORMATS]
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "alt": figure.alt,
        "size": style.measure(figure),
        "address": files[0][1],
        "files": files,
        "page": reverse(figure.page, args=[experiment.slug]),
        "is_printed": True,
    }


def _get_file_url(request: HttpRequest, experiment: Experiment, name: str, file_format: str) -> str:
    """Return the address of a file. The parameter `mm` marks a printed figure."""
    query = request.GET.copy()
    for name, values in list(query.lists()):
        if max(map(len, values), default=0) > MAX_VALUE:  # It is no valid option, and a page has a hundred such links.
            del query[name]
    query.setdefault("mm", "")
    return f"{reverse('figure_file', args=[experiment.slug, name, file_format])}?{query.urlencode()}"


def _hides_names(request: HttpRequest) -> bool:
    name, _, suffix = request.path.rpartition("/")[2].rpartition(".")
    return suffix == "svg" and "mm" not in request.GET and name.partition("-")[0] in HIDE_NAMES


@require_safe
@readers_only
@svg_policy
@hides_model_names(when=_hides_names)
def figure_file(request: HttpRequest, slug: str, name: str, file_format: str) -> HttpResponse | StreamingHttpResponse:
    """Return a figure as SVG, PNG or PDF, or the table behind it as CSV, Markdown or LaTeX.

    An SVG without the parameter `mm` is the picture of a page: `theme` is light or dark, by default the reader's, and
    `width` is narrow or half a page. All other pictures are in print style.
    """
    experiment = get_visible_experiment(request, slug)
    is_on_page = file_format == "svg" and "mm" not in request.GET
    blind = BlindReading.objects.hidden_for(request.user).filter(experiment=experiment).first() if is_on_page else None
    source = FigureSource(experiment, request.GET, get_chosen_wave(request, experiment), blind)
    if is_on_page:
        theme, width = read_theme(request), read_width(request)
        figure = find_figure(source, name)
        choices = sorted((key, value) for key, value in request.GET.items() if key not in ("theme", "width", "state"))
        state = f"{slug} {choices} {source.state}" if source.state else ""
        response = make_svg_response(figure, width, theme, state=state)
        is_current = bool(source.state) and request.GET.get("state") == source.state[:STATE_LENGTH]
        response["Cache-Control"] = "private, max-age=604800, immutable" if is_current else "private, no-store"
        return response
    form = FigureForm(request.GET, source)
    if not form.is_valid():
        return HttpResponseBadRequest(get_first_error(form), content_type="text/plain; charset=utf-8")
    if (name, file_format) == ("all", "pdf"):
        return _stream_all_figures(request, experiment)
    figure = find_figure(source, name) if file_format in FILE_FORMATS else None
    if figure is None:
        raise Http404
    if file_format in TABLE_FORMATS:
        table_format = TABLE_FORMATS[file_format]
        content, kind = figure.table().render(table_format).encode(), TABLE_TYPES[table_format]
    else:
        content, kind = form.style.write(figure.draw, file_format), CONTENT_TYPES[file_format]  # type: ignore[arg-type]
    disposition = "inline" if file_format == "svg" else "attachment"
    headers = {"Content-Disposition": f'{disposition}; filename="{slug}-{name}.{file_format}"'}
    return HttpResponse(content, content_type=kind, headers=headers)


def _stream_all_figures(request: HttpRequest, experiment: Experiment) -> StreamingHttpResponse:
    """Stream one PDF with every figure from a separate process, because many figures take long."""
    arguments = ["figures", experiment.slug, "--format", "pdf", "--out", "-", f"--query={request.GET.urlencode()}"]
    response = StreamingHttpResponse(stream_command(arguments), content_type="application/pdf")
    response["Content-Disposition"] = f'attachment; filename="{experiment.slug}-figures.pdf"'
    return response


@require_safe
@readers_only
def figures_summary(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the number of items, samples per item and correlations as JSON."""
    experiment = get_visible_experiment(request, slug)
    source = FigureSource(experiment, request.GET, get_chosen_wave(request, experiment))
    return JsonResponse(summarize_ratings(source), json_dumps_params={"indent": 1})
