"""The views of the list of datasets and of one dataset: a gallery or table of items, and a page of details."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.defaultfilters import pluralize
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from datasets_app import item_pagination
from datasets_app.dataset_summary import Categories, count_categories, select_warnings
from datasets_app.filters import DatasetFilter, ItemFilter
from datasets_app.forms import AboutForm, draw_seed
from datasets_app.models import Dataset, Item
from datasets_app.models.items import ItemQuerySet
from datasets_app.tables import BadgeHistoryTable, DatasetTable, ItemTable, NormSummaryTable
from datasets_app.views.permissions import get_visible_dataset, make_dataset_context, redirect_back
from evalsite.lib.favourites import change_star
from evalsite.lib.permissions import is_member, members_only, readers_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.list_page import ListPage

READ_OR_WRITE = ["GET", "HEAD", "POST"]
DATASETS = ListPage(DatasetTable, "datasets_app/dataset_list.html", DatasetFilter)
CURSORS = ("after", "before")


@require_safe
@readers_only
def dataset_list(request: HttpRequest) -> HttpResponse:
    visible = Dataset.objects.visible_to(request.user).with_star(request.user)
    items = Item.objects.filter(dataset=OuterRef("pk")).order_by().values("dataset")
    number = items.annotate(number=Count("category", distinct=True)).values("number")
    rows = visible.annotate(n_categories=Subquery(number, output_field=IntegerField()))
    context = {**DATASETS.load(request, rows), "may_curate": is_member(request.user), "has_stars": True}
    return DATASETS.render(request, context)


@require_POST
@readers_only
def dataset_star(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    """Add the dataset to the user's favourites, or remove it."""
    dataset = get_visible_dataset(request, slug, version)
    change_star(dataset, request)
    return redirect_back(request, dataset)


@require_safe
@readers_only
def dataset_detail(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    """Show the items: as a gallery if the dataset has images, else as a table with targets."""
    dataset = get_visible_dataset(request, slug, version)
    if not dataset.has_images:
        return _render_table(request, dataset)
    return render(request, "datasets_app/dataset_gallery.html", _make_items_context(request, dataset))


@require_safe
@readers_only
def dataset_table(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    return _render_table(request, get_visible_dataset(request, slug, version))


def _render_table(request: HttpRequest, dataset: Dataset) -> HttpResponse:
    context = _make_items_context(request, dataset)
    table = ItemTable(context["page"].items, query=context["query"])
    return render(request, "datasets_app/dataset_table.html", {**context, "table": table})


@require_safe
@readers_only
def dataset_about(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    """Show the dataset's source, related datasets, norms, warnings and history."""
    dataset = get_visible_dataset(request, slug, version)
    history = list(dataset.history[:100])
    context = {
        **make_dataset_context(request, dataset),
        **dataset.find_related(request.user),
        "norms": NormSummaryTable(dataset.summarize_norms(), dataset.item_count),
        "history": BadgeHistoryTable([change for change in history if change.aspect != "warnings"]),
        "warnings": select_warnings(history),
        "mapping": [(field, text) for field, text in dataset.mapping.items() if text],
        "recipe": dataset.describe_recipe(),
        "seed": draw_seed(),
    }
    return render(request, "datasets_app/dataset_about.html", context)


@require_http_methods(READ_OR_WRITE)
@members_only
def dataset_edit(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    """Edit title, description, source and licence.

    Any member may edit a draft. Later only its owner and curators may, and they must give a reason.
    """
    dataset = get_visible_dataset(request, slug, version)
    if not dataset.may_be_described_by(request.user):
        raise Http404
    form = AboutForm(request.POST or None, instance=dataset)
    if request.method == "POST" and form.is_valid():
        dataset.change_description(form.cleaned_data, by=request.user, reason=form.cleaned_data.get("reason", ""))
        messages.success(request, f"{dataset} is saved.")
        return redirect(dataset)
    return render(request, "datasets_app/dataset_form.html", {"form": form, "dataset": dataset})


def _make_items_context(request: HttpRequest, dataset: Dataset) -> dict[str, Any]:
    """Return the context of both item views: one page of items under the filter of the query string."""
    categories = count_categories(dataset)
    filter_ = make_item_filter(request, dataset, categories)
    items: ItemQuerySet = filter_.qs
    after, before = (item_pagination.parse_cursor(request.GET.get(name, "")) for name in CURSORS)
    page = item_pagination.fetch_page(items, after=after, before=before)
    query = drop_cursors(request)
    return {
        **make_dataset_context(request, dataset),
        "categories": categories,
        "filter": filter_,
        "count_label": _describe_count(items if filter_.form.changed_data else None, dataset),
        "page": page,
        "query": query,
        "next_url": _make_page_url(query, "after", page.after),
        "previous_url": _make_page_url(query, "before", page.before),
    }


def _describe_count(filtered: QuerySet[Item] | None, dataset: Dataset) -> str:
    if filtered is None:
        return f"{format_count(dataset.item_count)} item{pluralize(dataset.item_count)}"
    return f"{format_count(filtered.count())} of {format_count(dataset.item_count)} match the filter"


def make_item_filter(request: HttpRequest, dataset: Dataset, categories: Categories | None = None) -> ItemFilter:
    names = categories.names if categories else []
    return ItemFilter(request.GET, queryset=dataset.items.all(), request=request, categories=names)


def drop_cursors(request: HttpRequest) -> str:
    query = request.GET.copy()
    for name in CURSORS:
        query.pop(name, None)
    return query.urlencode()


def _make_page_url(query: str, name: str, cursor: item_pagination.Cursor | None) -> str:
    if cursor is None:
        return ""
    return f"?{query}&{name}={cursor}" if query else f"?{name}={cursor}"
