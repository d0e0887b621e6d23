"""The list of trials, filtered and paginated by key, and the page of one trial, with the verdicts on its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import django_tables2 as tables
from django.db.models import Prefetch, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.views.decorators.http import require_safe

from evalsite.lib.permissions import readers_only
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.addresses import change_query, read_key
from evalsite.lib.web.filters import list_filter_chips
from evalsite.lib.web.form_fields import fetch_choices
from evalsite.lib.web.long_text import build_text_response
from grading_app.models import GradeCondition, Grading, SupersededVerdict
from grading_app.views.filters import TrialFilter
from runs_app.models import Condition, Experiment, Run, Trial
from runs_app.models.annotations import group_by_trial
from runs_app.models.totals import Totals
from runs_app.prompt_preview import rebuild_turns
from runs_app.tables.columns import NUMBER, TimeColumn
from runs_app.tables.trials import AttemptTable, ScoreColumn, TrialTable
from runs_app.trial_list import trial_pagination
from runs_app.trial_list.trial_order import (
    MAX_SORTED,
    TrialOrder,
    count_matches,
    find_ordered,
    make_cursor,
    read_order,
    suggest_filters,
)
from runs_app.trial_list.trial_pagination import list_other_answers
from runs_app.views.annotations import build_panel_context

CURSORS = ("after", "before")
MAX_SCORE_COLUMNS = 6  # In the list. The page of a trial shows all scores.
PREFERENCES_LABEL = "Preferences of judges and people between two answers"
MAX_VERDICTS = 100  # Each judge compares an answer with those of every other condition, in both orders.
MAX_RAW = 160  # Characters of the text from which a grader read the score.


@require_safe
@readers_only
def trial_list(request: HttpRequest) -> HttpResponse:
    filter_ = TrialFilter(request.GET, request=request)
    search = filter_.search
    experiment = filter_.form.cleaned_data["experiment"] if search is not None else None
    scores = _list_score_conditions(experiment) if experiment else []
    totals = Totals.of(experiment.answer_runs) if experiment else None
    is_whole = not {"run", "condition"} & set(filter_.form.changed_data)
    count, bound = count_matches(search, totals if is_whole else None) if search is not None else (0, 0)
    listing = TrialListing.from_request(request, search, scores, sorts_all=bound <= MAX_SORTED)
    page = listing.fetch_page(request)
    rows = list(trial_pagination.load_rows(page.keys)) if page.keys else []
    rows.sort(key=lambda trial: page.keys.index(trial.pk))
    gradings: dict[tuple[int, int], Grading] = {}
    if rows and scores:
        of_rows = Grading.objects.filter(trial__in=rows, condition__in=scores).select_related("condition")
        gradings = {(row.trial_id, row.condition_id): row for row in of_rows.defer("reasoning", "detail")}
    query = change_query(request, CURSORS)
    stem = f"?{query}&" if query else "?"
    table = TrialTable(
        rows,
        query=query,
        scores=[ScoreColumn(condition, gradings) for condition in scores],
        annotations=group_by_trial(rows),
        chosen=request.GET.getlist("column"),
        order=listing.order,
        descending_keys=listing.is_descending,
        sorts_all=listing.sorts_all,
    )
    if experiment and rows:
        filter_.form.fields["condition"].labels = table.labels  # Of the same conditions.
    fetch_choices(filter_.form)
    context = {
        "filter": filter_,
        "chips": list_filter_chips(filter_.form, request),
        "table": table,
        "page": page,
        "next_url": f"{stem}after={page.after}" if page.after is not None else "",
        "previous_url": f"{stem}before={page.before}" if page.before is not None else "",
        "count_label": "" if search is None else _format_count_label(count, bound),
        "max_sorted": MAX_SORTED,
        "kept_columns": request.GET.getlist("column"),
        "kept_parameters": [(name, value) for name, values in request.GET.lists() for value in values if value
                            and name not in (*CURSORS, "column")],
        "experiment": experiment,
        **_build_sort_limit_context(request, listing, experiment, scores),
    }  # fmt: skip
    context["unsorted"] = dict(table.offered).get(context.pop("unsorted_name", ""), "")
    if experiment and totals:
        context["state"] = experiment.find_state(totals)
    return render(request, "runs_app/trial_list.html", context)


@dataclass(frozen=True)
class TrialListing:
    """A search with its order. order: None for the order by key. sorts_all: the search may sort by every column."""

    search: trial_pagination.Search | None
    order: TrialOrder | None
    is_descending: bool
    sorts_all: bool

    @classmethod
    def from_request(
        cls, request: HttpRequest, search: trial_pagination.Search | None, scores: list[Any], *, sorts_all: bool
    ) -> TrialListing:
        """Read the order from the URL. Ignore an order that would read too many trials."""
        parameter = request.GET.get("sort", "")
        order = read_order(parameter, [condition.pk for condition in scores])
        if order is not None and not (order.is_indexed or sorts_all):
            order = None
        return cls(search, order, parameter == "-id", sorts_all)

    def fetch_page(self, request: HttpRequest) -> trial_pagination.TrialPage:
        if self.search is None:
            return trial_pagination.TrialPage([])
        if self.order is not None:
            after, before = (self.order.parse_cursor(request.GET.get(name, "")) for name in CURSORS)
            return find_ordered(self.search, self.order, after=after, before=before)
        find = self.search.find_descending if self.is_descending else self.search.find
        return find(after=read_key(request.GET.get("after", "")), before=read_key(request.GET.get("before", "")))

    def find_neighbours(self, trial: Trial) -> dict[str, int | None]:
        """Return the keys of the next and the previous trial in this order."""
        if self.search is None:
            return {"next": None, "previous": None}
        if self.order is not None:
            cursor = make_cursor(trial, self.order)
            pages = [find_ordered(self.search, self.order, size=1, **{name: cursor}) for name in CURSORS]
        else:
            find = self.search.find_descending if self.is_descending else self.search.find
            pages = [find(size=1, **{name: trial.pk}) for name in CURSORS]
        after, before = (page.keys for page in pages)
        return {"next": after[0] if after else None, "previous": before[0] if before else None}


def _build_sort_limit_context(
    request: HttpRequest, listing: TrialListing, experiment: Experiment | None, scores: list[Any]
) -> dict[str, Any]:
    """Return narrower filters if too many trials match to sort by every column, and the column that was requested."""
    if listing.search is None or listing.sorts_all:
        return {}
    requested = read_order(request.GET.get("sort", ""), [condition.pk for condition in scores])
    narrower = []
    for filter_ in suggest_filters(listing.search, experiment):
        query = change_query(request, CURSORS, **{filter_.parameter: filter_.value})
        narrower.append({"label": filter_.label, "trials": filter_.trials, "query": query})
    return {"unsorted_name": requested.name if requested and not requested.is_indexed else "", "narrower": narrower}


def _list_score_conditions(experiment: Experiment) -> list[GradeCondition]:
    """Return the grade conditions with a column: rules, judges and panels that score an answer."""
    scoring = experiment.grade_conditions.without_own_ratings().exclude(rubric__kind="pairwise")
    automatic = scoring.exclude(kind__in=("person", "adjudicated")).select_related("grader", "rubric", "panel")
    return list(automatic.order_by("pk")[:MAX_SCORE_COLUMNS])


def _format_count_label(count: int | None, bound: int) -> str:
    """Return the number of matches. If counting takes too long, return the number of trials that were searched."""
    if count is not None:
        return f"{format_count(count)} trial{'' if count == 1 else 's'}"
    if bound > MAX_SORTED + 1:
        return f"among {format_count(bound)} trials"
    return f"more than {format_count(MAX_SORTED)} trials"


@require_safe
@readers_only
def trial_detail(request: HttpRequest, pk: int) -> HttpResponse:
    trial = _get_visible_trial(request, pk)
    attempts = AttemptTable(list(trial.attempt_rows.select_related("worker").order_by("pk")))
    # The gradings of the answer. For a judge's call, return the grading that was parsed from its reply.
    rows = trial.subject.gradings.filter(judged_by=trial) if trial.subject else trial.gradings.all()
    gradings = list(rows.select_related("condition__grader", "condition__rubric", "condition__panel").order_by("pk"))
    context = {
        "trial": trial,
        "turns": rebuild_turns(trial),
        "latency_s": None if trial.latency_ms is None else trial.latency_ms / 1000,
        "attempts": attempts,
        "gradings": gradings,
        "grading_table": VerdictTable(list_gradings(gradings, trial.pk)),
        "norm": trial.item.norms.filter(dimension=trial.dimension.name).first()
        if trial.item and trial.dimension
        else None,
        "former_verdicts": VerdictTable(
            list_former_verdicts(trial.superseded.select_related("condition").order_by("-pk")[:MAX_VERDICTS])
        ),
        "preferences": VerdictTable(
            list_preferences(_load_preferences(trial), trial.pk), "Preference", label=PREFERENCES_LABEL
        ),
        "query": change_query(request, CURSORS),
        "other_answers": list_other_answers(request.user, trial),
        **_build_neighbour_context(request, trial),
        **build_panel_context(request, trial),
    }
    return render(request, "runs_app/trial_detail.html", context)


@require_safe
@readers_only
def trial_text(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """Return one of the trial's texts as a file. The page shows only the beginning of a long text."""
    trial = _get_visible_trial(request, pk)
    texts = {
        "answer": trial.answer,
        "reasoning": trial.reasoning,
        "response": trial.raw_text,
        "error": trial.error,
        "target": trial.item.target if trial.item else "",
    }
    text = texts.get(name)
    if not text:
        raise Http404
    return build_text_response(text, f"trial-{pk}-{name}")


