"""The page of one item: its annotations, and its answers in all experiments that the reader may see."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from datasets_app.models import Item
from datasets_app.tables import ItemNormTable
from evalsite.lib.permissions import readers_only
from evalsite.lib.text.number_format import format_count
from grading_app.results.item_answers import get_answer_page
from grading_app.tables.items import ItemAnswerTable
from runs_app.views.annotations import build_panel_context


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
