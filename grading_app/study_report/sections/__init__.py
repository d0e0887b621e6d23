"""The sections of a report. A new one needs a module with `blocks(source)`, a line here and one in `section_names`."""

from __future__ import annotations

from collections.abc import Callable

from grading_app.study_report.document import Block
from grading_app.study_report.report_source import ReportSource
from grading_app.study_report.sections import (
    agreement,
    cost_section,
    data_section,
    limitations,
    methods,
    model_list,
    procedure,
    prompt_texts,
    question_section,
    references,
    reproduction,
    results,
    run_settings,
)

Write = Callable[[ReportSource], list[Block | None]]
WRITERS: dict[str, Write] = {
    "question": question_section.blocks,
    "data": data_section.blocks,
    "models": model_list.blocks,
    "prompts": prompt_texts.blocks,
    "settings": run_settings.blocks,
    "procedure": procedure.blocks,
    "results": results.blocks,
    "agreement": agreement.blocks,
    "costs": cost_section.blocks,
    "limitations": limitations.blocks,
    "methods": methods.blocks,
    "references": references.blocks,
    "reproduction": reproduction.blocks,
}
"""The function of each section of SECTION_NAMES. None among the blocks: the experiment does not have it."""
