"""Filters of the lists of datasets and items. The query string contains every filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import django_filters as df
from django import forms
from django.db.models import Q, QuerySet

from datasets_app.models import Dataset, Item
from evalsite.lib.web.filters import FavouriteFilter, YesNoFilter

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
