"""The views of one item, of the actions on it, and of images, which users see if they may see a dataset with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from datasets_app import curation, item_pagination
from datasets_app.forms import DraftActionForm, draw_seed
from datasets_app.importing.records import to_text
from datasets_app.models import Asset, Item
from datasets_app.models.datasets import CurationError
from datasets_app.tables import ItemNormTable
from datasets_app.views.datasets import CURSORS, make_item_filter
from datasets_app.views.permissions import get_visible_dataset, get_visible_item, make_dataset_context, redirect_back
from evalsite.lib.history import TransitionError
from evalsite.lib.permissions import members_only, readers_only
from evalsite.lib.web.addresses import change_query
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.long_text import build_text_response


@require_safe
@readers_only
def item_detail(request: HttpRequest, slug: str, version: int, pk: int) -> HttpResponse:
    """Show the item with all its data, and link its neighbours under the list's filter."""
    dataset = get_visible_dataset(request, slug, version)
    item = get_visible_item(request, dataset, pk)
    previous, following = item_pagination.find_neighbours(make_item_filter(request, dataset).qs, item)
    context = {
        **make_dataset_context(request, dataset),
        "item": item,
        "norms": ItemNormTable(list(item.norms.all())),
        "metadata": [(name, to_text(value)) for name, value in item.metadata.items()],
        "query": change_query(request, CURSORS),
        "previous": previous,
        "next": following,
        "seed": draw_seed(),
    }
    return render(request, "datasets_app/item_detail.html", context)


@require_safe
@readers_only
def item_text(request: HttpRequest, slug: str, version: int, pk: int, name: str) -> HttpResponse:
    """Return one of the item's texts as a file. It is whole, while a page shows only the first part of a long text."""
    item = get_visible_item(request, get_visible_dataset(request, slug, version), pk)
    texts = {
        "input": item.input,
        "target": item.target,
        "grading_scheme": item.grading_scheme,
        "choices": "\n".join(map(str, item.choices)),
        "metadata": json.dumps(item.metadata, ensure_ascii=False, indent=2) if item.metadata else "",
    }
    if not texts.get(name):
        raise Http404
    return build_text_response(texts[name], f"item-{item.pk}-{name}")


@require_POST
@members_only
def item_act(request: HttpRequest, slug: str, version: int, pk: int, verb: str) -> HttpResponse:
    dataset = get_visible_dataset(request, slug, version)
    item = get_visible_item(request, dataset, pk)
    if verb not in ("exclude", "include", "replace", "remove"):
        raise Http404
    form = DraftActionForm(request.POST)
    if not form.is_valid():
        messages.error(request, get_first_error(form))
    else:
        by, reason = cast(User, request.user), form.cleaned_data["reason"]
        try:
            if verb == "exclude":
                dataset.exclude_items([item.key], by=by, reason=reason)
                message = f"{item.key} is excluded."
            elif verb == "include":
                dataset.include_items([item.key], by=by, reason=reason)
                message = f"{item.key} is active again."
            elif verb == "replace":
                seed = draw_seed() if form.cleaned_data["seed"] is None else form.cleaned_data["seed"]
                new = curation.replace_item(dataset, item.key, by=by, seed=seed, reason=reason)
                message = f"{item.key} is replaced by {new}."
            else:
                dataset.remove_items([item.key], by=by, reason=reason)
                message = f"{item.key} is removed from {dataset}."
        except (CurationError, TransitionError) as error:
            messages.error(request, str(error))
        else:
            if not wants_part(request):  # With htmx, the page shows the result itself.
                messages.success(request, message)
    if verb in ("replace", "remove"):  # The item and its page no longer exist.
        return redirect(dataset)
    return redirect_back(request, reverse("item_detail", args=[slug, version, pk]))


# The content never changes, because its URL contains its hash. Shared caches must not store it, because access to it is
# restricted.
CACHE_CONTROL = "private, max-age=31536000, immutable"


@require_safe
@readers_only
def asset(request: HttpRequest, sha256: str) -> FileResponse:
    image = _get_visible_asset(request, sha256)
    return send_image(image.shared_file.fetch, image.content_type)


@require_safe
@readers_only
def thumbnail(request: HttpRequest, sha256: str) -> FileResponse:
    return send_image(_get_visible_asset(request, sha256).shared_thumbnail.fetch, "image/jpeg")


def _get_visible_asset(request: HttpRequest, sha256: str) -> Asset:
    image = get_object_or_404(Asset, pk=sha256)
    if not Item.objects.visible_to(request.user).filter(image=image).exists():
        raise Http404
    return image


def send_image(fetch: Callable[[], Path], content_type: str) -> FileResponse:
    """Return the response with the file that `fetch` finds, or raise Http404 if it is missing.

    Its path and its content type must come from the site, never from an uploaded name.
    """
    try:
        file = fetch().open("rb")
    except FileNotFoundError:
        raise Http404 from None
    response = FileResponse(file, content_type=content_type)
    response["Cache-Control"] = CACHE_CONTROL
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response
