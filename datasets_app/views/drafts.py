"""The views of actions on a whole dataset: sampling, and the transitions, each a POST with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from datasets_app import curation
from datasets_app.dataset_summary import count_categories
from datasets_app.forms import DraftActionForm, SampleForm, draw_seed
from datasets_app.models import Dataset
from datasets_app.models.datasets import CurationError, list_keys
from datasets_app.views.permissions import get_visible_dataset
from evalsite.lib.history import TransitionError
from evalsite.lib.permissions import members_only
from evalsite.lib.web.form_fields import get_first_error

READ_OR_WRITE = ["GET", "HEAD", "POST"]


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_sample(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    parent = get_visible_dataset(request, slug, version)
    form = SampleForm(request.POST or None, initial={"seed": draw_seed()})
    if request.method == "POST" and form.is_valid():
        try:
            draft = curation.sample_dataset(parent, by=request.user, **form.cleaned_data)
        except CurationError as error:
            form.add_draw_error(str(error))
        else:
            messages.success(request, f"{draft} is a draft of {draft.item_count} items.")
            return redirect(draft)
    context = {"form": form, "dataset": parent, "categories": count_categories(parent)}
    return render(request, "datasets_app/dataset_sample.html", context)


class ActionResult(NamedTuple):
    """The result of an action: the message, and the redirect target, which is a dataset or the name of a URL."""

    text: str
    to: Any


def _approve(dataset: Dataset, entered: dict[str, Any], by: Any) -> ActionResult:
    dataset.approve(by=by, reason=entered["reason"])
    return ActionResult(f"{dataset} is approved. Its items can no longer change.", dataset)


def _archive(dataset: Dataset, entered: dict[str, Any], by: Any) -> ActionResult:
    dataset.archive(by=by, reason=entered["reason"])
    return ActionResult(f"{dataset} is archived.", dataset)


def _duplicate(dataset: Dataset, entered: dict[str, Any], by: Any) -> ActionResult:
    draft = curation.duplicate(dataset, by=by, reason=entered["reason"])
    return ActionResult(f"{draft} is a new draft with the active items of {dataset}.", draft)


def _delete(dataset: Dataset, entered: dict[str, Any], by: Any) -> ActionResult:
    name = str(dataset)
    dataset.delete_draft(by=by, reason=entered["reason"])
    return ActionResult(f"{name} is deleted.", "dataset_list")


def _reshuffle(dataset: Dataset, entered: dict[str, Any], by: Any) -> ActionResult:
    seed = draw_seed() if entered["seed"] is None else entered["seed"]
    keys = curation.reshuffle_items(dataset, by=by, seed=seed, reason=entered["reason"])
    return ActionResult(f"{len(keys)} items were redrawn with seed {seed}.", dataset)


def _add(dataset: Dataset, entered: dict[str, Any], by: Any) -> ActionResult:
    if dataset.parent is None:
        raise CurationError(f"{dataset} was not drawn from another dataset")
    curation.add_items(dataset, entered["keys"], source=dataset.parent, by=by, reason=entered["reason"])
    return ActionResult(f"Added {list_keys(entered['keys'])}", dataset)


ACTIONS: dict[str, Callable[[Dataset, dict[str, Any], Any], ActionResult]] = {
    "approve": _approve,
    "archive": _archive,
    "duplicate": _duplicate,
    "delete": _delete,
    "reshuffle": _reshuffle,
    "add": _add,
}
CURATOR_ACTIONS = frozenset({"approve", "archive"})


@require_POST
@members_only
def dataset_act(request: HttpRequest, slug: str, version: int, verb: str) -> HttpResponse:
    dataset = get_visible_dataset(request, slug, version)
    if verb not in ACTIONS:
        raise Http404
    if verb in CURATOR_ACTIONS and not request.user.has_perm("datasets_app.approve_dataset"):
        raise PermissionDenied
    form = DraftActionForm(request.POST)
    if not form.is_valid():
        messages.error(request, get_first_error(form))
        return redirect(dataset)
    try:
        result = ACTIONS[verb](dataset, form.cleaned_data, request.user)
    except (CurationError, TransitionError) as error:
        messages.error(request, str(error))
        return redirect(dataset)
    messages.success(request, result.text)
    return redirect(result.to)
