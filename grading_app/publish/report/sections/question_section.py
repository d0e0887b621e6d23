"""Question and design: the author's description, the crossed design, and the measures."""

from __future__ import annotations

from grading_app.publish.report.document import Block, Paragraph, Span, make_paragraph, make_sentence, make_table_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.sections.run_settings import describe_stopping_rule
from grading_app.publish.report.words import count_noun, join_words
from grading_app.results.table import ResultColumn, ResultTable


def write_blocks(source: ReportSource) -> list[Block | None]:
    paragraphs = [Paragraph([Span(text)]) for text in source.experiment.description.split("\n\n") if text.strip()]
    return [*paragraphs, _write_design(source), _write_measures(source), _write_dimensions(source)]


def _write_design(source: ReportSource) -> Block | None:
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


def _write_measures(source: ReportSource) -> Block | None:
    if not source.measures:
        return make_paragraph("No answer has a score yet.", tone="note")
    noun = "measure is" if len(source.measures) == 1 else "measures are"
    names = [f"{measure.label}{_describe_scale(measure.low, measure.high)}" for measure in source.measures]
    return make_paragraph(
        make_sentence(f"The {noun} {join_words(names)}.", source.get_url("experiment_results")),
    )


def _describe_scale(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:g} to {high:g})"


def _write_dimensions(source: ReportSource) -> Block | None:
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
    return make_table_block(
        ResultTable("dimensions", "Dimensions", columns, rows), rows=source.get_url("experiment_detail")
    )
