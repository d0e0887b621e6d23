"""Models: what was asked, which version answered, who served it, and when."""

from __future__ import annotations

from grading_app.publish.report.document import Block, make_paragraph, make_sentence, make_table_block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.words import count_noun, format_day, join_words
from grading_app.results.table import ResultColumn, ResultTable, Row
from runs_app.models import Condition

UNREPORTED = "not reported"


def write_blocks(source: ReportSource) -> list[Block | None]:
    models = sorted({condition.model.name for condition in source.generation_conditions})
    return [
        make_paragraph(
            make_sentence(
                f"Answers come from {count_noun(len(models), 'model')}: {join_words(models)}. ",
                source.get_url("experiment_progress"),
            ),
            "Served models and providers are as the replies of the provider name them.",
        ),
        _write_table(source, source.generation_conditions, "models", "Models that answered"),
        _write_table(source, source.judge_conditions, "judge_models", "Models that judged")
        if source.judge_conditions
        else None,
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
    by_model: dict[int, list[Condition]] = {}
    for condition in conditions:
        by_model.setdefault(condition.model_id, []).append(condition)
    rows: list[Row] = []
    for model_conditions in by_model.values():
        model = model_conditions[0].model
        entries = [entry for condition in model_conditions for entry in source.served_models.get(condition.pk, [])]
        rows.append(
            {
                "model": model.name,
                "model_id": model.model,
                "provider": model.endpoint.provider or UNREPORTED,
                "served_as": join_words(sorted({entry.model for entry in entries if entry.model})) or UNREPORTED,
                "served_by": join_words(sorted({entry.provider for entry in entries if entry.provider})) or UNREPORTED,
                "calls": sum(entry.calls for entry in entries),
                "first": format_day(min((entry.first for entry in entries if entry.first), default=None)),
                "last": format_day(max((entry.last for entry in entries if entry.last), default=None)),
            }
        )
    return make_table_block(ResultTable(name, title, columns, rows), rows=source.get_url("experiment_progress"))
