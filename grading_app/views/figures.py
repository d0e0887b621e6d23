"""The figures of an experiment for papers: a page with a small form, and the files of every figure."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.web.form_errors import get_first_error
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.figures import FigureForm
from grading_app.publish.export.command_process import stream_command
from grading_app.publish.figures.figure_registry import find_figure, list_figures
from grading_app.publish.figures.figure_set import summarize_ratings
from grading_app.publish.figures.figure_source import FigureSource
from grading_app.publish.figures.kinds import PaperFigure
from grading_app.publish.figures.print_style import CONTENT_TYPES
from grading_app.views import results
from grading_app.views.svg_figures import svg_policy
from runs_app.models import Experiment
from runs_app.views.permissions import get_chosen_wave, get_visible_experiment

FILE_FORMATS = ("svg", "png", "pdf", "csv")

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
        "figures": [_make_figure_context(request, experiment, figure) for figure in figures],
        "is_waiting": source.is_waiting,
        "all_pdf": _get_file_url(request, experiment, "all", "pdf"),
        "summary": reverse("figures_summary", args=[slug], query={"wave": wave.number} if wave else None),
    }
    return render(request, "grading_app/figures.html", context)


def _make_figure_context(request: HttpRequest, experiment: Experiment, figure: PaperFigure) -> dict[str, Any]:
    return {
        "figure": figure,
        "picture": _get_file_url(request, experiment, figure.name, "svg"),
        "files": [(kind, _get_file_url(request, experiment, figure.name, kind)) for kind in FILE_FORMATS],
        "page": reverse(figure.page, args=[experiment.slug]),
    }


def _get_file_url(request: HttpRequest, experiment: Experiment, name: str, file_format: str) -> str:
    """Return the address of a file. The parameter `mm` marks a printed figure."""
    query = request.GET.copy()
    for name, values in list(query.lists()):
        if max(map(len, values), default=0) > MAX_VALUE:  # It is no valid option, and a page has a hundred such links.
            del query[name]
    query.setdefault("mm", "")
    return f"{reverse('figure_file', args=[experiment.slug, name, file_format])}?{query.urlencode()}"


@require_safe
@readers_only
@svg_policy
@hides_model_names(when=lambda request: request.path.endswith(".svg") and "mm" not in request.GET)
def figure_file(request: HttpRequest, slug: str, name: str, file_format: str) -> HttpResponse | StreamingHttpResponse:
    """Return a figure as SVG, PNG or PDF in print style, or its numbers as CSV.

    An SVG without the parameter `mm` is the figure of the results page, in the reader's theme.
    """
    if file_format == "svg" and "mm" not in request.GET:
        response: HttpResponse = results.experiment_figure(request, slug, name)
        return response
    experiment = get_visible_experiment(request, slug)
    source = FigureSource(experiment, request.GET, get_chosen_wave(request, experiment))
    form = FigureForm(request.GET, source)
    if not form.is_valid():
        return HttpResponseBadRequest(get_first_error(form), content_type="text/plain; charset=utf-8")
    if (name, file_format) == ("all", "pdf"):
        return _stream_all_figures(request, experiment)
    figure = find_figure(source, name) if file_format in FILE_FORMATS else None
    if figure is None:
        raise Http404
    if file_format == "csv":
        content, kind = figure.table().render("csv").encode(), "text/csv; charset=utf-8"
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
