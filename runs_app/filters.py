"""The filters of the list pages. Every filter value is in the URL."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any
from urllib.parse import parse_qsl

import django_filters as df
from django import forms
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from datasets_app.models import Item
from evalsite.lib.permissions import is_member
from evalsite.lib.text.pg_text import describe_unstorable
from evalsite.lib.web.filters import StrictFilterSet, YesNoFilter
from runs_app.grading_interface import grading
from runs_app.models import (
    Annotation,
    Condition,
    Dimension,
    Endpoint,
    Experiment,
    LanguageModel,
    LedgerEntry,
    ProviderBatch,
    Run,
    Trial,
)
from runs_app.models.batches import ProviderBatchQuerySet
from runs_app.models.trials import REFUSED, UNUSABLE_KINDS
from runs_app.monitoring import ledger_report
from runs_app.trial_list.trial_pagination import Search

MOST_ITEMS = 20_000  # Of one choice of parameters, so that the list of a search stays small.
FEW_ITEMS = 200
"""So many items are looked up by index. Trials of more items are searched for."""


class WholeNumberFilter(df.Filter):
    """A filter by whole number. A number that no column can store matches nothing."""

    field_class = forms.IntegerField


class FloatFilter(df.Filter):
    field_class = forms.FloatField


def read_parameters(text: str) -> dict[str, str]:
    """Return the parameters of `length=8&max_depth=2`. Raise ValueError for a text of another form."""
    params = dict(parse_qsl(text, strict_parsing=True, keep_blank_values=True, max_num_fields=30))
    if fault := describe_unstorable(params):
        raise ValueError(fault)
    return params


class PointField(forms.CharField):
    """Parameters of generated items, written as in an address: `length=8&max_depth=2`. The value is a mapping."""

    def clean(self, value: Any) -> dict[str, str]:
        text = super().clean(value)
        if not text:
            return {}
        try:
            return read_parameters(text)
        except ValueError as error:
            raise forms.ValidationError("Write parameters as name=value, joined by &.") from error


class PointFilter(df.Filter):
    """A filter by parameters of the item."""

    field_class = PointField


class ExperimentFilter(df.FilterSet):
    q = df.CharFilter(label="Name", method="named", widget=forms.TextInput(attrs={"type": "search"}))
    status = df.ChoiceFilter(choices=Experiment.Status.choices, empty_label="Any")
    owner = df.CharFilter(label="Owner", field_name="owner__username", lookup_expr="icontains")
    dataset = df.CharFilter(label="Dataset", field_name="dataset__slug", lookup_expr="icontains")

    class Meta:
        model = Experiment
        fields = ["q", "status", "dataset", "owner"]

    def named(self, experiments: QuerySet[Experiment], _name: str, text: str) -> QuerySet[Experiment]:
        return experiments.filter(Q(slug__icontains=text) | Q(title__icontains=text))


def _endpoints(request: Any) -> QuerySet[Endpoint]:
    return Endpoint.objects.visible_to(request.user).order_by("name")


class BatchFilter(df.FilterSet):
    status = df.ChoiceFilter(choices=[("open", "Open"), *ProviderBatch.Status.choices], empty_label="Any", method="at")
    endpoint = df.ModelChoiceFilter(queryset=_endpoints, to_field_name="name", empty_label="Any")
    experiment = df.CharFilter(label="Experiment", field_name="run__experiment__slug")
    run = WholeNumberFilter(label="Run", min_value=1)

    class Meta:
        model = ProviderBatch
        fields = ["status", "endpoint", "experiment", "run"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not is_member(self.request.user):
            del self.filters["endpoint"]  # Only members of the group may see where models are served.

    def at(self, batches: ProviderBatchQuerySet, _name: str, status: str) -> ProviderBatchQuerySet:
        return batches.open() if status == "open" else batches.filter(status=status)


def _experiments(request: Any) -> QuerySet[Experiment]:
    return Experiment.objects.visible_to(request.user).order_by("slug")


def _conditions(request: Any) -> QuerySet[Condition]:
    """Return the conditions of the chosen experiment, because condition names are unclear without it."""
    chosen = _experiments(request).filter(slug=request.GET.get("experiment", ""))
    return Condition.objects.filter(experiment__in=chosen).select_related("model", "prompt", "sampler")


def _dimensions(request: Any) -> QuerySet[Dimension]:
    shown = Dimension.objects.filter(experiments__in=_experiments(request))
    slug = request.GET.get("experiment", "")
    return (shown.filter(experiments__slug=slug) if slug else shown).distinct()


class ConditionChoice(df.fields.ModelChoiceField):
    def label_from_instance(self, condition: Condition) -> str:
        return condition.label


class ConditionFilter(df.ModelChoiceFilter):
    field_class = ConditionChoice


class TrialFilter(df.FilterSet):
    """A form that turns the URL's parameters into a `search`. `trial_pagination.find` reads the rows, not a queryset
    here."""

    contains = df.CharFilter(label="Answer contains", widget=forms.TextInput(attrs={"type": "search"}))
    experiment = df.ModelChoiceFilter(
        label="Experiment", queryset=_experiments, to_field_name="slug", empty_label="Any"
    )
    condition = ConditionFilter(label="Condition", queryset=_conditions, empty_label="Any")
    run = WholeNumberFilter(label="Run", min_value=1)
    status = df.ChoiceFilter(choices=Trial.Status.choices, empty_label="Any")
    item = df.CharFilter(label="Item key")
    category = df.CharFilter(label="Category")
    point = PointFilter(label="Parameters")
    dimension = df.ModelChoiceFilter(label="Dimension", queryset=_dimensions, empty_label="Any")
    rating = WholeNumberFilter(label="Rating")
    error = df.CharFilter(label="Error class")
    empty = YesNoFilter(label="Empty")
    truncated = YesNoFilter(label="Truncated")
    refused = YesNoFilter(label="Refused")
    unparsed = YesNoFilter(label="Unreadable")
    from_cache = YesNoFilter(label="From cache")
    scorer = df.CharFilter(label="Scorer")
    score = FloatFilter(label="Score")
    disagree = df.ChoiceFilter(label="Raters disagree", choices=[("true", "Yes")], empty_label="Any")
    differs = df.ChoiceFilter(label="Differs between conditions", choices=[("true", "Yes")], empty_label="Any")
    flag = YesNoFilter(label="Flagged")
    note = df.CharFilter(label="Note contains")
    tag = df.CharFilter(label="Tag")
    graded_by = WholeNumberFilter(label="Grade condition", min_value=1, widget=forms.HiddenInput())
    unread = df.CharFilter(label="Without a score", widget=forms.HiddenInput())

    class Meta:
        model = Trial
        fields: list[str] = []

    USUAL = ("contains", "experiment", "condition", "status", "item", "category", "scorer", "score", "differs", "flag")

    @property
    def usual_fields(self) -> list[forms.BoundField]:
        return [self.form[name] for name in self.USUAL]

    @property
    def rare_fields(self) -> list[forms.BoundField]:
        """Return the fields that are folded, because with all of them no row would be on a laptop's first screen."""
        return [field for field in self.form.visible_fields() if field.name not in self.USUAL]

    @property
    def uses_rare_fields(self) -> bool:
        changed = set(self.form.changed_data) | set(self.form.errors)
        return any(field.name in changed for field in self.rare_fields)

    @property
    def search(self) -> Search | None:
        """Return the search, or None if the parameters are invalid; the page then shows no trials instead of all."""
        if not self.form.is_valid():
            return None
        wanted = {name: value for name, value in self.form.cleaned_data.items() if value not in (None, "", {})}
        if "differs" in wanted and "experiment" not in wanted:
            self.form.add_error("differs", "Choose an experiment, whose conditions are compared.")
            return None
        runs = self._runs(wanted)
        annotated = list_annotation_kinds(wanted)
        items, differing = self._items(runs, wanted), self._differing(wanted) if "differs" in wanted else None
        if differing is not None and (items is not None or len(differing) <= FEW_ITEMS):
            allowed = None if items is None else set(items)
            items = [item for item in differing if allowed is None or item in allowed]
            differing = None
        return Search(
            runs=runs,
            status=wanted.get("status", ""),
            error_class=wanted.get("error", ""),
            items=items,
            odd=self._odd(wanted),
            with_refused_errors=bool(wanted.get("refused")),
            picked=pick_annotated(annotated[0], wanted.get("experiment")) if annotated else None,
            rest=self._rest(wanted, differing) & Q(*(is_annotated(kind) for kind in annotated[1:])),
        )

    @property
    def waits_for_scores(self) -> bool:
        """Return True if a worker still computes the scores that are to differ. The search has no rows then."""
        return self._waits_for_scores

    _waits_for_scores = False

    def _runs(self, wanted: dict[str, Any]) -> QuerySet[Run]:
        runs = Run.objects.visible_to(self.request.user)
        if not wanted.keys() & {"run", "condition"}:
            runs = runs.generating()
        named = {"experiment": "experiment", "condition": "condition", "run": "pk"}
        return runs.filter(**{field: wanted[name] for name, field in named.items() if name in wanted})

    def _items(self, runs: QuerySet[Run], wanted: dict[str, Any]) -> list[int] | None:
        """Return the items that are named by their key or by their parameters; None for any item."""
        if not wanted.keys() & {"item", "point"}:
            return None
        datasets = list(set(runs.order_by().values_list("experiment__dataset", flat=True)))
        items = Item.objects.filter(dataset__in=datasets)
        items = items.filter(key=wanted["item"]) if "item" in wanted else items
        if "point" in wanted:
            items = items.filter(category=wanted["category"]) if "category" in wanted else items
            items = items.with_parameters(wanted["point"])
        return list(items.values_list("pk", flat=True)[:MOST_ITEMS])

    @staticmethod
    def _odd(wanted: dict[str, Any]) -> Q:
        """Return the condition for the chosen kinds of answers. These kinds are rare, and an index holds them."""
        kinds = Q()
        for name, kind in UNUSABLE_KINDS.items():
            kinds &= _kind(name, kind) if wanted.get(name) else Q()
        return kinds

    def _differing(self, wanted: dict[str, Any]) -> list[int]:
        """Return the items that the conditions score differently, by the chosen scorer, else by the first measure."""
        items = grading().list_items_that_differ(wanted["experiment"], wanted.get("scorer", ""))
        self._waits_for_scores = items is None
        return items or []

    @staticmethod
    def _rest(wanted: dict[str, Any], items: list[int] | None) -> Q:
        others = Q() if items is None else Q(item__in=items)
        others &= grading().filter_disagreements() if "disagree" in wanted else Q()
        others &= ~is_annotated({"kind": "flag"}) if wanted.get("flag") is False else Q()
        for name, kind in UNUSABLE_KINDS.items():
            others &= ~_kind(name, kind) if wanted.get(name) is False else Q()
        named = {
            "category": "item__category",
            "dimension": "dimension",
            "rating": "rating",
            "from_cache": "from_cache",
            "contains": "answer__icontains",
        }
        if "graded_by" in wanted:  # A trial has one grading per condition, so the join duplicates no row.
            named |= {"graded_by": "gradings__condition", "unread": "gradings__parse_error"}
        if wanted.keys() & {"scorer", "score"}:
            others &= _scored(wanted)
        return others & Q(**{field: wanted[name] for name, field in named.items() if name in wanted})


