"""Question and design: the author's description, the crossed design, and the measures."""

from __future__ import annotations

from grading_app.reports.result_table import ResultColumn, ResultTable
from grading_app.study_report.document import Block, Paragraph, Span, paragraph, sentence, table_block
from grading_app.study_report.report_source import ReportSource
from grading_app.study_report.sections.run_settings import describe_stopping_rule
from grading_app.study_report.words import count_noun, format_times, join_words


def write_blocks(source: ReportSource) -> list[Block | None]:
    described = [Paragraph([Span(text)]) for text in source.experiment.description.split("\n\n") if text.strip()]
    return [*described, _write_design(source), _write_measures(source), _write_dimensions(source)]


def _write_design(source: ReportSource) -> Block | None:
    experiment, conditions = source.experiment, source.generating
    axes = [
        count_noun(len({one.model_id for one in conditions}), "model"),
        count_noun(len({one.prompt_id for one in conditions}), "prompt"),
        count_noun(len({one.sampler_id for one in conditions}), "sampler"),
    ]
    if dimensions := len(source.frames.dimensions):
        axes.append(count_noun(dimensions, "dimension"))
    design = source.page("experiment_detail")
    waves = len({run.wave_id for run in source.runs})
    return paragraph(
        sentence(
            f"The experiment {experiment.slug} crosses {count_noun(experiment.dataset.active_count, 'item')} with "
            f"{join_words(axes)}, in {count_noun(len(conditions), 'condition')}. ",
            design,
        ),
        sentence(_describe_repetitions(source), design),
        sentence(f"The design was run in {waves} waves. ", design) if waves > 1 else None,
        sentence(f"The runs have {count_noun(source.count('n_trials'), 'trial')} in all.", source.trials()),
    )


def _describe_repetitions(source: ReportSource) -> str:
    rule = describe_stopping_rule(source.experiment)
    return f"{rule} " if rule else f"Each cell was asked {format_times(source.experiment.samples)}. "


def _write_measures(source: ReportSource) -> Block | None:
    if not source.measures:
        return paragraph("No answer has a score yet.", tone="note")
    noun = "measure is" if len(source.measures) == 1 else "measures are"
    names = [f"{one.label}{_describe_scale(one.low, one.high)}" for one in source.measures]
    return paragraph(
        sentence(f"The {noun} {join_words(names)}.", source.page("experiment_results")),
    )


def _describe_scale(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:g} to {high:g})"


def _write_dimensions(source: ReportSource) -> Block | None:
    found = list(source.experiment.dimensions.order_by("pk"))
    if not found:
        return None
    rows = [
        {
            "dimension": str(one),
            "title": one.title or one.name,
            "scale": f"{one.scale_min} to {one.scale_max}",
            "labels": ", ".join(f"{point}: {label}" for point, label in one.labels.items()),
        }
        for one in found
    ]
    columns = [
        ResultColumn("dimension", "Dimension"),
        ResultColumn("title", "Title"),
        ResultColumn("scale", "Scale"),
        ResultColumn("labels", "Labels"),
    ]
    return table_block(ResultTable("dimensions", "Dimensions", columns, rows), rows=source.page("experiment_detail"))
