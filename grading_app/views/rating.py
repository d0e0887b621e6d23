"""The rater's pages: one unit at a time, with nothing that could bias its rating.

The pages are blind by construction. Templates get the address of the image by its position, or the item's text, and the
labels of the dimension. They never get a key, category, norm, hash or count of other ratings. A test reads everything
that is sent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.core.signing import BadSignature, Signer
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from evalsite.lib.permissions import is_member, is_reader
from evalsite.lib.web.long_text import build_text_response
from grading_app.forms.rating import AliasForm
from grading_app.grading.rating import session
from grading_app.grading.rating.questions import find_end_keys, find_question, list_context_parts, render_rubric
from grading_app.grading.rating.queues import find_usable_invitation, redeem
from grading_app.models import RaterAssignment, Rating, RatingQueue
from grading_app.models.rating import QueueError
from runs_app.models import Trial

MAX_INLINE_LABELS = 3  # With more labels, a narrow screen puts each point on its own line.
LOGIN_BACKEND = "django.contrib.auth.backends.ModelBackend"


@require_safe
@never_cache
def rating_queue(request: HttpRequest) -> HttpResponse:
    """Show the queues of this rater. Redirect to the queue if there is only one."""
    own = RaterAssignment.objects.for_user(request.user).select_related("queue").order_by("queue__created_at")
    assignments = list(own)
    if len(assignments) == 1 and not is_reader(request.user):
        return redirect("rating_item", assignments[0].queue.name)
    rows = [{"queue": row.queue, "assignment": row, "progress": row.progress} for row in assignments]
    return render(request, "grading_app/rating/mine.html", {"rows": rows, "may_see_queues": is_member(request.user)})


def assignment_required(
    view: Callable[[HttpRequest, RaterAssignment], HttpResponse],
) -> Callable[[HttpRequest, str], HttpResponse]:
    """Pass the user's own assignment to the view; 404 for any other queue. Show a notice if the queue is closed."""

    @wraps(view)
    def wrapped(request: HttpRequest, name: str) -> HttpResponse:
        assignment = _get_own_assignment(request, name)
        if not assignment.queue.is_open:
            context = {"queue": assignment.queue, "assignment": assignment, "progress": assignment.progress}
            return render(request, "grading_app/rating/closed.html", context, status=404)
        return view(request, assignment)

    return wrapped


def _get_own_assignment(request: HttpRequest, name: str) -> RaterAssignment:
    opened = RaterAssignment.objects.counted().exclude(queue__status=RatingQueue.Status.DRAFT)
    own = opened.filter(user=request.user.pk)
    return get_object_or_404(
        own.select_related("queue__rubric", "queue__text_set", "queue__experiment"), queue__name=name
    )


@require_safe
@never_cache
@assignment_required
def rating_item(request: HttpRequest, assignment: RaterAssignment) -> HttpResponse:
    """Show the welcome page, the unit that is due, or the thanks."""
    due = assignment.find_next_rating()
    context = {"queue": assignment.queue, "assignment": assignment, "progress": assignment.progress}
    if not assignment.started_at:
        context["rubric"] = render_rubric(assignment.queue)
        return render(request, "grading_app/rating/welcome.html", context)
    if due is None:
        context["may_undo"] = assignment.find_last_rating() is not None
        return render(request, "grading_app/rating/thanks.html", context)
    return render(request, "grading_app/rating/item.html", {**context, **_make_unit_context(due)})


def _make_unit_context(due: Rating) -> dict[str, Any]:
    """Return everything that a rater sees of a unit.

    An item's text is shown only without an image, because with an image it may be a caption. For an answer, the rater
    sees the full question, the answer, and the material that the rubric shows. Nothing shows which model answered.
    """
    queue = due.assignment.queue
    question = find_question(due, queue)
    return {
        "position": due.position,
        "shown": _make_signer(due).sign(f"{due.position}:{time.time():.3f}"),
        "has_image": due.item.image_id is not None,
        "text": "" if due.item.image_id and not due.trial_id else due.item.input,
        **_make_answer_context(due),
        "practice": due.kind == Rating.Kind.PRACTICE,
        "question": question,
        "keys": find_end_keys(question.points),
        "labelled": sum(bool(point.label) for point in question.points) > MAX_INLINE_LABELS,
        "rubric": render_rubric(queue),
    }


def _make_answer_context(due: Rating) -> dict[str, Any]:
    """Return the answers, with the question's choices and the material that the rubric shows beside it.

    The answers are read separately, without the trial's other columns.
    """
    if due.trial_id is None:
        return {"is_answer": False}
    answers = dict(Trial.objects.filter(pk__in=[due.trial_id, due.rival_id]).values_list("pk", "answer"))
    parts = [("Answer A" if due.rival_id else "Answer", answers[due.trial_id])]
    return {
        "is_answer": True,
        "answers": [*parts, *([("Answer B", answers[due.rival_id])] if due.rival_id else [])],
        "choices": [str(choice) for choice in due.item.choices],
        "beside": list_context_parts(due.item, due.assignment.queue),
    }


