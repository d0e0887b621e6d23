"""The forms that add and change notes, flags and tags, and the list of an experiment's annotations."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from datasets_app import curation
from datasets_app.models import Item
from datasets_app.models.datasets import CurationError
from datasets_app.views.permissions import redirect_back
from evalsite.lib.permissions import is_member, members_only, readers_only
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.list_page import ListPage
from evalsite.lib.web.model_names import hides_model_names
from runs_app.filters import AnnotationFilter
from runs_app.forms.annotations import AnnotatedDatasetForm, AnnotationForm
from runs_app.models import Annotation, Experiment, Trial
from runs_app.models.annotations import AnnotationError, AnnotationQuerySet, annotate, list_annotations
from runs_app.models.conditions import load_labels
from runs_app.tables.annotations import AnnotationTable
from runs_app.views.permissions import get_visible_experiment, may_edit

READ_OR_WRITE = ["GET", "HEAD", "POST"]
ANNOTATIONS = ListPage(AnnotationTable, "runs_app/experiment_annotations.html", AnnotationFilter, per_page=50)
Kind = Annotation.Kind


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
