"""Data: where the items come from, their licence and hash, how many there are, and which were excluded and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Avg, Count

from datasets_app.models import Dataset, Norm
from grading_app.publish.report.document import Block, make_paragraph, make_sentence, make_table_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import count_noun, format_day
from grading_app.results.table import ResultColumn, ResultTable

NOT_STATED = "not stated"
MAX_CATEGORIES = 40


def write_blocks(source: ReportSource) -> list[Block | None]:
    dataset = source.experiment.dataset
    return [
        _write_items(dataset),
        _write_facts(dataset),
        _write_categories(dataset),
        _write_exclusions(dataset),
        _write_norms(source, dataset),
    ]


def _write_items(dataset: Dataset) -> Block | None:
    n_images = dataset.items.active().filter(image__isnull=False).count()
    n_excluded = dataset.item_count - dataset.active_count
    page = dataset.get_absolute_url()
    image_note = f", {'all' if n_images == dataset.active_count else n_images} with an image" if n_images else ""
    return make_paragraph(
        make_sentence(
            f"The dataset {dataset} has {count_noun(dataset.active_count, 'active item')}{image_note}. ", page
        ),
        make_sentence(
            f"{count_noun(n_excluded, 'item')} {'was' if n_excluded == 1 else 'were'} excluded before the approval."
            if n_excluded
            else "No item was excluded.",
            page,
        ),
    )


def _write_facts(dataset: Dataset) -> Block:
    facts = {
        "Name": str(dataset),
        "Title": dataset.title,
        "Source": dataset.source or NOT_STATED,
        "Licence": dataset.licence or NOT_STATED,
        "Imported file": dataset.source_name,
        "SHA-256 of the file": dataset.source_sha256,
        "SHA-256 of the active items": dataset.content_hash or "none before the approval",
        "Recipe": _format_recipe(dataset.recipe),
        "Approved": format_day(dataset.approved_at),
    }
    rows = [{"fact": name, "value": value} for name, value in facts.items() if value]
    columns = [ResultColumn("fact", "Fact"), ResultColumn("value", "Value")]
    return make_table_block(ResultTable("dataset", "Dataset", columns, rows), rows=dataset.get_absolute_url())


def _format_recipe(recipe: Mapping[str, Any]) -> str:
    """Return the facts of sampling or generation as text: "seed 42, strategy parametric, stopping rules yes"."""
    words = {True: "yes", False: "no"}
    facts = {name.replace("_", " "): value for name, value in recipe.items() if isinstance(value, str | int)}
    return ", ".join(f"{name} {words[value] if isinstance(value, bool) else value}" for name, value in facts.items())


def _write_categories(dataset: Dataset) -> Block | None:
    counts = dataset.items.active().order_by("category").values("category").annotate(n=Count("pk"))
    rows = [{"category": row["category"] or "none", "items": row["n"]} for row in counts[:MAX_CATEGORIES]]
    if len(rows) < 2:
        return None
    columns = [ResultColumn("category", "Category"), ResultColumn("items", "Items", "count")]
    return make_table_block(
        ResultTable("item_categories", "Items by category", columns, rows), rows=dataset.get_absolute_url()
    )


def _write_exclusions(dataset: Dataset) -> Block | None:
    counts = dataset.items.filter(excluded=True).order_by("note").values("note").annotate(n=Count("pk"))
    rows = [{"reason": row["note"] or "no reason stated", "items": row["n"]} for row in counts]
    if not rows:
        return None
    columns = [ResultColumn("reason", "Reason"), ResultColumn("items", "Items", "count")]
    return make_table_block(
        ResultTable("exclusions", "Excluded items by reason", columns, rows), rows=dataset.get_absolute_url()
    )


def _write_norms(source: ReportSource, dataset: Dataset) -> Block | None:
    norms = Norm.objects.filter(item__dataset=dataset, item__excluded=False).order_by("dimension").values("dimension")
    summaries = norms.annotate(items=Count("pk"), mean=Avg("mean"), sd=Avg("sd"), n=Avg("n"))
    rows = [dict(row) for row in summaries]
    if not rows:
        return None
    columns = [
        ResultColumn("dimension", "Dimension"),
        ResultColumn("items", "Items with a norm", "count"),
        ResultColumn("mean", "Mean of means", "number"),
        ResultColumn("sd", "Mean SD", "number"),
        ResultColumn("n", "Mean number of raters", "number", 1),
    ]
    return make_table_block(ResultTable("norms", "Human norms", columns, rows), rows=dataset.get_absolute_url())