@require_POST
@assignment_required
def rating_start(request: HttpRequest, assignment: RaterAssignment) -> HttpResponse:
    try:
        if not session.start_session(assignment):
            messages.info(request, "All ratings are complete. Thank you for your interest.")
    except session.RatingError as error:
        messages.error(request, str(error))
    return redirect("rating_item", assignment.queue.name)


@require_POST
@assignment_required
def rating_rate(request: HttpRequest, assignment: RaterAssignment) -> HttpResponse:
    try:
        position, seconds = _read_position(request, assignment)
        # A decimal comma is accepted, because phone keyboards have it.
        text = request.POST.get("rating", "")
        try:
            value = float(text[:24].replace(",", "."))
        except ValueError:
            raise session.RatingError("Choose a point of the scale.") from None
        if not math.isfinite(value):
            raise session.RatingError("Choose a point of the scale.")
        recorded = session.rate(assignment, position=position, value=value, seconds=seconds)
    except session.RatingError as error:
        messages.error(request, str(error))
    else:
        if not recorded:
            messages.info(
                request,
                (
                    "You have already rated this one. Here is the next."
                    if assignment.ratings.filter(position=position).exists()
                    else "This rating was not saved because it is no longer needed. Your earlier ratings are saved."
                ),
            )
    return redirect("rating_item", assignment.queue.name)


@require_POST
@assignment_required
def rating_undo(request: HttpRequest, assignment: RaterAssignment) -> HttpResponse:
    try:
        session.undo(assignment)
    except session.RatingError as error:
        messages.error(request, str(error))
    return redirect("rating_item", assignment.queue.name)


@require_safe
@never_cache
def rating_image(request: HttpRequest, name: str, position: int) -> FileResponse:
    """Return the image that is due, or an earlier one, which a slow connection may still be loading.

    Later images are not available. The address holds only the position, and the file's name is hidden.
    """
    assignment = _get_own_assignment(request, name)
    rating = assignment.find_reached_rating(position) if assignment.queue.is_open else None
    if rating is None or rating.item.image is None:
        raise Http404
    try:
        file = rating.item.image.shared_file.fetch().open("rb")
    except FileNotFoundError:
        raise Http404 from None
    response = FileResponse(file, content_type=rating.item.image.content_type, filename="image")
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def rating_join(request: HttpRequest, token: str) -> HttpResponse:
    """Show an invitation. Opening it changes nothing, because mail programs open links; its button redeems it."""
    invitation = find_usable_invitation(token)
    if invitation is None:
        return render(request, "grading_app/rating/join_gone.html", status=404)
    form = AliasForm(request.POST if request.method == "POST" else None)
    if request.method != "POST" or not invitation.queue.is_open or not form.is_valid():
        context = {"queue": invitation.queue, "form": form, "is_new": invitation.assignment is None}
        return render(request, "grading_app/rating/join.html", context)
    try:
        assignment = redeem(token, form.cleaned_data["alias"])
    except QueueError:
        return render(request, "grading_app/rating/join_gone.html", status=404)
    login(request, assignment.user, backend=LOGIN_BACKEND)
    return redirect("rating_item", assignment.queue.name)


def _make_signer(row: Rating | RaterAssignment) -> Signer:
    rater = row.assignment_id if isinstance(row, Rating) else row.pk
    return Signer(salt=f"rating shown to {rater}")


def _read_position(request: HttpRequest, assignment: RaterAssignment) -> tuple[int, float]:
    """Return the position that the page showed, and how many seconds ago."""
    try:
        position, _, since = _make_signer(assignment).unsign(request.POST.get("shown", "")).partition(":")
    except BadSignature:
        raise session.RatingError("The page was incomplete. Please rate this one again.") from None
    return int(position), time.time() - float(since)


@require_safe
@never_cache
def rating_text(request: HttpRequest, name: str, position: int, part: str) -> HttpResponse:
    """Return the full text of a part that is due: the question, or an answer, without its model."""
    assignment = _get_own_assignment(request, name)
    due = assignment.find_next_rating() if assignment.queue.is_open and assignment.started_at else None
    if due is None or due.position != position:
        raise Http404
    unit = _make_unit_context(due)
    answers = [answer for _, answer in unit.get("answers", [])]
    parts = {"question": unit["text"], **dict(zip(("first", "second"), answers, strict=False))}
    if not parts.get(part):
        raise Http404
    return build_text_response(parts[part], part)