def list_annotation_kinds(wanted: dict[str, Any]) -> list[dict[str, str]]:
    """Return the lookups of annotations that the filter asks for: of a flag, a note and a tag."""
    kinds: list[dict[str, str]] = [{"kind": "flag"}] if wanted.get("flag") else []
    if "tag" in wanted:
        kinds.append({"kind": "tag", "text": "-".join(wanted["tag"].lower().split())})
    if "note" in wanted:
        kinds.append({"kind": "note", "text__icontains": wanted["note"]})
    return kinds


def is_annotated(lookups: dict[str, str]) -> Q:
    """Return the trials with such an annotation, on the trial or on its item."""
    on_either = Q(trial=OuterRef("pk")) | Q(trial=None, item=OuterRef("item_id"))
    return Q(Exists(Annotation.objects.current().filter(on_either, **lookups)))


def pick_annotated(lookups: dict[str, str], experiment: Experiment | None) -> tuple[list[int], list[int]]:
    """Return the keys of trials and of items that have such an annotation themselves."""
    found = Annotation.objects.current().filter(**lookups).order_by()
    if experiment is not None:
        found = found.of_experiment(experiment)
    pairs = list(found.values_list("trial", "item"))
    return [trial for trial, _ in pairs if trial], [item for trial, item in pairs if not trial]


