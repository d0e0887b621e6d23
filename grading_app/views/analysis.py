"""The analysis of an experiment: a scope, and sections of tables and figures, computed by a worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from datasets_app.models import Item
from evalsite.lib.permissions import readers_only
from evalsite.lib.text.number_format import format_score
from evalsite.lib.web.model_names import hides_model_names
from grading_app.results.analysis.sections import SECTIONS
from grading_app.results.analysis.stored import get_analysis
from grading_app.results.figures.analysis import make_figures
from grading_app.results.item_matrix import MatrixCell, load_cells
from grading_app.results.scope import Scope, ScopeForm
from grading_app.results.table import ResultTable
from grading_app.results.waves import find_pooled_waves
from grading_app.views.blind import get_blind_context
from grading_app.views.tables_and_figures import get_table_context, make_figure_context, make_requested_file
from runs_app.views.permissions import get_visible_experiment

ANSWERS = ("norms", "conditions", "outliers")
"""The sections whose first table and figure the page shows at once: who differs, how sure that is, and where."""
MAX_CARDS, MAX_SCORES = 8, 12
"""The number of outliers with answers, and of scores per outlier."""


@require_safe
@readers_only
@hides_model_names()
def experiment_analysis(request: HttpRequest, slug: str) -> HttpResponse:
    experiment = get_visible_experiment(request, slug)
    blind = get_blind_context(request, experiment)
    form = ScopeForm(request.GET, experiment, blind["blind"])
    scope = form.get_scope()
    context = {
        "experiment": experiment,
        "state": experiment.state,
        "form": form,
        "scope": scope,
        "pooled": find_pooled_waves(experiment, scope.wave) if scope else None,
        **blind,
    }
    if scope is None:
        return render(request, "grading_app/experiment_analysis.html", context)
    cached = get_analysis(scope)
    sections = cached.tables
    tables = [table for section_tables in sections.values() for table in section_tables]
    if (file := make_requested_file(request, tables, f"{slug}-analysis")) is not None:
        return file
    context |= {
        "cached": cached,
        "here": request.get_full_path(),
        "left_out": list(Item.objects.filter(pk__in=scope.without).values_list("key", flat=True))
        if scope.without
        else [],
        "all_items": f"?{replace(scope, without=()).parameters}",
        "command": f"manage.py analyse {slug} --measure {scope.measure.key}",
        "sections": [
            _make_section_context(section, sections[section.name], scope, request.GET.get("sort", ""))
            for section in SECTIONS
            if sections.get(section.name)
        ],
    }
    return render(request, "grading_app/experiment_analysis.html", context)


def _make_section_context(section: Any, tables: list[ResultTable], scope: Scope, order: str) -> dict[str, Any]:
    figures = make_figures({table.name: table for table in tables})
    slug = scope.experiment.slug
    is_answer = section.name in ANSWERS
    n_first = 0 if section.name == "outliers" else 1  # The cards of outliers show more than their table.
    # The sentence of an answer and the notes on its table stand beside its figure.
    beside, below = tables[0] if is_answer else None, tables
    if is_answer:
        without: dict[str, Any] = {"formula": "", "test": "", "correction": "", "notes": []} if n_first else {}
        below = [replace(tables[0], sentence="", **without), *tables[1:]]
    shown_tables = [get_table_context(table, order) for table in below]
    shown_figures = [make_figure_context(figure, slug, scope.parameters, has_table=False) for figure in figures]
    outliers = next((_list_outliers(scope, table) for table in tables if table.name == "outliers"), [])
    return {
        "name": section.name,
        "title": section.title,
        "intro": section.intro,
        "is_answer": is_answer,
        "beside": beside,
        "has_notes": n_first,
        "tables": shown_tables,
        "figures": shown_figures,
        "outliers": outliers,
        "first": {"tables": shown_tables[:n_first], "figures": shown_figures[:1], "outliers": outliers},
        "more": {"tables": shown_tables[n_first:], "figures": shown_figures[1:], "outliers": []},
    }


def _format_scores(cell: MatrixCell | None) -> str:
    """Return the first scores of the answers."""
    scores = cell.scores if cell else ()
    text = ", ".join(format_score(score) for score in scores[:MAX_SCORES])
    return f"{text} …" if len(scores) > MAX_SCORES else text or "no score"


def _list_outliers(scope: Scope, table: ResultTable) -> list[dict[str, Any]]:
    """Return the first items of the table of outliers with their answers, in three queries."""
    pairs = [(item, condition) for item, condition in table.data.get("cells", [])]
    items = list(dict.fromkeys(item for item, _ in pairs))[:MAX_CARDS]
    conditions = list(dict.fromkeys(condition for item, condition in pairs if item in items))
    if not items:
        return []
    items_by_key = Item.objects.select_related("image").only("key", "input", "image").in_bulk(items)
    cells = load_cells(scope, items, conditions)
    matrix_url = reverse("experiment_matrix", args=[scope.experiment.slug])
    outliers = []
    for item in items:
        rows = [
            {
                "condition": row["condition"],
                "expected": row["expected"],
                "cell": cells.get((item, condition)),
                "answers": _format_scores(cells.get((item, condition))),
                "address": f"{matrix_url}{item}/{condition}/?measure={scope.measure.key}",
            }
            for row, (row_item, condition) in zip(table.rows, pairs, strict=True)
            if row_item == item
        ]
        without = replace(scope, without=(*scope.without, item))
        outliers.append({"item": items_by_key[item], "rows": rows, "exclude": f"?{without.parameters}#outliers"})
    return outliers
