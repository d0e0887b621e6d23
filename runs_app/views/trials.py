"""The list of trials, filtered and paginated by key, and the page of one trial."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.choice_fields import fetch_choices
from evalsite.lib.web.long_text import text_file
from runs_app import trial_pagination
from runs_app.filters import TrialFilter
from runs_app.models import Experiment, Run, Trial
from runs_app.monitoring.progress import COUNTED, Totals, experiment_state
from runs_app.prompt_preview import turns_of
from runs_app.tables import AttemptTable
from runs_app.trial_table import ScoreColumn, TrialTable
from runs_app.views.annotations import panel_context

CURSORS = ("after", "before")
MOST_SCORES = 6  # Columns of scores in the list. The page of a trial shows all of them.
MOST_SHOWN = 100  # Preferences of one answer. It meets the answers of every other condition, in both orders, per judge.


@require_safe
@readers_only
def trial_list(request: HttpRequest) -> HttpResponse:
    filter_ = TrialFilter(request.GET, request=request)
    search = filter_.search
    page = trial_pagination.Page([])
    if search is not None:
        page = trial_pagination.find(search, after=_cursor(request, "after"), before=_cursor(request, "before"))
    rows = list(trial_pagination.rows(page.keys)) if page.keys else []
    experiment = filter_.form.cleaned_data["experiment"] if search is not None else None
    graders = _graders(experiment) if experiment else []
    gradings = _scores(rows, graders)
    columns = [ScoreColumn(grader, gradings) for grader in graders]
    table = TrialTable(rows, query=_without_cursors(request), scores=columns)
    fetch_choices(filter_.form)
    context = {"filter": filter_, "table": table, "page": page, **_links(request, page)}
    totals = Totals.of(experiment.runs.generating()) if experiment else None
    context |= {"count_label": _count_label(filter_, totals), "experiment": experiment}
    if experiment and totals:
        context["state"] = experiment_state(experiment, totals)
    return render(request, "runs_app/trial_list.html", context)


def _graders(experiment: Experiment) -> list[Any]:
    """Return the grade conditions that have a column: rules, judges and panels that give an answer a score."""
    kinds = experiment.grade_conditions.exclude(scorer="rating").exclude(rubric__kind="pairwise")
    of_answers = kinds.exclude(kind__in=("person", "adjudicated")).select_related("grader", "rubric", "panel")
    return list(of_answers.order_by("pk")[:MOST_SCORES])


def _scores(rows: list[Trial], graders: list[Any]) -> dict[tuple[int, int], Any]:
    """Return the gradings of these trials by (trial, grade condition)."""
    if not rows or not graders:
        return {}
    model = graders[0].gradings.model
    gradings = model.objects.filter(trial__in=rows, condition__in=graders).defer("reasoning", "detail")
    return {(grading.trial_id, grading.condition_id): grading for grading in gradings}


def _count_label(filter_: TrialFilter, of_experiment: Totals | None) -> str:
    """Return how many trials match, where the counters of the runs hold the number."""
    search, chosen = filter_.search, set(filter_.form.changed_data)
    if search is None or not chosen <= {"experiment", "condition", "run", "status"}:
        return ""
    statuses = [search.status] if search.status else COUNTED
    if of_experiment and not chosen & {"condition", "run"}:
        n = sum(getattr(of_experiment, status) for status in statuses)
    else:
        counted = search.runs.order_by().aggregate(**{status: Sum(f"n_{status}", default=0) for status in statuses})
        n = sum(counted.values())
    return f"{format_count(n)} trial{'' if n == 1 else 's'}"


@require_safe
@readers_only
def trial_detail(request: HttpRequest, pk: int) -> HttpResponse:
    trial = _visible_trial(request, pk)
    attempts = AttemptTable(list(trial.attempt_rows.select_related("worker").order_by("pk")))
    context = {
        "trial": trial,
        "turns": turns_of(trial),
        "latency_s": None if trial.latency_ms is None else trial.latency_ms / 1000,
        "attempts": attempts,
        "gradings": _gradings(trial),
        "norm": trial.item.norms.filter(dimension=trial.dimension.name).first() if trial.dimension else None,
        "former": _former_verdicts(trial),
        "preferences": _preferences(trial),
        "query": _without_cursors(request),
        "same_item": _same_item(request, trial),
        **_neighbours(request, trial),
        **panel_context(request, trial),
    }
    return render(request, "runs_app/trial_detail.html", context)


@require_safe
@readers_only
def trial_text(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """One of the trial's texts as a file, whole: a page shows the first part of a long one."""
    trial = _visible_trial(request, pk)
    texts = {
        "answer": trial.answer,
        "reasoning": trial.reasoning,
        "response": trial.raw_response,
        "error": trial.error,
        "target": trial.item.target,
    }
    text = texts.get(name)
    if not text:
        raise Http404
    return text_file(text, f"trial-{pk}-{name}")


