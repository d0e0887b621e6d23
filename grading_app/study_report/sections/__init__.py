"""The sections of a report. A new one needs a module with `blocks(source)`, a line here and one in `section_names`."""

from __future__ import annotations

from collections.abc import Callable

from grading_app.study_report.document import Block
from grading_app.study_report.sections import (
    agreement,
    costs,
    data,
    limitations,
    methods,
    model_list,
    procedure,
    prompt_texts,
    question,
    references,
    reproduction,
    results,
    run_settings,
)
from grading_app.study_report.source import ReportSource

Write = Callable[[ReportSource], list[Block | None]]
WRITERS: dict[str, Write] = {
    "question": question.blocks,
    "data": data.blocks,
    "models": model_list.blocks,
    "prompts": prompt_texts.blocks,
    "settings": run_settings.blocks,
    "procedure": procedure.blocks,
    "results": results.blocks,
    "agreement": agreement.blocks,
    "costs": costs.blocks,
    "limitations": limitations.blocks,
    "methods": methods.blocks,
    "references": references.blocks,
    "reproduction": reproduction.blocks,
}
"""The function of each section of SECTION_NAMES. None among the blocks: the experiment does not have it."""
