"""The pages of rating queues for members. All members see every queue; the owner and operators can change it."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from datasets_app.models.datasets import CurationError
from datasets_app.tables import BadgeHistoryTable
from evalsite.lib.history import TransitionError
from evalsite.lib.permissions import members_only
from evalsite.lib.web.form_fields import fetch_choices, get_first_error
from evalsite.lib.web.list_page import ListPage, paginate_table
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.rating import AnswerQueueForm, AssignForm, InviteForm, QueueForm, ReasonForm
from grading_app.grading.rating import queue_results, queues
from grading_app.grading.rating.queue_results import make_norms
from grading_app.models import RaterAssignment, RatingQueue
from grading_app.models.rating import INVITATION_LIFETIME, QueueError
from grading_app.views.tables.rating import ItemMeansTable, QueueTable, list_item_rows, make_question_table
from grading_app.views.tables_and_figures import get_table_context, make_requested_file
from runs_app.views.annotations import list_annotated_keys
from runs_app.views.permissions import RowsAreStored, get_editable_experiment

READ_OR_WRITE = ["GET", "HEAD", "POST"]
PER_PAGE = 50
QUEUES = ListPage(QueueTable, "grading_app/rating/queue_list.html", per_page=50)


# --- reading ---------------------------------------------------------------------------------------------------------


@require_safe
@members_only
@hides_model_names()
def queue_list(request: HttpRequest) -> HttpResponse:
    visible = RatingQueue.objects.visible_to(request.user).select_related("dataset", "owner", "experiment")
    is_rater = RaterAssignment.objects.for_user(request.user).exists()
    return QUEUES.render(request, {**QUEUES.load(request, visible.with_counts()), "is_rater": is_rater})


@require_safe
@members_only
def queue_detail(request: HttpRequest, name: str) -> HttpResponse:
    queue = _get_visible_queue(request, name)
    questions = make_question_table(queue_results.list_question_results(queue), queue)
    if response := make_requested_file(request, [questions], queue.name):
        return response
    may_change = RatingQueue.objects.editable_by(request.user).filter(pk=queue.pk).exists()
    items = ItemMeansTable(list_item_rows(queue))
    paginate_table(request, items, PER_PAGE)
    complete, total = queue_results.count_complete(queue)
    assign = AssignForm(queue) if may_change else None
    if assign:
        fetch_choices(assign)
    context = {
        "queue": queue,
        "may_change": may_change,
        "questions": get_table_context(questions),
        "raters": queue_results.list_rater_progress(queue),
        "items": items,
        "n_complete": complete,
        "n_units": total,
        "raters_missing": queue_results.count_missing_raters(queue, total)
        if queue.status != RatingQueue.Status.CLOSED
        else 0,
        "n_invited": queue.invitations.filter(used_at=None).count(),
        "history": BadgeHistoryTable(list(queue.history[:50])),
        "outdated_norms": queue.find_outdated_norms(),
        "conditions": list(queue.conditions.select_related("model", "prompt", "sampler")),
        "actions": _list_actions(queue) if may_change else [],
        "invite": InviteForm(),
        "assign": assign,
    }
    return render(request, "grading_app/rating/queue_detail.html", context)


@require_safe
@members_only
def queue_export(request: HttpRequest, name: str) -> StreamingHttpResponse:
    queue = _get_visible_queue(request, name)
    response = StreamingHttpResponse(queue_results.iterate_csv_lines(queue), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{queue.name}-ratings.csv"'
    return response


# --- drafts ----------------------------------------------------------------------------------------------------------


@require_http_methods(READ_OR_WRITE)
@members_only
@hides_model_names()
def queue_new(request: HttpRequest) -> HttpResponse:
    owner: Any = request.user  # members_only excludes anonymous users.
    return _render_form(request, RatingQueue(owner=owner), "New queue")


@require_http_methods(READ_OR_WRITE)
@members_only
def queue_of_answers(request: HttpRequest, slug: str) -> HttpResponse:
    """Create a queue over the answers of an experiment. It needs the right to edit: raters will see the answers."""
    experiment = get_editable_experiment(request, slug)
    owner: Any = request.user
    queue = RatingQueue(
        owner=owner, subject=RatingQueue.Subject.ANSWERS, experiment=experiment, dataset=experiment.dataset
    )
    if request.method != "POST" and "annotated" in request.GET:  # The list of notes leads here, with its filter.
        queue.only_items = list_annotated_keys(request, experiment)
    return _render_form(request, queue, f"Let people rate answers of {experiment}")


@require_http_methods(READ_OR_WRITE)
@members_only
def queue_edit(request: HttpRequest, name: str) -> HttpResponse:
    queue = _get_editable_queue(request, name)
    if queue.status != RatingQueue.Status.DRAFT:
        raise Http404
    return _render_form(request, queue, f"Edit {queue}")


def _render_form(request: HttpRequest, queue: RatingQueue, heading: str) -> HttpResponse:
    form = (AnswerQueueForm if queue.rates_answers else QueueForm)(request.POST or None, instance=queue)
    if request.method == "POST" and form.is_valid():
        return redirect(form.save())
    fetch_choices(form)
    if queue.pk:
        cancel_url = queue.get_absolute_url()
    elif queue.experiment:  # A new queue leads back to the page with its button.
        cancel_url = reverse("experiment_agreement", args=[queue.experiment.slug])
    else:
        cancel_url = reverse("rating_queue_list")
    context = {"form": form, "heading": heading, "cancel_url": cancel_url, "queue": queue}
    return render(request, "grading_app/rating/queue_form.html", context)


# --- actions ---------------------------------------------------------------------------------------------------------


def _list_actions(queue: RatingQueue) -> list[dict[str, str]]:
    """Return the buttons that apply now, in the format of partials/action.html."""
    effect = "The design can no longer change after this." if queue.status == "draft" else "Raters can continue."
    actions = {
        "draft": [
            {"verb": "open", "label": "Open queue", "icon": "play-fill", "text": effect},
            {
                "verb": "delete",
                "label": "Delete draft",
                "icon": "trash",
                "tone": "danger",
                "text": "Deletes the draft permanently.",
            },
        ],
        "open": [{"verb": "close", "label": "Close queue", "icon": "stop-fill", "text": "Raters can no longer rate."}],
        "closed": [{"verb": "open", "label": "Reopen queue", "icon": "play-fill", "text": effect}],
    }[queue.status]
    if queue.status == RatingQueue.Status.CLOSED and not queue.rates_answers:
        text = "Creates a new draft of the dataset with the mean ratings as norms."
        actions.append({"verb": "norms", "label": "Create norms", "icon": "database", "text": text})
    return [
        {"tone": "", **action, "url": reverse("rating_queue_act", args=[queue.name, action["verb"]])}
        for action in actions
    ]


@require_POST
@members_only
def queue_act(request: HttpRequest, name: str, verb: str) -> HttpResponse:
    queue, by = _get_editable_queue(request, name), cast(User, request.user)
    if verb not in ("open", "close", "delete", "norms"):
        raise Http404
    target: Any = queue
    try:
        reason = _read_reason(request)
        if verb == "open":
            queues.open_queue(queue, by=by, reason=reason)
            message = f"{queue} is open. Raters can start."
        elif verb == "close":
            queue.close(by=by, reason=reason)
            message = f"{queue} is closed."
        elif verb == "delete":
            queue.delete_draft(by=by, reason=reason)
            message, target = f"{queue} is deleted.", "rating_queue_list"
        else:
            target = make_norms(queue, by=by, reason=reason)
            message = f"{target} is a new draft whose norms are the means of these ratings."
    except (QueueError, TransitionError, CurationError) as error:
        messages.error(request, str(error))
        return redirect(queue)
    messages.success(request, message)
    return redirect(target)


@require_POST
@members_only
@never_cache
def queue_invite(request: HttpRequest, name: str) -> HttpResponse:
    """Create invitation links and show them once. The database stores only their hashes."""
    queue, form = _get_editable_queue(request, name), InviteForm(request.POST)
    if not form.is_valid():
        messages.error(request, f"Number of links: {form.errors['count'][0]}")
        return redirect(queue)
    return _render_links(request, queue, queue.invite(form.cleaned_data["count"], by=request.user))


@require_POST
@members_only
def queue_assign(request: HttpRequest, name: str) -> HttpResponse:
    queue = _get_editable_queue(request, name)
    form = AssignForm(queue, request.POST)
    if not form.is_valid():
        messages.error(request, "Choose a rater who is not in this queue yet.")
        return redirect(queue)
    try:
        assignment = queue.assign(form.cleaned_data["user"], by=request.user)
    except QueueError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{form.cleaned_data['user']} is {assignment}.")
    return redirect(queue)


@require_POST
@members_only
@never_cache
def rater_act(request: HttpRequest, name: str, number: int, verb: str) -> HttpResponse:
    """Release or exclude a rater, or create a new link for the rater."""
    queue = _get_editable_queue(request, name)
    assignment = get_object_or_404(queue.assignments.select_related("user", "queue"), number=number)
    try:
        reason = _read_reason(request)
        if verb == "link":
            return _render_links(request, queue, [assignment.invite_again(by=request.user)])
        {"release": assignment.release, "exclude": assignment.exclude}[verb](by=request.user, reason=reason)
    except KeyError:
        raise Http404 from None
    except QueueError as error:
        messages.error(request, str(error))
    return redirect(queue)


def _read_reason(request: HttpRequest) -> str:
    """Return the entered reason. Raise QueueError if it is not valid, so that nothing happens without its reason."""
    form = ReasonForm(request.POST)
    if not form.is_valid():
        raise QueueError(get_first_error(form))
    return str(form.cleaned_data["reason"])


def _render_links(request: HttpRequest, queue: RatingQueue, tokens: list[str]) -> HttpResponse:
    links = [request.build_absolute_uri(reverse("rating_join", args=[token])) for token in tokens]
    days = INVITATION_LIFETIME.days
    return render(request, "grading_app/rating/invited.html", {"queue": queue, "links": links, "days": days})


def _get_visible_queue(request: HttpRequest, name: str) -> RatingQueue:
    return _get_queue(RatingQueue.objects.visible_to(request.user), name)


def _get_editable_queue(request: HttpRequest, name: str) -> RatingQueue:
    return _get_queue(RatingQueue.objects.editable_by(request.user), name)


def _get_queue(queues: Any, name: str) -> RatingQueue:
    """Return the queue of this name. Raise RowsAreStored if its answers and ratings are in a file."""
    queue: RatingQueue = get_object_or_404(
        queues.select_related("dataset", "owner", "experiment__dataset", "rubric", "text_set"), name=name
    )
    if experiment := queue.stored_experiment:
        raise RowsAreStored(experiment)
    return queue