@require_safe
@readers_only
def trial_message(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    """One message that was sent, whole, as a file. Numbers count the turns of the trial's page from 1."""
    turns = turns_of(_visible_trial(request, pk)).turns
    if not 1 <= number <= len(turns) or not turns[number - 1].text:
        raise Http404
    return text_file(turns[number - 1].text, f"trial-{pk}-message-{number}")


def _visible_trial(request: HttpRequest, pk: int) -> Trial:
    visible = Trial.objects.visible_to(request.user).select_related(
        "run__experiment",
        "run__wave",
        "run__condition__model__endpoint",
        "run__condition__prompt",
        "run__condition__sampler",
        "item__image",
        "dimension",
        "worker",
        "subject",
        "rival",
    )
    trial: Trial = get_object_or_404(visible, pk=pk)
    return trial


def _gradings(trial: Trial) -> list[Any]:
    """Return the gradings of the answer. For a judge's call, return the grading that was parsed from its reply."""
    rows = trial.subject.gradings.filter(judged_by=trial) if trial.subject else trial.gradings.all()
    described = ("condition__grader", "condition__rubric", "condition__panel")
    return list(rows.select_related(*described).order_by("pk"))


def _former_verdicts(trial: Trial) -> list[Any]:
    """Return the verdicts on this answer that newer ones replaced, newest first.

    A former preference is listed with the answer that was shown first.
    """
    return list(trial.superseded.select_related("condition").order_by("-pk")[:MOST_SHOWN])


def _preferences(trial: Trial) -> list[dict[str, Any]]:
    """Return the judges' preferences between this answer and others, newest first.

    For a judge's call, return the verdict that was parsed from its reply.
    Each entry holds the position of this answer (`a` or `b`; empty for a call), the other answer, and `won`.
    """
    if trial.subject_id:
        found = getattr(trial, "preference", None)
        return [{"row": found, "place": "", "other": None, "won": None}] if found else []
    first, second = (
        [(row, place, other) for row in getattr(trial, name).select_related("condition").order_by("-pk")[:MOST_SHOWN]]
        for name, place, other in (("shown_first", "a", "trial_b_id"), ("shown_second", "b", "trial_a_id"))
    )
    rows = sorted([*first, *second], key=lambda one: -one[0].pk)
    return [
        {"row": row, "place": place, "other": getattr(row, other), "won": row.winner == place}
        for row, place, other in rows[:MOST_SHOWN]
    ]


def _cursor(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 19 else None


def _without_cursors(request: HttpRequest) -> str:
    query = request.GET.copy()
    for name in CURSORS:
        query.pop(name, None)
    return query.urlencode()


def _links(request: HttpRequest, page: trial_pagination.Page) -> dict[str, str]:
    """Return the URLs of the next and the previous page under the same filter."""
    query = _without_cursors(request)
    stem = f"?{query}&" if query else "?"
    return {
        "next_url": f"{stem}after={page.after}" if page.after is not None else "",
        "previous_url": f"{stem}before={page.before}" if page.before is not None else "",
    }


def _neighbours(request: HttpRequest, trial: Trial) -> dict[str, int | None]:
    search = TrialFilter(request.GET, request=request).search
    return {"next": None, "previous": None} if search is None else _beside(search, trial)


def _same_item(request: HttpRequest, trial: Trial) -> dict[str, int | None]:
    """The trials around this one that ask the same of the same item: its repetitions, then other conditions."""
    runs = Run.objects.visible_to(request.user).filter(
        experiment=trial.run.experiment_id, condition__stage=trial.run.condition.stage
    )
    return _beside(trial_pagination.Search(runs, items=[trial.item_id], rest=Q(dimension=trial.dimension_id)), trial)


def _beside(search: trial_pagination.Search, trial: Trial) -> dict[str, int | None]:
    """Keys of the next and the previous trial of a search, by index."""
    after = trial_pagination.find(search, after=trial.pk, size=1).keys
    before = trial_pagination.find(search, before=trial.pk, size=1).keys
    return {"next": after[0] if after else None, "previous": before[0] if before else None}
