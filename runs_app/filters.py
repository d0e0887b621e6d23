"""The filters of the list pages, except that of trials. Every filter value is in the URL."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any

import django_filters as df
from django import forms
from django.db.models import Q, QuerySet
from django.utils import timezone

from evalsite.lib.permissions import is_member
from evalsite.lib.web.filters import (
    FavouriteFilter,
    RowFilter,
    StrictFilterSet,
    WholeNumberFilter,
)
from runs_app.models import (
    Annotation,
    Endpoint,
    Experiment,
    LanguageModel,
    LedgerEntry,
    ProviderBatch,
)
from runs_app.models.batches import ProviderBatchQuerySet
from runs_app.models.experiments import ExperimentQuerySet
from runs_app.monitoring import ledger_report


class ExperimentFilter(df.FilterSet):
    q = df.CharFilter(label="Name", method="filter_name", widget=forms.TextInput(attrs={"type": "search"}))
    status = df.ChoiceFilter(choices=Experiment.Status.choices, empty_label="Any")
    owner = df.CharFilter(label="Owner", field_name="owner__username", lookup_expr="icontains")
    dataset = df.CharFilter(label="Dataset", field_name="dataset__slug", lookup_expr="icontains")
    favourite = FavouriteFilter(label="Favourites")

    class Meta:
        model = Experiment
        fields = ["q", "status", "dataset", "owner"]

    def filter_name(self, experiments: QuerySet[Experiment], _name: str, text: str) -> QuerySet[Experiment]:
        return experiments.filter(Q(slug__icontains=text) | Q(title__icontains=text))


def _list_endpoints(request: Any) -> QuerySet[Endpoint]:
    return Endpoint.objects.visible_to(request.user).order_by("name")


class BatchFilter(df.FilterSet):
    status = df.ChoiceFilter(
        choices=[("open", "Open"), *ProviderBatch.Status.choices], empty_label="Any", method="filter_status"
    )
    endpoint = RowFilter(queryset=_list_endpoints, to_field_name="name", empty_label="Any")
    experiment = df.CharFilter(label="Experiment", field_name="run__experiment__slug")
    run = WholeNumberFilter(label="Run", min_value=1)

    class Meta:
        model = ProviderBatch
        fields = ["status", "endpoint", "experiment", "run"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not is_member(self.request.user):
            del self.filters["endpoint"]  # Only members may see which endpoints serve the models.

    def filter_status(self, batches: ProviderBatchQuerySet, _name: str, status: str) -> ProviderBatchQuerySet:
        return batches.open() if status == "open" else batches.filter(status=status)


def list_visible_experiments(request: Any) -> ExperimentQuerySet:
    return Experiment.objects.visible_to(request.user).order_by("slug")


class AnnotationFilter(StrictFilterSet):
    KINDS = Annotation.Kind.choices
    ON = (("trial", "Trials"), ("item", "Items"))

    text = df.CharFilter(label="Text", lookup_expr="icontains", widget=forms.TextInput(attrs={"type": "search"}))
    kind = df.ChoiceFilter(label="Kind", choices=KINDS, empty_label="Any")
    on = df.ChoiceFilter(label="On", choices=ON, empty_label="Any", method="filter_subject")
    item = df.CharFilter(label="Item key", field_name="item__key")
    author = df.CharFilter(label="Author", field_name="author__username")

    class Meta:
        model = Annotation
        fields: list[str] = []

    def filter_subject(self, annotations: QuerySet[Annotation], _name: str, subject: str) -> QuerySet[Annotation]:
        return annotations.filter(trial__isnull=subject == "item")


class LedgerFilter(StrictFilterSet):
    """The filter of the ledger: a range of days in the reader's time zone, and the grouping of the sums."""

    GROUPS = (("day", "Day"), ("model", "Model"), ("stage", "Stage"), ("run", "Run"))

    by = df.ChoiceFilter(label="By", choices=GROUPS, empty_label=None, method="keep_all")
    since = df.DateFilter(label="From", method="filter_since", widget=forms.DateInput(attrs={"type": "date"}))
    until = df.DateFilter(label="To", method="filter_until", widget=forms.DateInput(attrs={"type": "date"}))
    stage = df.ChoiceFilter(label="Stage", choices=ledger_report.STAGES, empty_label="Any", method="filter_stage")

    class Meta:
        model = LedgerEntry
        fields: list[str] = []

    @property
    def grouping(self) -> str:
        """Return the key that groups the sums; the default is the day."""
        return (self.form.cleaned_data.get("by") if self.form.is_valid() else "") or "day"

    def keep_all(self, entries: QuerySet[LedgerEntry], _name: str, _by: str) -> QuerySet[LedgerEntry]:
        return entries

    def filter_stage(self, entries: QuerySet[LedgerEntry], _name: str, stage: str) -> QuerySet[LedgerEntry]:
        return entries.filter(ledger_report.filter_stage(stage))

    def filter_since(self, entries: QuerySet[LedgerEntry], _name: str, day: date) -> QuerySet[LedgerEntry]:
        return entries.filter(at__gte=_get_midnight(day))

    def filter_until(self, entries: QuerySet[LedgerEntry], _name: str, day: date) -> QuerySet[LedgerEntry]:
        return entries.filter(at__lt=_get_midnight(day, 1))


class LabLedgerFilter(LedgerFilter):
    """The filter of the ledger over all experiments."""

    by = df.ChoiceFilter(
        label="By", choices=(*LedgerFilter.GROUPS, ("experiment", "Experiment")), empty_label=None, method="keep_all"
    )
    model = RowFilter(
        label="Model",
        queryset=LanguageModel.objects.order_by("name"),
        to_field_name="name",
        empty_label="Any",
        method="filter_model",
    )
    experiment = RowFilter(
        label="Experiment",
        queryset=list_visible_experiments,
        to_field_name="slug",
        empty_label="Any",
        method="filter_experiment",
    )

    def filter_model(self, entries: QuerySet[LedgerEntry], _name: str, model: LanguageModel) -> QuerySet[LedgerEntry]:
        return entries.filter(ledger_report.filter_model(model)).exclude(ledger_report.of_unfinished_plans())

    def filter_experiment(
        self, entries: QuerySet[LedgerEntry], _name: str, experiment: Experiment
    ) -> QuerySet[LedgerEntry]:
        return entries.filter(ledger_report.filter_experiment(experiment))


def _get_midnight(day: date, days_later: int = 0) -> datetime:
    """Return midnight of this day. Clamp the day to 1970-9000, so that midnight exists in every time zone."""
    clamped = min(max(day, date(1970, 1, 1)), date(9000, 1, 1)) + timedelta(days=days_later)
    return timezone.make_aware(datetime.combine(clamped, time.min))