def _scored(wanted: dict[str, Any]) -> Q:
    """Return the trials that a scorer of this name gave this score. Both may be left open."""
    model: Any = Trial._meta.get_field("gradings").related_model
    gradings = model.objects.filter(trial=OuterRef("pk"))
    named = {"scorer": "condition__scorer", "score": "score"}
    return Q(Exists(gradings.filter(**{field: wanted[name] for name, field in named.items() if name in wanted})))


def _kind(name: str, kind: Q) -> Q:
    """Return the done trials of this kind. Refusals include the trials that failed by a refusal."""
    return REFUSED if name == "refused" else Q(status=Trial.Status.DONE) & kind


class AnnotationFilter(StrictFilterSet):
    KINDS = Annotation.Kind.choices
    ON = (("trial", "Trials"), ("item", "Items"))

    text = df.CharFilter(label="Text", lookup_expr="icontains", widget=forms.TextInput(attrs={"type": "search"}))
    kind = df.ChoiceFilter(label="Kind", choices=KINDS, empty_label="Any")
    on = df.ChoiceFilter(label="On", choices=ON, empty_label="Any", method="put_on")
    item = df.CharFilter(label="Item key", field_name="item__key")
    author = df.CharFilter(label="Author", field_name="author__username")

    class Meta:
        model = Annotation
        fields: list[str] = []

    def put_on(self, annotations: QuerySet[Annotation], _name: str, subject: str) -> QuerySet[Annotation]:
        return annotations.filter(trial__isnull=subject == "item")


