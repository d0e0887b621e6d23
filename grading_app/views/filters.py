"""The filter of trials, by their answers and by their grades. Every filter value is in the URL."""

from __future__ import annotations

from typing import Any

import django_filters as df
from django import forms
from django.db.models import Avg, Exists, OuterRef, Q, QuerySet
from django.utils.functional import cached_property

from datasets_app.models import Item
from evalsite.lib.web.filters import ParameterFilter, RowFilter, WholeNumberFilter, YesNoFilter
from evalsite.lib.web.form_fields import NamedChoiceField, get_choice_field
from grading_app.models import Grading
from grading_app.results.raters.disagreements import filter_disagreements
from grading_app.results.scores import Measure, list_grader_measures, match_measure
from grading_app.results.stored_results import list_items_that_differ
from runs_app.filters import list_visible_experiments
from runs_app.models import Annotation, Condition, Dimension, Experiment, Run, Trial
from runs_app.models.conditions import load_labels
from runs_app.models.trials import REFUSED, UNUSABLE_KINDS
from runs_app.scorers.scorers import SCORERS
from runs_app.trial_list.trial_pagination import Search

MAX_ITEMS = 20_000  # That match one choice of parameters, so that the list of a search stays small.
MAX_SCORES = 10  # The longest scale whose points are offered.
MAX_INDEXED_ITEMS = 200
"""Up to this many items are looked up by index. Trials of more items are scanned."""


def _list_experiments(request: Any) -> QuerySet[Experiment]:
    """Return the experiments to choose from, with what the page shows of the chosen one."""
    return list_visible_experiments(request).select_related("dataset").with_wave_count()


class ExperimentChoice(df.fields.ModelChoiceField):
    """A choice of an experiment. `chosen` is the row of the address, which need not be read twice."""

    chosen: Experiment | None = None

    def to_python(self, value: Any) -> Any:
        return self.chosen if self.chosen is not None and value == self.chosen.slug else super().to_python(value)


class ChosenExperimentFilter(RowFilter):
    field_class = ExperimentChoice


def _list_conditions(request: Any) -> QuerySet[Condition]:
    """Return the conditions of the chosen experiment only: their names are ambiguous across experiments."""
    experiments = list_visible_experiments(request).filter(slug=request.GET.get("experiment", ""))
    return Condition.objects.filter(experiment__in=experiments)


def _list_dimensions(request: Any) -> QuerySet[Dimension]:
    dimensions = Dimension.objects.filter(experiments__in=list_visible_experiments(request))
    slug = request.GET.get("experiment", "")
    return (dimensions.filter(experiments__slug=slug) if slug else dimensions).distinct()


class ConditionChoice(df.fields.ModelChoiceField):
    def label_from_instance(self, condition: Condition) -> str:
        return self.labels[condition.pk]

    @cached_property
    def labels(self) -> dict[int, str]:
        """The labels of the conditions of the chosen experiment, loaded when the first is shown."""
        return load_labels(self.queryset.order_by().values_list("experiment", flat=True).distinct())


class ConditionFilter(RowFilter):
    field_class = ConditionChoice


class ScorerFilter(df.Filter):
    """A choice of a grader of the experiment, by its key or its name. Without an experiment, of a rule."""

    field_class = NamedChoiceField


class ScoreField(forms.FloatField):
    """A score, chosen from the points of the grader's scale. An address may have any other number."""

    widget = forms.Select

    def offer(self, measure: Measure | None, chosen: Any) -> None:
        """Offer the whole numbers of a short scale. Without a measure or a short scale, offer wrong and right."""
        low, high = (measure.bounds if measure else None) or (0.0, 1.0)
        is_short = float(low).is_integer() and float(high).is_integer() and 1 < high - low <= MAX_SCORES
        points = [str(point) for point in range(int(low), int(high) + 1)] if is_short else []
        options = [(point, point) for point in points] or [("0", "0 (wrong)"), ("1", "1 (right)")]
        if chosen and chosen not in dict(options):
            options.append((chosen, chosen))
        self.choices = [("", "Any"), *options]
        self.widget.choices = self.choices

    def prepare_value(self, value: Any) -> Any:
        """Return 0 for 0.0, so that the page shows the choice as selected."""
        try:
            return f"{float(value):g}"
        except (TypeError, ValueError, OverflowError):
            return value


class ScoreFilter(df.Filter):
    field_class = ScoreField