@require_safe
@readers_only
def trial_message(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    """Return one message of the request as a file. `number` counts the turns on the trial's page from 1."""
    turns = rebuild_turns(_get_visible_trial(request, pk)).turns
    if not 1 <= number <= len(turns) or not turns[number - 1].text:
        raise Http404
    return build_text_response(turns[number - 1].text, f"trial-{pk}-message-{number}")


def _get_visible_trial(request: HttpRequest, pk: int) -> Trial:
    condition = Condition.objects.select_related("model__endpoint", "prompt", "sampler")
    # Two queries, because planning one with twelve joins takes longer than both.
    visible = (
        Trial.objects.visible_to(request.user)
        .select_related("run__experiment", "run__wave", "item__image", "dimension", "worker")
        .prefetch_related(Prefetch("run__condition", condition))
    )
    trial: Trial = get_object_or_404(visible, pk=pk)
    return trial


def _load_preferences(trial: Trial) -> list[dict[str, Any]]:
    """Return the preferences between this answer and others, newest first.

    For a judge's call, return the verdict that was parsed from its reply. Each entry holds the position of this answer
    (`a` or `b`; empty for a judge's call), the key of the other answer, and `won`.
    """
    if trial.subject_id:
        verdict = getattr(trial, "preference", None)
        return [{"row": verdict, "position": "", "other": None, "won": None}] if verdict else []
    entries = []
    for name, position, other in (("shown_first", "a", "trial_b_id"), ("shown_second", "b", "trial_a_id")):
        for row in getattr(trial, name).select_related("condition").order_by("-pk")[:MAX_VERDICTS]:
            won = row.winner == position
            entries.append({"row": row, "position": position, "other": getattr(row, other), "won": won})
    return sorted(entries, key=lambda entry: -entry["row"].pk)[:MAX_VERDICTS]


def _build_neighbour_context(request: HttpRequest, trial: Trial) -> dict[str, Any]:
    """Return the trial's neighbours in the list under the same filter and order, and those among its item's trials."""
    filter_ = TrialFilter(request.GET, request=request)
    search = filter_.search
    scores = _list_score_conditions(trial.run.experiment) if "score_" in request.GET.get("sort", "") else []
    is_small = bool(request.GET.get("sort")) and search is not None and count_matches(search)[1] <= MAX_SORTED
    listing = TrialListing.from_request(request, search, scores, sorts_all=is_small)
    same_item = listing
    if search is not None:  # Trials of the same item and dimension: repetitions, and other conditions.
        runs, stage = search.runs, trial.run.condition.stage
        if stage != Condition.Stage.GENERATE and not {"run", "condition"} & set(filter_.form.changed_data):
            # The list shows a judge's calls only if the filter names a run.
            runs = Run.objects.visible_to(request.user)
        runs = runs.filter(experiment=trial.run.experiment_id, condition__stage=stage)
        item = trial.item_id
        items = [item] if item is not None and (search.items is None or item in search.items) else []
        rest = search.rest & Q(dimension=trial.dimension_id)
        same_item = replace(listing, search=replace(search, runs=runs, items=items, rest=rest))
    return {
        **listing.find_neighbours(trial),
        "same_item": same_item.find_neighbours(trial),
        "is_filtered": any(name in filter_.form.fields and value for name, value in request.GET.items()),
    }


@dataclass(frozen=True, slots=True)
class ShownVerdict:
    """A row of the table: a verdict in the words of the page."""

    by: GradeCondition
    verdict: SafeString | str
    reason: SafeString | str
    created_at: datetime | None
    superseded_at: datetime | None = None


class VerdictTable(tables.Table):
    """The verdicts on an answer. heading: of the column of verdicts, which holds numbers if it is "Score"."""

    by = tables.Column()
    verdict = tables.Column()
    reason = tables.Column()
    created_at = TimeColumn(verbose_name="Graded")
    superseded_at = TimeColumn(verbose_name="Replaced")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def __init__(self, verdicts: list[ShownVerdict], heading: str = "Score", label: str = "") -> None:
        is_former = any(verdict.superseded_at for verdict in verdicts)
        attrs = {"class": "data-table", "aria-label": label} if label else None
        super().__init__(verdicts, exclude=() if is_former else ("superseded_at",), attrs=attrs)
        column = self.columns["verdict"].column
        column.verbose_name, column.attrs = heading, NUMBER if heading == "Score" else {}

    def render_by(self, value: GradeCondition) -> SafeString:
        return format_html('<span class="chip">{}</span> {}', value.get_kind_display(), value.label)


def list_gradings(gradings: Iterable[Grading], trial: int) -> list[ShownVerdict]:
    """Return the gradings as rows of the page of the trial with this key."""
    rows = []
    for grading in gradings:
        score = (
            tags.score(grading.score) if grading.parse_ok else tags.status_badge("failed", label=grading.parse_error)
        )
        details = format_html_join(" ", '<span class="chip">{}: {}</span>', grading.details)
        call = _render_judge_link(grading.judged_by_id, trial)
        reason = _join([_render_reasoning(grading.reasoning), details, _render_raw(grading.score_raw), call])
        rows.append(ShownVerdict(grading.condition, score, reason, grading.created_at))
    return rows


def list_preferences(preferences: Iterable[Mapping[str, Any]], trial: int) -> list[ShownVerdict]:
    """Return the preferences between this answer and others, each from a dict with the position of this answer."""
    rows = []
    for preference in preferences:
        row, order = preference["row"], {"a": "first", "b": "second"}.get(preference["position"])
        verdict: SafeString | str
        if row.parse_error:
            verdict = tags.status_badge("failed", label=row.parse_error)
        elif row.winner == "tie":
            verdict = "Tie"
        elif not preference["position"]:
            verdict = str(row.get_winner_display())
        else:
            verdict = format_html("<strong>{}</strong>", "This answer") if preference["won"] else "The other answer"
        if order is not None:
            other = _render_trial_link(preference["other"])
            verdict = format_html('{} <span class="muted">shown {}, compared with {}</span>', verdict, order, other)
        reason = _join([_render_reasoning(row.reasoning), _render_judge_link(row.judged_by_id, trial)])
        rows.append(ShownVerdict(row.condition, verdict, reason, row.created_at))
    return rows


def list_former_verdicts(verdicts: Iterable[SupersededVerdict]) -> list[ShownVerdict]:
    rows = []
    for former in verdicts:
        content = former.content
        verdict: SafeString | str
        if error := content.get("parse_error"):
            verdict = tags.status_badge("failed", label=error)
        elif former.winner:
            verdict = format_html("{} against {}", former.winner, _render_trial_link(former.rival_id))
        else:
            verdict = tags.score(former.score)
        reason = _join([_render_reasoning(content.get("reasoning")) or _render_raw(content.get("score_raw"))])
        rows.append(ShownVerdict(former.condition, verdict, reason, former.given_at, former.superseded_at))
    return rows


def _render_judge_link(call: int | None, trial: int) -> SafeString:
    """Return a link to the judge's call, unless the page shows that call."""
    if call is None or call == trial:
        return tags.EMPTY
    return format_html('<a href="{}">The judge\'s call</a>', reverse("trial_detail", args=[call]))


def _render_trial_link(trial: int | None) -> SafeString:
    return format_html('<a href="{}">trial {}</a>', reverse("trial_detail", args=[trial]), trial)


def _render_reasoning(text: str | None) -> SafeString:
    return format_html('<p class="grading-reasoning">{}</p>', text) if text else tags.EMPTY


def _render_raw(text: str | None) -> SafeString:
    if not text:
        return tags.EMPTY
    shown = Truncator(text).chars(MAX_RAW)
    return format_html('<span class="muted">read <span class="mono">{}</span></span>', shown)


def _join(parts: list[SafeString]) -> SafeString | str:
    return format_html_join(" ", "{}", ((part,) for part in parts if part)) or number_format.MISSING
