"""The pages of one item: its answers in all experiments that the reader may see, and its transcript in one."""

from __future__ import annotations

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from datasets_app.models import Item
from datasets_app.tables import ItemNormTable
from evalsite.lib.permissions import readers_only
from evalsite.lib.text.number_format import format_count
from evalsite.lib.web.model_names import hides_model_names
from grading_app.results.frames import load_condition_labels
from grading_app.results.item_answers import get_answer_page
from grading_app.results.transcript import MAX_MESSAGES, load_transcript
from grading_app.tables.items import ItemAnswerTable
from grading_app.views.blind import get_blind_context
from runs_app.views.annotations import build_panel_context
from runs_app.views.permissions import get_visible_experiment


@require_safe
@readers_only
def item_page(request: HttpRequest, pk: int) -> HttpResponse:
    item: Item = get_object_or_404(Item.objects.visible_to(request.user).select_related("dataset", "image"), pk=pk)
    page, rows = get_answer_page(item, request.user, request.GET.get("page"))
    norms = list(item.norms.all())
    context = {
        "item": item,
        "dataset": item.dataset,
        "norms": ItemNormTable(norms),
        "page": page,
        "table": ItemAnswerTable(rows, item, {norm.dimension: norm for norm in norms}),
        "count_label": f"{format_count(page.paginator.count)} conditions",
        "previous_url": f"?page={page.previous_page_number()}" if page.has_previous() else "",
        "next_url": f"?page={page.next_page_number()}" if page.has_next() else "",
        **build_panel_context(request, item),
    }
    return render(request, "grading_app/item_page.html", context)


@require_safe
@readers_only
@hides_model_names()
def item_transcript(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Show one item over all conditions of an experiment: messages, answers, reasoning, tool calls and verdicts."""
    experiment = get_visible_experiment(request, slug)
    items = Item.objects.filter(dataset=experiment.dataset_id)
    item: Item = get_object_or_404(items.select_related("image"), pk=pk)
    blind = get_blind_context(request, experiment)
    letters = blind["blind"].assign_letters() if blind["blind"] else None
    labels = load_condition_labels(experiment, letters=letters)
    transcript = load_transcript(experiment, item, labels, request.user, request.GET.get("page"))
    page = transcript.page
    before = items.filter(Q(position__lt=item.position) | Q(position=item.position, pk__lt=pk))
    after = items.filter(Q(position__gt=item.position) | Q(position=item.position, pk__gt=pk))
    norms = list(item.norms.all())
    context = {
        "experiment": experiment,
        "state": experiment.state,
        "item": item,
        "transcript": transcript,
        "max_messages": MAX_MESSAGES,
        "names_wave": experiment.has_several_waves(),
        "previous_item": before.order_by("-position", "-pk").values_list("pk", flat=True).first(),
        "next_item": after.order_by("position", "pk").values_list("pk", flat=True).first(),
        "norms": ItemNormTable(norms),
        "page": page,
        "count_label": f"{format_count(page.paginator.count)} conditions",
        "previous_url": f"?page={page.previous_page_number()}" if page.has_previous() else "",
        "next_url": f"?page={page.next_page_number()}" if page.has_next() else "",
        **blind,
        **build_panel_context(request, item),
    }
    return render(request, "grading_app/item_transcript.html", context)
