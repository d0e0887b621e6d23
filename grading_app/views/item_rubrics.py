"""Item rubrics: requesting them from a model, reading them beside the items, correcting and approving them."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from datasets_app.models import Item
from evalsite.lib.history import TransitionError
from evalsite.lib.permissions import members_only, uses_admin
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.form_fields import get_first_error
from evalsite.lib.web.list_page import ListPage
from grading_app.forms.rubrics import ConfirmForm, CorrectionForm, TextReasonForm, WriterForm
from runs_app.models import Run, TextSet
from runs_app.models.totals import Totals
from runs_app.planning.work import PlanError
from runs_app.tables.columns import NUMBER
from runs_app.views.permissions import get_editable_experiment


class TextSetTable(tables.Table):
    name = tables.Column(verbose_name="Set", attrs={"td": {"class": "primary"}}, order_by=("name", "-version"))
    status = tables.Column()
    dataset = tables.Column()
    n_texts = tables.Column(verbose_name="Texts", attrs=NUMBER)
    created_by = tables.Column(verbose_name="By")
    created_at = tables.Column(verbose_name="Created", attrs={"td": {"class": "tight"}})

    class Meta:
        model = TextSet
        fields = ()
        order_by = ("name",)
        default = number_format.MISSING

    def render_name(self, record: TextSet) -> SafeString:
        return format_html('<a href="{}">{}</a>', reverse("text_set", args=[record.name, record.version]), record)

    def render_status(self, record: TextSet) -> SafeString:
        return tags.status_badge(record.status, label=record.get_status_display())

    def render_n_texts(self, value: int) -> str:
        return number_format.format_count(value)

    def render_created_at(self, value: Any) -> SafeString:
        return tags.local_time(value)


PER_PAGE = 25
TEXT_SETS = ListPage(TextSetTable, "grading_app/item_rubrics/text_sets.html")
EDIT = "runs_app.change_textset"


@require_safe
@members_only
def text_sets(request: HttpRequest) -> HttpResponse:
    visible = TextSet.objects.visible_to(request.user).select_related("dataset", "created_by")
    return TEXT_SETS.render(request, TEXT_SETS.load(request, visible.annotate(n_texts=Count("texts"))))


@require_safe
@members_only
def text_set(request: HttpRequest, name: str, version: int) -> HttpResponse:
    """Show the items of the dataset with their texts. `?only=missing` or `?only=corrected` restricts them."""
    texts = _get_visible_text_set(request, name, version)
    shown, only = texts.dataset.items.active(), request.GET.get("only", "")
    if only == "missing":
        shown = shown.exclude(pk__in=texts.texts.values("item"))
    elif only == "corrected":
        shown = shown.filter(pk__in=texts.texts.exclude(edited_at=None).values("item"))
    ordered = shown.select_related("image").order_by("position", "pk")
    page = Paginator(ordered, PER_PAGE).get_page(request.GET.get("page"))
    items = list(page.object_list)
    texts_by_item = {row.item_id: row for row in texts.texts.filter(item__in=items).select_related("edited_by")}
    runs = list(Run.objects.filter(condition=texts.written_by)) if texts.written_by_id else []
    context = {
        "texts": texts,
        "page": page,
        "rows": [(item, texts_by_item.get(item.pk)) for item in items],
        "missing": len(texts.find_missing()),
        "corrected": texts.texts.exclude(edited_at=None).count(),
        "versions": list(TextSet.objects.filter(name=name).order_by("-version")),
        "totals": Totals.of(runs),
        "runs": runs,
        "may_edit": request.user.has_perm(EDIT),
        "may_approve": request.user.has_perm(TextSet.APPROVAL) and texts.status in TextSet.UNAPPROVED,
        "may_judge": texts.status == TextSet.Status.APPROVED
        and bool(uses_admin(request.user) and request.user.has_perm("grading_app.add_grader")),
        "history": list(texts.history[:50]),
        "only": only,
    }
    return render(request, "grading_app/item_rubrics/text_set.html", context)


def _get_visible_text_set(request: HttpRequest, name: str, version: int) -> TextSet:
    visible = TextSet.objects.visible_to(request.user).select_related("dataset", "written_by__model", "created_by")
    text_set: TextSet = get_object_or_404(visible, name=name, version=version)
    return text_set


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def text_of_item(request: HttpRequest, name: str, version: int, pk: int) -> HttpResponse:
    """Show one item with its text, and correct it. Every correction needs a reason."""
    texts = _get_visible_text_set(request, name, version)
    if not request.user.has_perm(EDIT):
        raise Http404
    item: Item = get_object_or_404(texts.dataset.items.active().select_related("image"), pk=pk)
    stored_text = texts.texts.filter(item=item).select_related("edited_by").first()
    form = CorrectionForm(
        request.POST if request.method == "POST" else None, initial={"text": stored_text.text if stored_text else ""}
    )
    if request.method == "POST" and form.is_valid():
        try:
            corrected = texts.correct(
                item, form.cleaned_data["text"], by=request.user, reason=form.cleaned_data["reason"]
            )
        except ValueError as error:
            form.add_error("text", str(error))
        else:
            messages.success(request, f"The rubric of {item.key} was corrected in {corrected}.")
            return redirect("text_set", corrected.name, corrected.version)
    context = {"texts": texts, "item": item, "stored_text": stored_text, "form": form}
    return render(request, "grading_app/item_rubrics/text_of_item.html", context)


@require_POST
@members_only
def text_set_act(request: HttpRequest, name: str, version: int, verb: str) -> HttpResponse:
    texts = _get_visible_text_set(request, name, version)
    permission = {"collect": EDIT, "approve": TextSet.APPROVAL, "archive": TextSet.APPROVAL}.get(verb)
    if permission is None or not request.user.has_perm(permission):
        raise Http404
    form = TextReasonForm(request.POST)
    if not form.is_valid() and verb != "collect":
        messages.error(request, str(form.errors["reason"][0]))
        return redirect("text_set", name, version)
    reason = form.cleaned_data.get("reason", "")
    try:
        if verb == "collect":
            done = f"New texts: {format_count(texts.collect())}."
        elif verb == "approve":
            texts.approve(by=request.user, reason=reason)
            done = f"{texts} is approved. Judges can use it, and it can no longer change."
        else:
            texts.archive(by=request.user, reason=reason)
            done = f"{texts} is archived."
    except (ValueError, TransitionError) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, done)
    return redirect("text_set", name, version)


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
def experiment_write(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the cost of writing item rubrics by the choice in the address (GET), or request them (POST)."""
    experiment = get_editable_experiment(request, slug)
    data = request.POST if request.method == "POST" else request.GET
    form = WriterForm(data if "template" in data else None, user=request.user, initial={"name": f"{slug}-rubrics"})
    fields: Any = form.fields
    context: dict[str, Any] = {
        "experiment": experiment,
        "form": form,
        "has_templates": bool(fields["template"].queryset.exists()),
    }
    if form.is_valid():
        writer = form.make_writer(experiment)
        n_items, call_ceiling = writer.to_do, writer.ceiling
        ceiling = None if call_ceiling is None else n_items * call_ceiling
        needs_confirmation = experiment.needs_confirmation(ceiling)
        confirm = ConfirmForm(request.POST if request.method == "POST" else None) if needs_confirmation else None
        context |= {"to_do": n_items, "ceiling": ceiling, "problems": list(writer.find_problems()), "confirm": confirm}
        if request.method == "POST" and (confirm is None or confirm.is_valid()):
            try:
                texts = writer.request(name=form.cleaned_data["name"], by=request.user)
            except PlanError as error:
                form.add_error(None, error.problems)
            else:
                messages.success(
                    request, f"{format_count(n_items)} rubrics were requested. They appear here when they are written."
                )
                return redirect("text_set", texts.name, texts.version)
        if form.errors:
            messages.error(request, get_first_error(form))
    return render(request, "grading_app/item_rubrics/experiment_write.html", context)
