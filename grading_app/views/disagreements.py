"""The largest disagreements of raters, one unit after the other, and the adjudication of an answer."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from datasets_app.models import Item
from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.web.form_errors import get_first_error
from grading_app.comparison import disagreements
from grading_app.comparison.adjudication import AdjudicationError, adjudicate, may_adjudicate
from grading_app.comparison.answer_pairs import answers_of
from grading_app.comparison.comparison_cache import DISAGREEMENTS, is_large
from grading_app.comparison.disagreements import By, Place, Split
from grading_app.comparison.query import Question, QuestionForm
from grading_app.comparison.rater_verdicts import Side, sides_of, values_by_unit
from grading_app.forms.adjudication import AdjudicationForm, scales_of
from grading_app.reports.cached_aggregates import Cached, get
from grading_app.views.agreement import page_state
from runs_app.models import Trial
from runs_app.prompt_preview import rebuild_turns
from runs_app.views.permissions import visible_experiment

EXCERPT = 240
CURSORS = ("after", "before")


@require_safe
@readers_only
def experiment_disagreements(request: HttpRequest, slug: str) -> HttpResponse:
    """List the disagreements, largest first."""
    experiment = visible_experiment(request, slug)
    form = QuestionForm(request.GET, experiment)
    question = form.question()
    context = {"experiment": experiment, "form": form, "state": page_state(experiment), "question": question}
    if question is not None:
        cached, by = stored_order(question), order_of(request)
        context |= {"cached": cached, "here": request.get_full_path(), "by": by}
        cursors = {name: request.GET.get(name, "") for name in CURSORS}
        page = disagreements.find(question, by=by, aggregate=cached.row if cached else None, **cursors)
        context |= {"rows": _rows(question, page.splits), **_links(request, page)}
    return render(request, "grading_app/disagreements.html", {**context, "query": choice_of(request).urlencode()})


@require_safe
@readers_only
def disagreement(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Show one answer: the question, the answer, each rater's score and reasons side by side, and adjudications."""
    experiment = visible_experiment(request, slug)
    trial = _answer(experiment, pk)
    question = QuestionForm(request.GET, experiment).question()
    place = Place(None, None, 0, None, None)
    if question is not None and question.on_answers:
        cached = stored_order(question)
        place = disagreements.place_of(question, trial.pk, order_of(request), cached.row if cached else None)
    raters = question.everyone if question is not None and question.on_answers else []
    in_total = question is not None and not question.criterion  # An adjudication is a score of the whole answer.
    may = in_total and may_adjudicate(request.user, experiment)
    context = {
        "experiment": experiment,
        "trial": trial,
        "place": place,
        "turns": rebuild_turns(trial),
        "sides": sides_of(trial, raters, question.criterion if question else ""),
        "settled": _settled(trial),
        "forms": [AdjudicationForm(scale) for scale in scales_of(raters)] if may else [],
        "query": choice_of(request).urlencode(),
    }
    return render(request, "grading_app/disagreement.html", context)


@require_POST
@members_only
def disagreement_settle(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Adjudicate the answer, and return to its page."""
    experiment = visible_experiment(request, slug)
    trial = _answer(experiment, pk)
    if not may_adjudicate(request.user, experiment):
        raise Http404
    form = AdjudicationForm.posted(request.POST)
    back = _stay(slug, pk, request.POST.get("query", ""))
    if not form.is_valid():
        messages.error(request, get_first_error(form))
        return redirect(back)
    try:
        adjudicate(trial, scale=form.scale, score=form.cleaned_data["score"], reason=form.cleaned_data["reason"],
                   by=request.user)  # fmt: skip
    except AdjudicationError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Decision saved: {form.cleaned_data['score']:g}.")
    return redirect(back)


def stored_order(question: Question) -> Cached[int] | None:
    """Return the disagreements in the order that a worker stored; None if they are few and read directly."""
    return get(DISAGREEMENTS, question.experiment.pk, question) if is_large(question) else None


def _settled(trial: Trial) -> list[dict[str, Any]]:
    """Return all adjudications of this answer, newest first. `counts` marks the last one on its scale."""
    words = list(trial.adjudications.select_related("by", "condition").order_by("-pk"))
    last = {word.condition_id: word.pk for word in reversed(words)}
    return [{"word": word, "counts": last[word.condition_id] == word.pk} for word in words]


def _stay(slug: str, pk: int, query: str) -> str:
    """Return the address of the page, with its choice of raters. The query is parsed and encoded again for safety."""
    kept = QueryDict(query, mutable=True).urlencode()
    return reverse("disagreement", args=[slug, pk]) + (f"?{kept}" if kept else "")


def _answer(experiment: Any, pk: int) -> Trial:
    answers = Trial.objects.filter(run__experiment=experiment, run__condition__stage="generate", status="done")
    with_design = answers.select_related(
        "run__experiment", "run__wave", "run__condition__model__endpoint", "run__condition__prompt",
        "run__condition__sampler", "item__image", "dimension",
    )  # fmt: skip
    return get_object_or_404(with_design, pk=pk)


def order_of(request: HttpRequest) -> By:
    return "variance" if request.GET.get("by") == "variance" else "range"


def choice_of(request: HttpRequest, **more: str) -> QueryDict:
    """Return the choice of raters and the order as a query, without the page cursor."""
    query = request.GET.copy()
    for name in CURSORS:
        query.pop(name, None)
    for name, value in more.items():
        query[name] = value
    return query


def _links(request: HttpRequest, page: disagreements.Page) -> dict[str, str]:
    def address(name: str, cursor: str) -> str:
        query = choice_of(request)
        query[name] = cursor
        return f"?{query.urlencode()}" if cursor else ""

    return {"next_url": address("after", page.after), "previous_url": address("before", page.before)}


def _rows(question: Question, splits: list[Split]) -> list[dict[str, Any]]:
    """Return a page of disagreements, each with its item, the start of its answer, and all ratings."""
    keys = [split.unit for split in splits]
    values = values_by_unit(question, keys)
    shown = _shown_units(question, keys)
    return [
        {
            "split": split,
            **shown[split.unit],
            "sides": [Side(rater, values.get((split.unit, rater.key))) for rater in question.everyone],
        }
        for split in splits
        if split.unit in shown  # In a stored comparison, a unit may have lost its ratings since.
    ]


def _shown_units(question: Question, keys: list[int]) -> dict[int, dict[str, Any]]:
    """Return each unit's item and answers, shortened for a list."""
    if question.in_pairs:
        pairs = answers_of(question, keys)
        return {
            key: {"item": pair[0].item, "answers": [(_name(one), one.answer[:EXCERPT]) for one in pair]}
            for key, pair in pairs.items()
        }
    if question.on_answers:
        return {
            key: {"item": trial.item, "trial": trial, "answers": [("", trial.answer[:EXCERPT])]}
            for key, trial in _answers(keys).items()
        }
    return {key: {"item": item, "answers": []} for key, item in Item.objects.in_bulk(keys).items()}


def _name(trial: Trial) -> str:
    return str(trial.run.condition.label)


def _answers(keys: list[int]) -> dict[int, Any]:
    trials = Trial.objects.filter(pk__in=keys).select_related(
        "item", "run__condition__model", "run__condition__prompt", "run__condition__sampler"
    )
    return {trial.pk: trial for trial in trials.defer("raw_response", "reasoning", "error")}
