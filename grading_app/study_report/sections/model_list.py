"""Models: what was asked, which version answered, who served it, and when."""

from __future__ import annotations

from grading_app.reports.result_table import ResultColumn, ResultTable, Row
from grading_app.study_report.document import Block, paragraph, sentence, table_block
from grading_app.study_report.report_source import ReportSource
from grading_app.study_report.words import count_noun, format_day, join_words
from runs_app.models import Condition

UNREPORTED = "not reported"


def write_blocks(source: ReportSource) -> list[Block | None]:
    models = sorted({one.model.name for one in source.generating})
    return [
        paragraph(
            sentence(
                f"Answers come from {count_noun(len(models), 'model')}: {join_words(models)}. ",
                source.page("experiment_progress"),
            ),
            "Served models and providers are as the replies of the provider name them.",
        ),
        _write_table(source, source.generating, "models", "Models that answered"),
        _write_table(source, source.judging, "judge_models", "Models that judged") if source.judging else None,
    ]


def _write_table(source: ReportSource, conditions: list[Condition], name: str, title: str) -> Block:
    columns = [
        ResultColumn("model", "Model"),
        ResultColumn("model_id", "Model id"),
        ResultColumn("provider", "Provider"),
        ResultColumn("served_as", "Served model"),
        ResultColumn("served_by", "Served by"),
        ResultColumn("calls", "Calls", "count"),
        ResultColumn("first", "First call"),
        ResultColumn("last", "Last call"),
    ]
    rows: dict[int, list[Condition]] = {}
    for one in conditions:
        rows.setdefault(one.model_id, []).append(one)
    made = [_make_row(source, of_model) for of_model in rows.values()]
    return table_block(ResultTable(name, title, columns, made), rows=source.page("experiment_progress"))


def _make_row(source: ReportSource, conditions: list[Condition]) -> Row:
    model = conditions[0].model
    served = [one for condition in conditions for one in source.served.get(condition.pk, [])]
    firsts, lasts = [one.first for one in served if one.first], [one.last for one in served if one.last]
    return {
        "model": model.name,
        "model_id": model.model,
        "provider": model.endpoint.provider,
        "served_as": join_words(sorted({one.model for one in served if one.model})) or UNREPORTED,
        "served_by": join_words(sorted({one.provider for one in served if one.provider})) or UNREPORTED,
        "calls": sum(one.calls for one in served),
        "first": format_day(min(firsts, default=None)),
        "last": format_day(max(lasts, default=None)),
    }