class TrialFilter(df.FilterSet):
    """The filter of trials, which turns the URL's parameters into a `search` for `trial_pagination.find`."""

    contains = df.CharFilter(label="Answer contains", widget=forms.TextInput(attrs={"type": "search"}))
    experiment = ChosenExperimentFilter(
        label="Experiment", queryset=_list_experiments, to_field_name="slug", empty_label="Any"
    )
    condition = ConditionFilter(label="Condition", queryset=_list_conditions, empty_label="Any")
    run = WholeNumberFilter(label="Run", min_value=1)
    status = df.ChoiceFilter(choices=Trial.Status.choices, empty_label="Any")
    item = df.CharFilter(label="Item key")
    category = df.CharFilter(label="Category")
    point = ParameterFilter(label="Parameters")
    dimension = RowFilter(label="Dimension", queryset=_list_dimensions, empty_label="Any")
    rating = WholeNumberFilter(label="Rating")
    error = df.CharFilter(label="Error class")
    empty = YesNoFilter(label="Empty")
    truncated = YesNoFilter(label="Truncated")
    refused = YesNoFilter(label="Refused")
    unparsed = YesNoFilter(label="Unreadable")
    from_cache = YesNoFilter(label="From cache")
    scorer = ScorerFilter(label="Scorer")
    score = ScoreFilter(label="Score")
    disagree = df.ChoiceFilter(label="Raters disagree", choices=[("true", "Yes")], empty_label="Any")
    differs = df.ChoiceFilter(label="Differs between conditions", choices=[("true", "Yes")], empty_label="Any")
    second_scorer = ScorerFilter(label="Second scorer")
    second_score = ScoreFilter(label="Its score")
    flag = YesNoFilter(label="Flagged")
    note = df.CharFilter(label="Note contains")
    tag = df.CharFilter(label="Tag")
    graded_by = WholeNumberFilter(label="Grade condition", min_value=1, widget=forms.HiddenInput())
    unread = df.CharFilter(label="Without a score", widget=forms.HiddenInput())

    class Meta:
        model = Trial
        fields: list[str] = []

    USUAL = ("contains", "experiment", "condition", "status", "scorer", "score")
    SCORERS = (("scorer", "score"), ("second_scorer", "second_score"))

    @cached_property
    def form(self) -> Any:
        """Return the form with the graders of the chosen experiment, or with all rules."""
        form = super().form
        slug = str(form["experiment"].data or "")
        experiment = _list_experiments(self.request).filter(slug=slug).first() if slug else None
        form.fields["experiment"].chosen = experiment
        self._measures = list_grader_measures(experiment) if experiment else []
        choices = [(measure.key, measure.label) for measure in self._measures]
        if not experiment:
            choices = [(name, scorer.label) for name, scorer in SCORERS.items()]
        for scorer_name, score_name in self.SCORERS:
            field = get_choice_field(form, scorer_name)
            field.choices = [("", "Any"), *choices]
            if self._measures and isinstance(field, NamedChoiceField):
                field.find_key = lambda name: match_measure(self._measures, name).key
            key = form[scorer_name].value()
            chosen = next((measure for measure in self._measures if measure.key == key), None)
            form.fields[score_name].offer(chosen, form[score_name].data)
        return form

    @property
    def usual_fields(self) -> list[forms.BoundField]:
        return [self.form[name] for name in self.USUAL]

    @property
    def rare_fields(self) -> list[forms.BoundField]:
        """Return the fields that the page folds, so that the first rows fit on a laptop's screen."""
        return [field for field in self.form.visible_fields() if field.name not in self.USUAL]

    @property
    def uses_rare_fields(self) -> bool:
        changed = set(self.form.changed_data) | set(self.form.errors)
        return any(field.name in changed for field in self.rare_fields)

    @property
    def search(self) -> Search | None:
        """Return the search, or None if the parameters are invalid. The page then shows no trials instead of all."""
        if not self.form.is_valid():
            return None
        criteria = {name: value for name, value in self.form.cleaned_data.items() if value not in (None, "", {})}
        if "differs" in criteria and "experiment" not in criteria:
            self.form.add_error("differs", "Choose an experiment to compare its conditions.")
            return None
        runs = Run.objects.visible_to(self.request.user)
        if not criteria.keys() & {"run", "condition"}:
            runs = runs.generating()
        lookups = {"experiment": "experiment", "condition": "condition", "run": "pk"}
        runs = runs.filter(**{lookup: criteria[name] for name, lookup in lookups.items() if name in criteria})
        annotations = list_annotation_lookups(criteria)
        items = self._find_items(runs, criteria)
        differing = None
        if "differs" in criteria:  # By the chosen scorer, else by the first measure.
            found = list_items_that_differ(criteria["experiment"], criteria.get("scorer", ""))
            self._waits_for_scores = found is None
            differing = found or []
        if differing is not None and (items is not None or len(differing) <= MAX_INDEXED_ITEMS):
            allowed = None if items is None else set(items)
            items = [item for item in differing if allowed is None or item in allowed]
            differing = None
        # The condition for the chosen kinds of unusable answers. They are rare, and an index holds them.
        condition = Q()
        for name, kind in UNUSABLE_KINDS.items():
            condition &= _match_kind(name, kind) if criteria.get(name) else Q()
        return Search(
            runs=runs,
            status=criteria.get("status", ""),
            error_class=criteria.get("error", ""),
            items=items,
            unusable=condition,
            with_refused_errors=bool(criteria.get("refused")),
            annotated=find_annotated(annotations[0], criteria.get("experiment")) if annotations else None,
            rest=self._match_rest(criteria, differing) & Q(*(match_annotated(lookups) for lookups in annotations[1:])),
        )

    @property
    def waits_for_scores(self) -> bool:
        """Return True while a worker computes the scores to compare. The search has no rows until then."""
        return self._waits_for_scores

    _waits_for_scores = False

    def _find_items(self, runs: QuerySet[Run], criteria: dict[str, Any]) -> list[int] | None:
        """Return the items with the chosen key and parameters, or None for any item."""
        if not criteria.keys() & {"item", "point"}:
            return None
        datasets = list(set(runs.order_by().values_list("experiment__dataset", flat=True)))
        items = Item.objects.filter(dataset__in=datasets)
        items = items.filter(key=criteria["item"]) if "item" in criteria else items
        if "point" in criteria:
            items = items.filter(category=criteria["category"]) if "category" in criteria else items
            items = items.with_parameters(criteria["point"])
        return list(items.values_list("pk", flat=True)[:MAX_ITEMS])

    def _match_score(self, key: str, score: float | None) -> Q:
        """Return the condition that a trial has a grading by this grader with this score. Either may be missing.

        The mean of several people counts as the point of the scale that is nearer than a half.
        """
        gradings = Grading.objects.filter(trial=OuterRef("pk")).order_by()
        measure = next((measure for measure in self._measures if measure.key == key), None)
        if measure is not None and measure.is_of_people:
            of_people = gradings.filter(condition__assignment__queue=measure.grader)
            means = of_people.values("trial").annotate(mean=Avg("score"))
            return Q(Exists(of_people if score is None else means.filter(mean__gt=score - 0.5, mean__lt=score + 0.5)))
        if key:
            gradings = gradings.filter(condition=measure.grader) if measure else gradings.filter(condition__scorer=key)
        return Q(Exists(gradings if score is None else gradings.filter(score=score)))

    def _match_rest(self, criteria: dict[str, Any], items: list[int] | None) -> Q:
        condition = Q() if items is None else Q(item__in=items)
        if "disagree" in criteria:
            condition &= filter_disagreements([criteria["experiment"].pk] if "experiment" in criteria else None)
        condition &= ~match_annotated({"kind": "flag"}) if criteria.get("flag") is False else Q()
        for name, kind in UNUSABLE_KINDS.items():
            condition &= ~_match_kind(name, kind) if criteria.get(name) is False else Q()
        lookups = {
            "category": "item__category",
            "dimension": "dimension",
            "rating": "rating",
            "from_cache": "from_cache",
            "contains": "answer__icontains",
        }
        if "graded_by" in criteria:  # A trial has one grading per condition, so the join duplicates no row.
            lookups |= {"graded_by": "gradings__condition", "unread": "gradings__parse_error"}
        for scorer_name, score_name in self.SCORERS:
            if criteria.keys() & {scorer_name, score_name}:
                condition &= self._match_score(criteria.get(scorer_name, ""), criteria.get(score_name))
        return condition & Q(**{lookup: criteria[name] for name, lookup in lookups.items() if name in criteria})


