"""Question, design and preregistration of an experiment, and the data that it asks about."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Avg, Count

from datasets_app.models import Norm
from evalsite.lib.text.hashing import hash_content
from evalsite.lib.text.names import UnknownNameError
from grading_app.publish.report.document import (
    Block,
    Paragraph,
    Span,
    count_noun,
    format_day,
    join_words,
    make_paragraph,
    make_sentence,
    make_table_block,
)
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.sections.appendix import describe_stopping_rule
from grading_app.results.scores import Measure, list_measures, match_measure
from grading_app.results.table import ResultColumn, ResultTable
from runs_app.models import Preregistration
from runs_app.planning.spec_io import build_spec


def write_description(source: ReportSource) -> list[Block]:
    return [Paragraph([Span(text)]) for text in source.experiment.description.split("\n\n") if text.strip()]


def write_design(source: ReportSource) -> Block | None:
    experiment, conditions = source.experiment, source.generation_conditions
    axes = [
        count_noun(len({condition.model_id for condition in conditions}), "model"),
        count_noun(len({condition.prompt_id for condition in conditions}), "prompt"),
        count_noun(len({condition.sampler_id for condition in conditions}), "sampler"),
    ]
    if dimensions := len(source.frames.dimensions):
        axes.append(count_noun(dimensions, "dimension"))
    design = source.get_url("experiment_detail")
    waves = len({run.wave_id for run in source.runs})
    rule = describe_stopping_rule(source.experiment)
    return make_paragraph(
        make_sentence(
            f"The experiment {experiment.slug} crosses {count_noun(experiment.dataset.active_count, 'item')} with "
            f"{join_words(axes)}, in {count_noun(len(conditions), 'condition')}. ",
            design,
        ),
        make_sentence(f"{rule} " if rule else f"Each cell was asked {source.repetitions_text}. ", design),
        make_sentence(f"The design was run in {waves} waves. ", design) if waves > 1 else None,
        make_sentence(
            f"The runs have {count_noun(source.count('n_trials'), 'trial')} in all.", source.get_trials_url()
        ),
    )


def write_measures(source: ReportSource) -> Block | None:
    if not source.measures:
        return make_paragraph("No answer has a score yet.", tone="note")
    noun = "measure is" if len(source.measures) == 1 else "measures are"
    names = [
        measure.label
        if measure.low is None or measure.high is None
        else f"{measure.label} ({measure.low:g} to {measure.high:g})"
        for measure in source.measures
    ]
    return make_paragraph(
        make_sentence(f"The {noun} {join_words(names)}.", source.get_url("experiment_results")),
    )


def write_dimensions(source: ReportSource) -> Block | None:
    dimensions = list(source.experiment.dimensions.order_by("pk"))
    if not dimensions:
        return None
    rows = [
        {
            "dimension": str(dimension),
            "title": dimension.title or dimension.name,
            "scale": f"{dimension.scale_min} to {dimension.scale_max}",
            "labels": ", ".join(f"{point}: {label}" for point, label in dimension.labels.items()),
        }
        for dimension in dimensions
    ]
    columns = [
        ResultColumn("dimension", "Dimension"),
        ResultColumn("title", "Title"),
        ResultColumn("scale", "Scale"),
        ResultColumn("labels", "Labels"),
    ]
    table = ResultTable("dimensions", "Dimensions", columns, rows)
    return make_table_block(table, rows=source.get_url("experiment_detail"), is_detail=True)


def write_preregistration(source: ReportSource) -> Iterator[Block | None]:
    """Yield the frozen plan, what differs from it, and a table of planned and exploratory measures."""
    plan = Preregistration.objects.filter(experiment=source.experiment).first()
    if plan is None:
        yield make_paragraph("No plan was frozen before the first call, so every measure is exploratory.")
        return
    page = source.get_url("experiment_preregistration")
    differences = []
    if hash_content(build_spec(source.experiment)) != plan.content["design"]:
        differences.append("The design differs from the design at that time.")
    eligible = set(plan.content["eligible_models"])
    models = {name for row in source.generation_conditions for name in [row.model.name] if name not in eligible}
    if models:
        differences.append(f"Not among the eligible models, and therefore exploratory: {join_words(sorted(models))}.")
    missing = [name for name in plan.measures if _find_measure(source.measures, name) is None]
    if missing:
        differences.append(f"Planned measures without scores: {join_words(missing)}.")
    yield make_paragraph(
        make_sentence(
            f"The plan was frozen {plan.frozen_at:%Y-%m-%d %H:%M} UTC, before the first call (SHA-256 {plan.digest}). ",
            page,
        ),
        make_sentence(" ".join(differences or ["Design, models and measures are those of the plan."]), page),
    )
    parts = [{"part": heading, "text": text or "None."} for heading, text in plan.parts]
    table = ResultTable(
        "preregistration", "The plan", [ResultColumn("part", "Part"), ResultColumn("text", "Text")], parts
    )
    yield make_table_block(table, rows=page)
    known = list_measures(source.experiment)
    planned = {measure.key: at for at, name in enumerate(plan.measures) if (measure := _find_measure(known, name))}
    measures = [
        {
            "measure": measure.label,
            "role": ("primary" if planned[measure.key] == 0 else "secondary")
            if measure.key in planned
            else "exploratory",
        }
        for measure in sorted(source.measures, key=lambda one: planned.get(one.key, len(planned)))
    ]
    if measures:
        columns = [ResultColumn("measure", "Measure"), ResultColumn("role", "Role")]
        table = ResultTable("planned_measures", "Planned and exploratory measures", columns, measures)
        yield make_table_block(table, rows=source.get_url("experiment_results"))


def _find_measure(measures: list[Measure], name: str) -> Measure | None:
    try:
        return match_measure(measures, name)
    except UnknownNameError:
        return None


NOT_STATED = "not stated"
MAX_CATEGORIES = 40


def write_items(source: ReportSource) -> Block | None:
    dataset = source.experiment.dataset
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


def write_facts(source: ReportSource) -> Block:
    dataset = source.experiment.dataset
    words = {True: "yes", False: "no"}
    recipe = {
        name.replace("_", " "): words[value] if isinstance(value, bool) else value
        for name, value in dataset.recipe.items()
        if isinstance(value, str | int)
    }
    facts = {
        "Name": str(dataset),
        "Title": dataset.title,
        "Source": dataset.source or NOT_STATED,
        "Licence": dataset.licence or NOT_STATED,
        "Imported file": dataset.source_name,
        "SHA-256 of the file": dataset.source_sha256,
        "SHA-256 of the active items": dataset.content_hash or "none before the approval",
        "Recipe": ", ".join(f"{name} {value}" for name, value in recipe.items()),
        "Approved": format_day(dataset.approved_at),
    }
    rows = [{"fact": name, "value": value} for name, value in facts.items() if value]
    columns = [ResultColumn("fact", "Fact"), ResultColumn("value", "Value")]
    return make_table_block(ResultTable("dataset", "Dataset", columns, rows), rows=dataset.get_absolute_url())


def write_categories(source: ReportSource) -> Block | None:
    dataset = source.experiment.dataset
    counts = dataset.items.active().order_by("category").values("category").annotate(n=Count("pk"))
    rows = [{"category": row["category"] or "none", "items": row["n"]} for row in counts[:MAX_CATEGORIES]]
    if len(rows) < 2:
        return None
    columns = [ResultColumn("category", "Category"), ResultColumn("items", "Items", "count")]
    return make_table_block(
        ResultTable("item_categories", "Items by category", columns, rows), rows=dataset.get_absolute_url()
    )


def write_exclusions(source: ReportSource) -> Block | None:
    dataset = source.experiment.dataset
    counts = dataset.items.filter(excluded=True).order_by("note").values("note").annotate(n=Count("pk"))
    rows = [{"reason": row["note"] or "no reason stated", "items": row["n"]} for row in counts]
    if not rows:
        return None
    columns = [ResultColumn("reason", "Reason"), ResultColumn("items", "Items", "count")]
    return make_table_block(
        ResultTable("exclusions", "Excluded items by reason", columns, rows), rows=dataset.get_absolute_url()
    )


def write_norms(source: ReportSource) -> Block | None:
    dataset = source.experiment.dataset
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
