"""The points of an adaptive experiment: their estimates, their stopping reasons, and the saved calls."""

from __future__ import annotations

from django.db.models import Min
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.web.list_page import paginate_table
from grading_app.adaptive.audit import describe_earlier_rule
from grading_app.results.answer_aggregates import fingerprint_results
from grading_app.results.figures.points import make_figure
from grading_app.results.frames import get_frames
from grading_app.tables.results import PointTable
from grading_app.views.svg_figures import STATE_LENGTH, make_figure_context
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.models import Experiment, Point
from runs_app.models.totals import Totals
from runs_app.monitoring.point_status import PointLine, compute_savings, describe_rule
from runs_app.planning.points import read_adaptive_spec
from runs_app.stopping import coverage
from runs_app.stopping.coverage import (
    CoverageRange,
    RepeatedCoverage,
    RepeatedDesign,
    find_coverage,
    find_nearest_coverage,
)
from runs_app.views.permissions import get_chosen_wave, get_visible_experiment

PER_PAGE = 25


@require_safe
@readers_only
def experiment_points(request: HttpRequest, slug: str) -> HttpResponse:
    """Show all points, or the points of one wave, condition or status in the address."""
    experiment = get_visible_experiment(request, slug)
    spec = read_adaptive_spec(experiment)
    wave = get_chosen_wave(request, experiment)
    state = fingerprint_results(experiment, wave)
    frames = get_frames(experiment, wave, state)
    status = request.GET.get("status", "")
    if status and status not in Point.Status.values:
        raise Http404
    condition = request.GET.get("condition", "")
    lines = [line for line in frames.points if status in ("", line.status) and condition in ("", str(line.condition))]
    table = PointTable(lines, labels=frames.labels)
    paginate_table(request, table, PER_PAGE)
    figure = make_figure(frames)
    query = {"state": state[:STATE_LENGTH]} | ({"wave": str(wave.number)} if wave else {})
    counts = [(kind, sum(line.status == kind.value for line in frames.points)) for kind in Point.Status]
    context = {
        "experiment": experiment,
        "state": experiment.find_state(Totals.of(experiment.runs.all())),
        "waves": list(experiment.waves.all()),
        "wave": wave,
        "savings": compute_savings(frames.points),
        "rule": describe_rule(spec) if spec else [],
        "is_rated": spec is not None and spec.is_rated,
        "covered": _find_coverage(spec, frames.points) if spec else None,
        "covered_tasks": _find_task_coverage(spec, frames.points) if spec else [],
        "is_simulated": spec is not None and spec.confidence == 0.95 and spec.correction == "mapped",
        "uses_excess_counts": spec is not None and spec.correction == "excess_counts",
        "repeats": experiment.samples > 1,
        "repeated": _find_repeated_coverage(experiment, spec) if spec else None,
        "statuses": [{"value": kind.value, "label": kind.label, "n": n} for kind, n in counts if n],
        "table": table if lines else None,
        "earlier_rule": describe_earlier_rule(experiment),
        "figure": make_figure_context(figure, slug, query) if figure else None,
        "export": reverse("experiment_export", args=[slug, "points", "csv"]),
    }
    return render(request, "grading_app/experiment_points.html", context)


def _find_coverage(spec: AdaptiveSpec, lines: list[PointLine]) -> CoverageRange | None:
    """Return the coverage of the most similar simulated setting.

    For ratings, use the shortest scale, where the half-width is the largest share of the scale.
    """
    if spec.targetci is None:
        return None
    if not spec.is_rated:
        return find_nearest_coverage(spec.targetci, spec.round)
    lengths = [line.scale[1] - line.scale[0] for line in lines if line.scale]
    return coverage.find_mean_coverage(spec.targetci, spec.round, min(lengths)) if lengths else None


def _find_task_coverage(spec: AdaptiveSpec, lines: list[PointLine]) -> list[tuple[str, CoverageRange]]:
    """Return the coverage of each task with its own rule and half-width."""
    coverages = [(name, _find_coverage(spec.for_task(name), lines)) for name in sorted(spec.tasks)]
    return [(name, covered) for name, covered in coverages if covered]


def _find_repeated_coverage(experiment: Experiment, spec: AdaptiveSpec) -> RepeatedCoverage | None:
    """Return the coverage of the point with the fewest items, simulated for this design.

    Return None if no point repeats an item, or for ratings, where items count once.
    """
    if spec.is_rated or spec.correction != "mapped" or experiment.samples == 1 or spec.targetci is None:
        return None
    points = Point.objects.filter(run__experiment=experiment, n_items__lt=spec.max)
    items = points.aggregate(least=Min("n_items"))["least"]
    if not items:
        return None
    maximum = min(spec.max, items * experiment.samples)
    return find_coverage(RepeatedDesign(items, maximum, min(spec.round, maximum), spec.targetci, spec.confidence))
