"""Access to datasets in views: invisible rows answer 404, and frozen datasets have no pages that change them."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect
from django.utils.http import url_has_allowed_host_and_scheme

from datasets_app.models import Dataset, Item
from evalsite.lib.permissions import is_member, uses_admin


def get_visible_dataset(request: HttpRequest, slug: str, version: int) -> Dataset:
    visible = Dataset.objects.visible_to(request.user).with_star(request.user)
    datasets = visible.select_related("parent", "created_by")
    dataset: Dataset = get_object_or_404(datasets, slug=slug, version=version)
    return dataset


def get_visible_draft(request: HttpRequest, slug: str, version: int) -> Dataset:
    """Return the draft for a form that changes it. Raise Http404 if the dataset is not a draft."""
    dataset = get_visible_dataset(request, slug, version)
    if not dataset.is_draft:
        raise Http404
    return dataset


def get_visible_item(request: HttpRequest, dataset: Dataset, pk: int) -> Item:
    return get_object_or_404(dataset.items.select_related("image"), pk=pk)


def make_dataset_context(request: HttpRequest, dataset: Dataset) -> dict[str, Any]:
    """Return the template context with the dataset and the user's current rights on it."""
    member = is_member(request.user)
    return {
        "dataset": dataset,
        "excluded_count": dataset.item_count - dataset.active_count,
        "has_images": dataset.has_images,
        "warning_count": dataset.history.filter(aspect="warnings").count() if dataset.is_draft else 0,
        "may_curate": member,
        "may_edit": member and dataset.is_draft,
        "may_describe": member and not dataset.is_draft and dataset.may_be_described_by(request.user),
        "may_approve": member and request.user.has_perm("datasets_app.approve_dataset"),
        "uses_admin": uses_admin(request.user),
    }


def redirect_back(request: HttpRequest, otherwise: Any) -> HttpResponse:
    """Redirect to the page that contained the form if it is on this site, else to `otherwise`."""
    address = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(address, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        return HttpResponseRedirect(address)
    return redirect(otherwise)
