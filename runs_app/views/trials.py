"""The list of trials, filtered and paginated by key, and the page of one trial."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.choice_fields import fetch_choices
from evalsite.lib.web.filter_chips import list_filter_chips
from evalsite.lib.web.long_text import text_file
from runs_app.annotations import annotations_of_trials
from runs_app.filters import TrialFilter
from runs_app.models import Condition, Experiment, Run, Trial
from runs_app.monitoring.progress import Totals, find_experiment_state
from runs_app.prompt_preview import rebuild_turns
from runs_app.tables.attempts import AttemptTable
from runs_app.tables.trials import ScoreColumn, TrialTable
from runs_app.trial_list import trial_pagination
from runs_app.trial_list.same_item import list_same_item
from runs_app.trial_list.sort_limits import suggest_narrower
from runs_app.trial_list.trial_order import (
    MOST_SORTED,
    TrialOrder,
    count_matches,
    find_ordered,
    make_cursor,
    read_order,
)
from runs_app.views.annotations import panel_context

CURSORS = ("after", "before")
MOST_SCORES = 6  # Columns of scores in the list. The page of a trial shows all of them.
MOST_SHOWN = 100  # Preferences of one answer. It meets the answers of every other condition, in both orders, per judge.


@require_safe
@readers_only
def trial_list(request: HttpRequest) -> HttpResponse:
    filter_ = TrialFilter(request.GET, request=request)
    search = filter_.search
    experiment = filter_.form.cleaned_data["experiment"] if search is not None else None
    graders = _graders(experiment) if experiment else []
    totals = Totals.of(experiment.runs.generating()) if experiment else None
    is_whole = not {"run", "condition"} & set(filter_.form.changed_data)
    count, bound = count_matches(search, totals if is_whole else None) if search is not None else (0, 0)
    listing = Listing.of(request, search, graders, sorts_all=bound <= MOST_SORTED)
    page = listing.page(request)
    rows = list(trial_pagination.rows(page.keys)) if page.keys else []
    rows.sort(key=lambda trial: page.keys.index(trial.pk))
    gradings = _scores(rows, graders)
    table = TrialTable(
        rows,
        query=_without_cursors(request),
        scores=[ScoreColumn(grader, gradings) for grader in graders],
        annotations=annotations_of_trials(rows),
        chosen=request.GET.getlist("column"),
        order=listing.order,
        descending_keys=listing.is_descending,
        sorts_all=listing.sorts_all,
    )
    fetch_choices(filter_.form)
    context = {
        "filter": filter_,
        "chips": list_filter_chips(filter_.form, request),
        "table": table,
        "page": page,
        **_links(request, page),
        "count_label": "" if search is None else _count_label(count, bound),
        "most_sorted": MOST_SORTED,
        "kept_columns": request.GET.getlist("column"),
        "kept_parameters": [(name, value) for name, values in request.GET.lists() for value in values if value
                            and name not in (*CURSORS, "column")],
        "experiment": experiment,
        **_sort_limit(request, listing, experiment, graders),
    }  # fmt: skip
    context["unsorted"] = dict(table.offered).get(context.pop("unsorted_name", ""), "")
    if experiment and totals:
        context["state"] = find_experiment_state(experiment, totals)
    return render(request, "runs_app/trial_list.html", context)


@dataclass(frozen=True)
class Listing:
    """A search with its order. order: None for the order by key. sorts_all: every column may be sorted by."""

    search: trial_pagination.Search | None
    order: TrialOrder | None
    is_descending: bool
    sorts_all: bool

    @classmethod
    def of(
        cls, request: HttpRequest, search: trial_pagination.Search | None, graders: list[Any], *, sorts_all: bool
    ) -> Listing:
        """Read the order from the address. An order that would read too many trials is left out."""
        named = request.GET.get("sort", "")
        order = read_order(named, [grader.pk for grader in graders])
        if order is not None and not (order.is_indexed or sorts_all):
            order = None
        return cls(search, order, named == "-id", sorts_all)

    def page(self, request: HttpRequest) -> trial_pagination.Page:
        if self.search is None:
            return trial_pagination.Page([])
        if self.order is not None:
            after, before = (self.order.parse_cursor(request.GET.get(name, "")) for name in CURSORS)
            return find_ordered(self.search, self.order, after=after, before=before)
        find = trial_pagination.find_descending if self.is_descending else trial_pagination.find
        return find(self.search, after=_cursor(request, "after"), before=_cursor(request, "before"))

    def beside(self, trial: Trial) -> dict[str, int | None]:
        """Return the keys of the next and the previous trial in this order."""
        if self.search is None:
            return {"next": None, "previous": None}
        if self.order is not None:
            here = make_cursor(trial, self.order)
            pages = [find_ordered(self.search, self.order, size=1, **{name: here}) for name in CURSORS]
        else:
            find = trial_pagination.find_descending if self.is_descending else trial_pagination.find
            pages = [find(self.search, size=1, **{name: trial.pk}) for name in CURSORS]
        after, before = (page.keys for page in pages)
        return {"next": after[0] if after else None, "previous": before[0] if before else None}


def _sort_limit(
    request: HttpRequest, listing: Listing, experiment: Experiment | None, graders: list[Any]
) -> dict[str, Any]:
    """Return what to narrow if too many trials match for some orders, and the column that the address asks for."""
    if listing.search is None or listing.sorts_all:
        return {}
    asked = read_order(request.GET.get("sort", ""), [grader.pk for grader in graders])
    found = suggest_narrower(listing.search, experiment)
    query = request.GET.copy()
    narrower = []
    for one in found:
        changed = query.copy()
        for name in CURSORS:
            changed.pop(name, None)
        changed[one.parameter] = one.value
        narrower.append({"label": one.label, "trials": one.trials, "query": changed.urlencode()})
    return {"unsorted_name": asked.name if asked and not asked.is_indexed else "", "narrower": narrower}


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
    gradings = (
        model.objects.filter(trial__in=rows, condition__in=graders)
        .select_related("condition")
        .defer("reasoning", "detail")
    )
    return {(grading.trial_id, grading.condition_id): grading for grading in gradings}


def _count_label(count: int | None, bound: int) -> str:
    """Return how many trials match; where counting would take too long, among how many they are."""
    if count is not None:
        return f"{format_count(count)} trial{'' if count == 1 else 's'}"
    if bound > MOST_SORTED + 1:
        return f"among {format_count(bound)} trials"
    return f"more than {format_count(MOST_SORTED)} trials"


@require_safe
@readers_only
def trial_detail(request: HttpRequest, pk: int) -> HttpResponse:
    trial = _visible_trial(request, pk)
    attempts = AttemptTable(list(trial.attempt_rows.select_related("worker").order_by("pk")))
    context = {
        "trial": trial,
        "turns": rebuild_turns(trial),
        "latency_s": None if trial.latency_ms is None else trial.latency_ms / 1000,
        "attempts": attempts,
        "gradings": _gradings(trial),
        "norm": trial.item.norms.filter(dimension=trial.dimension.name).first() if trial.dimension else None,
        "former": _former_verdicts(trial),
        "preferences": _preferences(trial),
        "query": _without_cursors(request),
        "elsewhere": list_same_item(request.user, trial),
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
    turns = rebuild_turns(_visible_trial(request, pk)).turns
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


def _neighbours(request: HttpRequest, trial: Trial) -> dict[str, Any]:
    """Return the trials beside this one in the list under the same filter and order; of them, those of its item."""
    filter_ = TrialFilter(request.GET, request=request)
    search = filter_.search
    graders = _graders(trial.run.experiment) if "score_" in request.GET.get("sort", "") else []
    is_small = bool(request.GET.get("sort")) and search is not None and count_matches(search)[1] <= MOST_SORTED
    listing = Listing.of(request, search, graders, sorts_all=is_small)
    of_item = replace(listing, search=_of_same_item(search, trial, filter_) if search is not None else None)
    return {
        **listing.beside(trial),
        "same_item": of_item.beside(trial),
        "is_filtered": any(name in filter_.form.fields and value for name, value in request.GET.items()),
    }


def _of_same_item(search: trial_pagination.Search, trial: Trial, filter_: TrialFilter) -> trial_pagination.Search:
    """Return the search among the trials that ask the same of the same item: repetitions and other conditions."""
    stage = trial.run.condition.stage
    runs = search.runs
    if stage != Condition.Stage.GENERATE and not {"run", "condition"} & set(filter_.form.changed_data):
        runs = Run.objects.visible_to(filter_.request.user)  # Only a named run lists a judge's calls.
    runs = runs.filter(experiment=trial.run.experiment_id, condition__stage=stage)
    items = [trial.item_id] if search.items is None or trial.item_id in search.items else []
    return replace(search, runs=runs, items=items, rest=search.rest & Q(dimension=trial.dimension_id))
