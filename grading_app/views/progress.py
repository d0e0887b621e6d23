"""The progress page of an experiment, with its scores once its calls have ended. It updates while a run is live."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from grading_app.results.frames import estimate_conditions
from runs_app.models import Experiment, Point, Run
from runs_app.models.conditions import load_labels
from runs_app.models.totals import Totals
from runs_app.monitoring import progress
from runs_app.planning.design import Design
from runs_app.tables.experiments import RunTable, WaveTable
from runs_app.views.permissions import get_visible_experiment, may_edit
from runs_app.views.progress import build_action_context, build_live_context, choose_template

MAX_SCORED_ANSWERS, MAX_NAMED_SCORES = 5_000, 6
GRADING_TIME = timedelta(minutes=2)


@require_safe
@readers_only
def experiment_progress(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    runs = list(experiment.answer_runs.with_design().order_by("wave__number", "pk"))
    context = {
        "experiment": experiment,
        "table": RunTable(runs, labels=load_labels([experiment.pk]), hides_outcomes=experiment.runs_a_plan),
        "editable": may_edit(request, experiment),
        "trials_query": f"experiment={experiment.slug}",
        "retry_url": reverse("experiment_action", args=[experiment.slug, "retry"]),
        **build_live_context(experiment, runs),
    }
    context |= build_action_context(request, runs, editable=context["editable"])
    context["ending"] = _describe_ending(experiment, runs, context["totals"])
    waves = progress.sum_by_wave(runs)
    context["wave_table"] = WaveTable(waves) if len(waves) > 1 else None
    context["design_trials"] = _find_unplanned_trials(experiment, runs)
    return render(request, choose_template(request, "runs_app/experiment_progress.html", "experiment_live"), context)


def _describe_ending(experiment: Experiment, runs: list[Run], totals: Totals) -> dict[str, Any] | None:
    """Return the scores of an experiment whose calls have all ended, and whether a worker still grades them.

    Scores of many answers are on the results page only, because a worker computes them.
    """
    if totals.is_under_way or not totals.done:
        return None
    if experiment.runs_a_plan:
        return None  # Paused runs have not ended, and names stay hidden beside scores.
    scores = estimate_conditions(experiment) if totals.done <= MAX_SCORED_ANSWERS else []
    first = [row for row in scores if row["measure"] == scores[0]["measure"]]
    recently = timezone.now() - GRADING_TIME
    ended = any(run.finished_at and run.finished_at > recently for run in runs)
    return {
        "scores": [
            {
                "name": row["condition"],
                "text": f"{100 * row['mean']:.0f} %" if row["is_share"] else f"{row['mean']:.2f}",
            }
            for row in first[:MAX_NAMED_SCORES]
        ],
        "more": max(0, len(first) - MAX_NAMED_SCORES),
        "is_grading": bool(experiment.scorers) and not scores and ended,
    }


def _find_unplanned_trials(experiment: Experiment, runs: list[Run]) -> int | None:
    """Return the number of trials of the whole design if the first wave has fewer; else None.

    The first wave has fewer after a pilot or an extension. While runs are live nothing can be added and the page is
    polled, so the number is computed only after they have ended.
    """
    first_wave = Totals.of(run for run in runs if run.wave.number == 0)
    if not first_wave.trials or first_wave.is_under_way or experiment.status != Experiment.Status.ACTIVE:
        return None
    if Point.objects.filter(run__in=[run.pk for run in runs]).exists():
        return None  # Adaptive points decide themselves when they have enough trials.
    design = Design.load(experiment)
    trials = design.whole_trials_per_cell * len(design.cells)
    return trials if trials > first_wave.trials else None
