"""The pages of notes, flags and tags: their forms, the list of an experiment's annotations, and datasets from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import django_tables2 as tables
from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from datasets_app import curation
from datasets_app.models import Item
from datasets_app.models.datasets import CurationError, slug_validator
from datasets_app.views.permissions import redirect_back
from evalsite.lib.permissions import is_member, members_only, readers_only
from evalsite.lib.text import number_format
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.list_page import ListPage
from evalsite.lib.web.model_names import hides_model_names
from runs_app.filters import AnnotationFilter
from runs_app.models import Annotation, Experiment, Trial
from runs_app.models.annotations import (
    MAX_TEXT_LENGTH,
    MISSING,
    AnnotationError,
    AnnotationQuerySet,
    annotate,
    clean_text,
    list_annotations,
    read_tags,
)
from runs_app.models.conditions import load_labels
from runs_app.tables.columns import TIGHT, TimeColumn
from runs_app.views.permissions import get_visible_experiment, may_edit

Kind = Annotation.Kind
LABELS = {Kind.NOTE: "Note", Kind.FLAG: "Reason for the flag", Kind.TAG: "Tags"}
EXCERPT = 300
BUTTONS = {Kind.NOTE: "Add note", Kind.FLAG: "Flag", Kind.TAG: "Add tags"}


class AnnotationForm(forms.Form):
    """A note, the reason for a flag, or comma-separated tags."""

    kind = forms.ChoiceField(choices=Kind.choices, widget=forms.HiddenInput())
    text = forms.CharField(strip=False)

    def __init__(self, kind: str, data: QueryDict | None = None, text: str = "") -> None:
        kind = kind if kind in Kind.values else Kind.NOTE
        super().__init__(data, initial={"kind": kind, "text": text}, auto_id=f"id_{kind}_%s")
        self.annotation_kind = kind
        field = self.fields["text"]
        field.label = LABELS[Kind(kind)]
        field.error_messages["required"] = MISSING[Kind(kind)]
        limits = {"maxlength": MAX_TEXT_LENGTH, "autocomplete": "off"}
        field.widget = (
            forms.Textarea(attrs={**limits, "rows": 3}) if kind == Kind.NOTE else forms.TextInput(attrs=limits)
        )
        if kind == Kind.TAG:
            field.help_text = "Separated by commas"

    @property
    def submit_label(self) -> str:
        return BUTTONS[Kind(self.annotation_kind)]

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        try:
            return (
                ", ".join(read_tags(text))
                if self.annotation_kind == Kind.TAG
                else clean_text(self.annotation_kind, text)
            )
        except AnnotationError as error:
            raise forms.ValidationError(str(error)) from error


class AnnotatedDatasetForm(forms.Form):
    """The name of a draft dataset of annotated items, and the reason for it."""

    slug = forms.CharField(
        label="Name", max_length=80, validators=[slug_validator], help_text="Lower-case letters, digits, - and _"
    )
    reason = forms.CharField(label="Reason", max_length=500, required=False)


class AnnotationTable(tables.Table):
    kind = tables.Column(attrs=TIGHT)
    text = tables.Column(orderable=False, attrs={"td": {"class": "prose-cell"}})
    item = tables.Column(order_by=("item__position", "item__key"), attrs={"td": {"class": "mono tight"}})
    trial = tables.Column(empty_values=(), attrs=TIGHT)
    condition = tables.Column(
        accessor="trial__run__condition", orderable=False, attrs={"td": {"class": "clip clip-short"}}
    )
    author = tables.Column(order_by="author__username", attrs=TIGHT)
    created_at = TimeColumn(verbose_name="Added")

    class Meta:
        model = Annotation
        fields = ()
        default = number_format.MISSING
        order_by = "-created_at"
        attrs = {"class": "data-table"}

    def __init__(self, rows: Any, *, labels: Mapping[int, str], **options: Any) -> None:
        """labels: names of the conditions, from `condition_labels`."""
        self.labels = labels
        super().__init__(rows, **options)

    def render_text(self, value: str) -> str:
        return value if len(value) <= EXCERPT else f"{value[:EXCERPT]}…"

    def render_item(self, record: Annotation) -> SafeString:
        return format_html('<a href="{}">{}</a>', reverse("item_page", args=[record.item_id]), record.item.key)

    def render_trial(self, record: Annotation) -> SafeString | str:
        if record.trial_id is None:
            return number_format.MISSING
        url = reverse("trial_detail", args=[record.trial_id])
        return format_html('<a href="{}#annotations">{}</a>', url, record.trial_id)

    def render_condition(self, record: Annotation) -> str:
        return self.labels[record.trial.run.condition_id] if record.trial else number_format.MISSING


READ_OR_WRITE = ["GET", "HEAD", "POST"]
ANNOTATIONS = ListPage(AnnotationTable, "runs_app/experiment_annotations.html", AnnotationFilter, per_page=50)


def build_panel_context(
    request: HttpRequest, subject: Trial | Item, form: AnnotationForm | None = None, here: str = ""
) -> dict[str, Any]:
    """Return the context of `partials/annotations.html`. `form` is a form with errors, which keeps its entries."""
    is_trial = isinstance(subject, Trial)
    rows = list_annotations(subject)
    user: Any = request.user
    forms = {kind: AnnotationForm(kind) for kind in Kind.values}
    if form is not None:
        forms[form.annotation_kind] = form
    return {
        "annotation_rows": [{"row": row, "may_change": row.may_be_changed_by(user)} for row in rows],
        "annotation_forms": [forms[kind] for kind in (Kind.NOTE, Kind.FLAG, Kind.TAG)] if is_member(user) else [],
        "annotate_url": reverse("trial_annotate" if is_trial else "item_annotate", args=[subject.pk]),
        "annotated_name": "trial" if is_trial else "item",
        "annotate_here": here or request.get_full_path(),
    }


@require_POST
@members_only
@hides_model_names()
def trial_annotate(request: HttpRequest, pk: int) -> HttpResponse:
    trials = Trial.objects.visible_to(request.user).select_related("run__experiment", "item")
    return _annotate(request, get_object_or_404(trials, pk=pk))


@require_POST
@members_only
@hides_model_names()
def item_annotate(request: HttpRequest, pk: int) -> HttpResponse:
    return _annotate(request, get_object_or_404(Item.objects.visible_to(request.user), pk=pk))


def _annotate(request: HttpRequest, subject: Trial | Item) -> HttpResponse:
    """Add the annotation. Show an invalid form again with its entries, in its panel or on its own page."""
    form = AnnotationForm(request.POST.get("kind", ""), request.POST)
    by: Any = request.user
    added = annotate(subject, **form.cleaned_data, by=by) if form.is_valid() else []
    here = request.POST.get("next", "")
    if wants_part(request):
        context = build_panel_context(request, subject, None if form.is_valid() else form, here)
        context["annotation_saved"] = form.is_valid()
        return render(request, "runs_app/partials/annotations.html", context)
    if form.is_valid():
        return _redirect_to_panel(request, subject, added[-1] if added else None)
    context = {
        "form": form,
        "heading": form.submit_label,
        "subject": subject,
        "next": here,
        "back": _get_page_url(subject),
    }
    return render(request, "runs_app/annotation_form.html", context)


def _get_page_url(subject: Trial | Item) -> str:
    name = "trial_detail" if isinstance(subject, Trial) else "item_page"
    return reverse(name, args=[subject.pk])


def _redirect_to_panel(request: HttpRequest, subject: Trial | Item, saved: Annotation | None = None) -> HttpResponse:
    """Redirect to the page that contained the form. The fragment of a saved annotation clears the stored draft."""
    page = redirect_back(request, _get_page_url(subject))["Location"].partition("#")[0]
    return HttpResponseRedirect(f"{page}#annotation-{saved.pk}" if saved else f"{page}#annotations")


@require_http_methods(READ_OR_WRITE)
@members_only
def annotation_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Edit the text of a note or of a flag."""
    annotation = _get_editable_annotation(request, pk)
    if annotation.kind == Kind.TAG:
        raise Http404
    form = AnnotationForm(annotation.kind, request.POST or None, annotation.text)
    by: Any = request.user
    if request.method == "POST" and form.is_valid():
        try:
            annotation.change_text(form.cleaned_data["text"], by=by)
        except AnnotationError as error:
            form.add_error("text", str(error))
        else:
            return _redirect_to_panel(request, annotation.trial or annotation.item, annotation)
    context = {
        "form": form,
        "heading": f"Edit {annotation.get_kind_display().lower()}",
        "subject": annotation.trial or annotation.item,
        "next": request.POST.get("next", "") or request.GET.get("next", ""),
        "back": annotation.get_absolute_url(),
    }
    return render(request, "runs_app/annotation_form.html", context)


