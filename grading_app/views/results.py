"""The progress page of an experiment, with its scores once its calls have ended, and the results page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from datasets_app.models import Item
from evalsite.lib.permissions import readers_only
from evalsite.lib.text.names import UnknownNameError
from evalsite.lib.web.list_page import paginate_table
from evalsite.lib.web.model_names import hides_model_names
from grading_app.models import BlindReading
from grading_app.results.frames import estimate_conditions, load_condition_labels
from grading_app.results.leaderboard import BoardQuery
from grading_app.results.leaderboard_tables import BoardLinks, make_outcome_table
from grading_app.results.scope import MISSING_CHOICES, MISSING_WRONG
from grading_app.results.scores import describe_extreme, list_measures, match_measure
from grading_app.results.stored_results import StoredResults, get_results
from grading_app.results.table import ResultTable
from grading_app.views.blind import get_blind_context
from grading_app.views.tables_and_figures import (
    STATE_LENGTH,
    get_table_context,
    make_figure_context,
    make_requested_file,
)
from runs_app.models import Experiment, Point, Run, Wave
from runs_app.models.conditions import load_labels
from runs_app.models.totals import Totals
from runs_app.monitoring import progress
from runs_app.planning.design import Design
from runs_app.tables.experiments import RunTable, WaveTable
from runs_app.views.permissions import get_chosen_wave, get_visible_experiment, may_edit
from runs_app.views.progress import build_action_context, build_live_context, choose_template

MAX_SCORED_ANSWERS, MAX_NAMED_SCORES = 5_000, 6
RUNS_PER_PAGE = 100
GRADING_TIME = timedelta(minutes=2)
FIRST_FIGURES = {True: ("norms", "ratings"), False: ("scores", "accuracy", "points")}
"""The figure beside the table is the first of these that the experiment has; True: if its first measure is a rating."""
WIDE_TABLE = 5
"""A table with more columns takes the width of the page; its figure stands beside the items, if these are narrow."""
NARROW_ITEMS = 3
"""Items with a text, or with more cells in a row, take the width of the page."""


@require_safe
@readers_only
def experiment_progress(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    runs = list(experiment.answer_runs.with_design().order_by("wave__number", "pk"))
    is_long = len(runs) > RUNS_PER_PAGE and not experiment.runs_a_plan
    rows = sorted(runs, key=lambda run: not (run.n_failed or run.current_stop_reason)) if is_long else runs
    table = RunTable(rows, labels=load_labels([experiment.pk]), hides_outcomes=experiment.runs_a_plan)
    paginate_table(request, table, RUNS_PER_PAGE)
    context = {
        "experiment": experiment,
        "table": table,
        "failed_first": is_long,
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
    are_missing = any(row["missing"] for row in first)
    recently = timezone.now() - GRADING_TIME
    ended = any(run.finished_at and run.finished_at > recently for run in runs)
    shares = [row["mean"] for row in first if row["is_share"]]
    return {
        "extreme": describe_extreme(first[0]["label"], shares) if shares else None,
        "scores": [
            {
                "name": row["condition"],
                "text": f"{100 * row['mean']:.0f} %" if row["is_share"] else f"{row['mean']:.2f}",
                "basis": f"{row['n']:,} of {row['n'] + row['missing']:,} scored" if are_missing else "",
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


class BoardForm(forms.Form):
    """The choices of a leaderboard, sent by GET. An invalid choice has no effect."""

    baseline = forms.TypedChoiceField(label="Baseline", required=False, coerce=int, empty_value=None)
    missing = forms.ChoiceField(
        label="Answers without a score",
        required=False,
        choices=MISSING_CHOICES,
    )

    def __init__(self, data: Any, labels: dict[int, str]) -> None:
        super().__init__(data)
        field: Any = self.fields["baseline"]
        field.choices = [("", "None"), *labels.items()]

    def make_query(
        self, experiment: Experiment, wave: Wave | None, blind: BlindReading | None, measure: str
    ) -> BoardQuery:
        self.full_clean()
        counts_as_wrong = self.cleaned_data.get("missing") == MISSING_WRONG
        return BoardQuery(experiment, wave, counts_as_wrong, self.cleaned_data.get("baseline"), blind, measure)


@require_safe
@readers_only
@hides_model_names()
def experiment_results(request: HttpRequest, slug: str) -> HttpResponse:
    return render_results(request, get_visible_experiment(request, slug))


def render_results(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    """Show what the results say, the table of conditions, one figure and the items to read; all else is closed."""
    slug = experiment.slug
    wave = get_chosen_wave(request, experiment)
    blind = get_blind_context(request, experiment)
    reading = blind["blind"]
    labels = load_condition_labels(experiment, wave, reading.assign_letters() if reading else None)
    form = BoardForm(request.GET, labels)
    measure = ""
    if name := request.GET.get("measure", ""):
        try:
            measure = match_measure(list_measures(experiment), name).key
        except UnknownNameError as error:
            raise Http404 from error
    cached = get_results(form.make_query(experiment, wave, reading, measure))
    results, screen = cached.value, cached.value.screen if cached.value else None
    outcomes = None
    if results is not None:
        outcomes = make_outcome_table(results.outcomes, labels, is_rated=bool(results.dimensions), slug=slug)
        tables = [*(screen.tables if screen else []), outcomes]
        if (file := make_requested_file(request, tables, f"{slug}-results")) is not None:
            return file
    context = {
        "experiment": experiment,
        "state": experiment.state,
        "waves": list(experiment.waves.all()),
        "wave": wave,
        "measure": measure,
        "board_form": form,
        "results_cached": cached,
        "editable": may_edit(request, experiment),
        "results": results,
        "screen": screen,
        "counts_missing": form.cleaned_data.get("missing") == MISSING_WRONG,
        **blind,
    }
    if results is not None:
        has_answers = any(row.done or row.failed for row in results.outcomes)
        context["answers"] = get_table_context(outcomes) if outcomes and has_answers else None
    if results is not None and screen is not None:
        order, links = request.GET.get("sort", ""), BoardLinks(results.board, experiment, wave, "")
        state = f"{reading.pk}-{cached.fingerprint}" if reading else cached.fingerprint
        of_figure = {"state": state[:STATE_LENGTH]} | ({"wave": str(wave.number)} if wave else {})
        figures = {content["name"]: make_figure_context(content, slug, of_figure) for content in results.figures}
        if screen.cost:
            missing = {"missing": request.GET["missing"]} if request.GET.get("missing") else {}
            figures["cost"] = make_figure_context(screen.cost, slug, of_figure | missing)
        names = FIRST_FIGURES[results.board.measures[0].is_rating]
        first_name = next((name for name in names if name in figures), "")
        items = _load_items(results)
        is_wide = len(screen.first["columns"]) > WIDE_TABLE
        are_narrow = all(len(cells) <= NARROW_ITEMS and not item.input for item, cells in items)
        context |= {
            "first": get_table_context(ResultTable.from_content(screen.first), order),
            "further": [
                get_table_context(ResultTable.from_content(content), order)
                for content in (*screen.baselines, *screen.further, screen.effort)
            ],
            "extremes": [(extreme, links.list_trials(None, measure)) for measure, extreme in results.board.extremes],
            "off_scale": [one.off_scale for one in results.board.closeness.values() if one.off_scale],
            "items": items,
            "is_wide": is_wide,
            "items_beside": is_wide and are_narrow,
            "figure": figures.pop(first_name, None),
            "figures": list(figures.values()),
        }
    return render(request, "grading_app/experiment_results.html", context)


def _load_items(results: StoredResults) -> list[tuple[Item, list[tuple[str, str]]]]:
    """Return the telling items with pairs of label and text for each cell."""
    telling = results.screen.items if results.screen else None
    if telling is None:
        return []
    items = Item.objects.select_related("image").in_bulk([row.pk for row in telling.items])
    rows = [row for row in telling.items if row.pk in items]
    return [(items[row.pk], list(zip(telling.head, row.cells, strict=True))) for row in rows]