class LedgerFilter(StrictFilterSet):
    """The range of days, in the reader's time zone, and the grouping of the sums."""

    GROUPS = (("day", "Day"), ("model", "Model"), ("stage", "Stage"), ("run", "Run"))

    by = df.ChoiceFilter(label="By", choices=GROUPS, empty_label=None, method="grouped")
    since = df.DateFilter(label="From", method="from_day", widget=forms.DateInput(attrs={"type": "date"}))
    until = df.DateFilter(label="To", method="to_day", widget=forms.DateInput(attrs={"type": "date"}))
    stage = df.ChoiceFilter(label="Stage", choices=ledger_report.STAGES, empty_label="Any", method="of_stage")

    class Meta:
        model = LedgerEntry
        fields: list[str] = []

    @property
    def grouping(self) -> str:
        """Return the key that groups the sums; the default is the day."""
        return (self.form.cleaned_data.get("by") if self.form.is_valid() else "") or "day"

    def grouped(self, entries: QuerySet[LedgerEntry], _name: str, _by: str) -> QuerySet[LedgerEntry]:
        return entries

    def of_stage(self, entries: QuerySet[LedgerEntry], _name: str, stage: str) -> QuerySet[LedgerEntry]:
        return entries.filter(ledger_report.filter_stage(stage))

    def from_day(self, entries: QuerySet[LedgerEntry], _name: str, day: date) -> QuerySet[LedgerEntry]:
        return entries.filter(at__gte=_midnight(day))

    def to_day(self, entries: QuerySet[LedgerEntry], _name: str, day: date) -> QuerySet[LedgerEntry]:
        return entries.filter(at__lt=_midnight(day, 1))


class LabLedgerFilter(LedgerFilter):
    """The filter of the ledger over all experiments."""

    by = df.ChoiceFilter(
        label="By", choices=(*LedgerFilter.GROUPS, ("experiment", "Experiment")), empty_label=None, method="grouped"
    )
    model = df.ModelChoiceFilter(
        label="Model",
        queryset=LanguageModel.objects.order_by("name"),
        to_field_name="name",
        empty_label="Any",
        method="of_model",
    )
    experiment = df.ModelChoiceFilter(
        label="Experiment",
        queryset=_experiments,
        to_field_name="slug",
        empty_label="Any",
        method="of_experiment",
    )

    def of_model(self, entries: QuerySet[LedgerEntry], _name: str, model: LanguageModel) -> QuerySet[LedgerEntry]:
        return entries.filter(ledger_report.filter_model(model))

    def of_experiment(self, entries: QuerySet[LedgerEntry], _name: str, one: Experiment) -> QuerySet[LedgerEntry]:
        return entries.filter(ledger_report.filter_experiment(one))


def _midnight(day: date, later: int = 0) -> datetime:
    """Return midnight of this day. Clamp the day to 1970-9000, so that midnight exists in every time zone."""
    within = min(max(day, date(1970, 1, 1)), date(9000, 1, 1)) + timedelta(days=later)
    return timezone.make_aware(datetime.combine(within, time.min))