@require_POST
@members_only
@hides_model_names()
def annotation_remove(request: HttpRequest, pk: int) -> HttpResponse:
    annotation = _get_editable_annotation(request, pk)
    by: Any = request.user
    try:
        annotation.remove(by=by)
    except AnnotationError as error:
        messages.error(request, str(error))
    return _redirect_to_panel(request, annotation.trial or annotation.item)


def _get_editable_annotation(request: HttpRequest, pk: int) -> Annotation:
    visible = Annotation.objects.visible_to(request.user).current()
    annotation: Annotation = get_object_or_404(visible.select_related("experiment", "trial", "item"), pk=pk)
    user: User = request.user  # type: ignore[assignment] # members_only excludes anonymous users.
    if not annotation.may_be_changed_by(user):
        raise Http404
    return annotation


# --- the annotations of an experiment --------------------------------------------------------------------------------


@require_safe
@readers_only
def experiment_annotations(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    rows = _filter_experiment(experiment).select_related("item", "author", "trial__run__condition")
    list_context = ANNOTATIONS.load(request, rows, labels=load_labels([experiment.pk]))
    context = {
        **list_context,
        "experiment": experiment,
        "state": experiment.state,
        "may_edit": may_edit(request, experiment),
        "n_items": list_context["filter"].qs.order_by().values("item").distinct().count(),
        "query": request.GET.urlencode(),
    }
    return ANNOTATIONS.render(request, context)


@require_http_methods(READ_OR_WRITE)
@members_only
@hides_model_names()
def annotated_dataset(request: HttpRequest, slug: str) -> HttpResponse:
    """Create a draft dataset of the items of the listed annotations. The filter is in the URL."""
    experiment = get_visible_experiment(request, slug)
    keys = list_annotated_keys(request, experiment)
    form = AnnotatedDatasetForm(request.POST or None, initial={"slug": f"{experiment.dataset.slug}-flagged"[:80]})
    if request.method == "POST" and form.is_valid():
        try:
            draft = curation.select_items(
                experiment.dataset,
                keys,
                slug=form.cleaned_data["slug"],
                by=request.user,
                reason=form.cleaned_data["reason"],
            )
        except CurationError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"{draft} has {len(keys)} item{'' if len(keys) == 1 else 's'}.")
            return redirect(draft)
    context = {"experiment": experiment, "form": form, "n_items": len(keys), "query": request.GET.urlencode()}
    return render(request, "runs_app/annotated_dataset.html", context)


def list_annotated_keys(request: HttpRequest, experiment: Experiment) -> list[str]:
    """Return the keys of the active items with an annotation that the URL selects, in the dataset's order."""
    annotations = AnnotationFilter(request.GET, queryset=_filter_experiment(experiment), request=request).qs
    items = Item.objects.active().filter(pk__in=annotations.order_by().values("item"))
    return list(items.order_by("position", "pk").values_list("key", flat=True))


def _filter_experiment(experiment: Experiment) -> AnnotationQuerySet:
    return Annotation.objects.current().of_experiment(experiment)
