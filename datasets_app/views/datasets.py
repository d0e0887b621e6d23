"""The views of the list of datasets, of one dataset and its details, and of the actions on a whole dataset.

A dataset is a gallery or a table of items, filtered by the query string. The actions are sampling and the transitions,
each a POST with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import django_filters as df
from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Count, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.defaultfilters import pluralize
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from datasets_app import curation, item_pagination
from datasets_app.forms import AboutForm, DraftActionForm, SampleForm, draw_seed
from datasets_app.models import Dataset, Item
from datasets_app.models.datasets import CurationError, list_keys
from datasets_app.models.items import ItemQuerySet
from datasets_app.tables import BadgeHistoryTable, DatasetTable, ItemTable, NormSummaryTable
from datasets_app.views.permissions import get_visible_dataset, make_dataset_context, redirect_back
from evalsite.lib.favourites import change_star
from evalsite.lib.history import StatusChange, TransitionError
from evalsite.lib.permissions import is_member, members_only, readers_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.addresses import change_query
from evalsite.lib.web.filters import FavouriteFilter, YesNoFilter
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.list_page import ListPage

SHOWN_CATEGORIES = 200
NO_CATEGORY = " "  # No category has this name, because the import strips names.


class DatasetFilter(df.FilterSet):
    q = df.CharFilter(
        label="Name, title or source", method="filter_names", widget=forms.TextInput(attrs={"type": "search"})
    )
    status = df.ChoiceFilter(choices=Dataset.Status.choices, empty_label="Any")
    favourite = FavouriteFilter(label="Favourites")

    class Meta:
        model = Dataset
        fields = ["q", "status"]

    def filter_names(self, datasets: QuerySet[Dataset], _name: str, text: str) -> QuerySet[Dataset]:
        return datasets.filter(Q(slug__icontains=text) | Q(title__icontains=text) | Q(source__icontains=text))


class ItemFilter(df.FilterSet):
    q = df.CharFilter(label="Key or text", method="filter_texts", widget=forms.TextInput(attrs={"type": "search"}))
    category = df.CharFilter(label="Category", method="filter_category", strip=False, widget=forms.Select)
    excluded = YesNoFilter(label="Excluded", field_name="excluded")
    image = YesNoFilter(label="Image", method="filter_image")

    class Meta:
        model = Item
        fields: list[str] = []

    def __init__(self, *args: Any, categories: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", "Any"), *((name or NO_CATEGORY, name or "No category") for name in categories)]
        self.form.fields["category"].widget.choices = choices

    def filter_texts(self, items: QuerySet[Item], _name: str, text: str) -> QuerySet[Item]:
        return items.filter(Q(key__icontains=text) | Q(input__icontains=text))

    def filter_category(self, items: QuerySet[Item], _name: str, name: str) -> QuerySet[Item]:
        return items.filter(category=name.strip())

    def filter_image(self, items: QuerySet[Item], _name: str, has_image: bool) -> QuerySet[Item]:
        return items.filter(image__isnull=not has_image)


class Category(NamedTuple):
    """A category and its number of items. `share` is the length of its bar, in per cent of the largest category."""

    name: str
    total: int
    active: int
    share: float


@dataclass(frozen=True)
class Categories:
    """The first SHOWN_CATEGORIES categories by name, and the total number of categories."""

    rows: list[Category]
    number: int

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.rows]

    @property
    def more(self) -> int:
        return self.number - len(self.rows)


def count_categories(dataset: Dataset) -> Categories:
    """Return the categories of the dataset, counted by the database in one query."""
    counts = list(
        dataset.items.order_by("category")
        .values_list("category")
        .annotate(total=Count("pk"), active=Count("pk", filter=Q(excluded=False)))
    )
    largest = max((total for _, total, _ in counts), default=1)
    rows = [
        Category(name, total, active, round(100 * active / largest, 2))
        for name, total, active in counts[:SHOWN_CATEGORIES]
    ]
    return Categories(rows, len(counts))


def select_warnings(history: list[StatusChange]) -> list[StatusChange]:
    """Return the lines of history that contain warnings of an import."""
    return [change for change in history if change.aspect == "warnings"]


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
    query = change_query(request, CURSORS)
    total = format_count(dataset.item_count)
    if filter_.form.changed_data:
        count_label = f"{format_count(items.count())} of {total} match the filter"
    else:
        count_label = f"{total} item{pluralize(dataset.item_count)}"
    return {
        **make_dataset_context(request, dataset),
        "categories": categories,
        "filter": filter_,
        "count_label": count_label,
        "page": page,
        "query": query,
        "next_url": _make_page_url(query, "after", page.after),
        "previous_url": _make_page_url(query, "before", page.before),
    }


def make_item_filter(request: HttpRequest, dataset: Dataset, categories: Categories | None = None) -> ItemFilter:
    names = categories.names if categories else []
    return ItemFilter(request.GET, queryset=dataset.items.all(), request=request, categories=names)


def _make_page_url(query: str, name: str, cursor: item_pagination.Cursor | None) -> str:
    if cursor is None:
        return ""
    return f"?{query}&{name}={cursor}" if query else f"?{name}={cursor}"


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


@require_POST
@members_only
def dataset_act(request: HttpRequest, slug: str, version: int, verb: str) -> HttpResponse:
    dataset = get_visible_dataset(request, slug, version)
    if verb not in ("approve", "archive", "duplicate", "delete", "reshuffle", "add"):
        raise Http404
    if verb in ("approve", "archive") and not request.user.has_perm("datasets_app.approve_dataset"):
        raise PermissionDenied
    form = DraftActionForm(request.POST)
    if not form.is_valid():
        messages.error(request, get_first_error(form))
        return redirect(dataset)
    by, reason, keys = cast(User, request.user), form.cleaned_data["reason"], form.cleaned_data["keys"]
    target: Any = dataset
    try:
        if verb == "approve":
            dataset.approve(by=by, reason=reason)
            text = f"{dataset} is approved. Its items can no longer change."
        elif verb == "archive":
            dataset.archive(by=by, reason=reason)
            text = f"{dataset} is archived."
        elif verb == "duplicate":
            target = curation.duplicate(dataset, by=by, reason=reason)
            text = f"{target} is a new draft with the active items of {dataset}."
        elif verb == "delete":
            text, target = f"{dataset} is deleted.", "dataset_list"
            dataset.delete_draft(by=by, reason=reason)
        elif verb == "reshuffle":
            seed = draw_seed() if form.cleaned_data["seed"] is None else form.cleaned_data["seed"]
            drawn = curation.reshuffle_items(dataset, by=by, seed=seed, reason=reason)
            text = f"{len(drawn)} items were redrawn with seed {seed}."
        else:
            if dataset.parent is None:
                raise CurationError(f"{dataset} was not drawn from another dataset")
            curation.add_items(dataset, keys, source=dataset.parent, by=by, reason=reason)
            text = f"Added {list_keys(keys)}"
    except (CurationError, TransitionError) as error:
        messages.error(request, str(error))
        return redirect(dataset)
    messages.success(request, text)
    return redirect(target)