def list_annotation_lookups(criteria: dict[str, Any]) -> list[dict[str, str]]:
    """Return the lookups of the annotations that the filter requires: a flag, a tag and a note."""
    lookups: list[dict[str, str]] = [{"kind": "flag"}] if criteria.get("flag") else []
    if "tag" in criteria:
        lookups.append({"kind": "tag", "text": "-".join(criteria["tag"].lower().split())})
    if "note" in criteria:
        lookups.append({"kind": "note", "text__icontains": criteria["note"]})
    return lookups


def match_annotated(lookups: dict[str, str]) -> Q:
    """Return the condition that a trial or its item has an annotation with these lookups."""
    on_either = Q(trial=OuterRef("pk")) | Q(trial=None, item=OuterRef("item_id"))
    return Q(Exists(Annotation.objects.current().filter(on_either, **lookups)))


def find_annotated(lookups: dict[str, str], experiment: Experiment | None) -> tuple[list[int], list[int]]:
    """Return the keys of the trials and of the items with an annotation of their own."""
    annotations = Annotation.objects.current().filter(**lookups).order_by()
    if experiment is not None:
        annotations = annotations.of_experiment(experiment)
    pairs = list(annotations.values_list("trial", "item"))
    return [trial for trial, _ in pairs if trial], [item for trial, item in pairs if not trial]


def _match_kind(name: str, kind: Q) -> Q:
    """Return the condition that a done trial is of this kind. Refusals include trials that failed with a refusal."""
    return REFUSED if name == "refused" else Q(status=Trial.Status.DONE) & kind
