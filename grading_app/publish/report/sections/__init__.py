"""The sections of a report. A new one needs a module with `write_blocks(source)`, a line here and a title."""

from __future__ import annotations

from collections.abc import Callable

from grading_app.publish.report.document import Block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.sections import (
    agreement,
    conclusions,
    cost_section,
    data_section,
    limitations,
    methods,
    model_list,
    preregistration,
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
    "abstract": conclusions.write_abstract,
    "question": question_section.write_blocks,
    "preregistration": preregistration.write_blocks,
    "data": data_section.write_blocks,
    "models": model_list.write_blocks,
    "procedure": procedure.write_blocks,
    "results": results.write_blocks,
    "agreement": agreement.write_blocks,
    "costs": cost_section.write_blocks,
    "limitations": limitations.write_blocks,
    "methods": methods.write_blocks,
    "results_paragraph": conclusions.write_results_paragraph,
    "references": references.write_blocks,
    "prompts": prompt_texts.write_blocks,
    "settings": run_settings.write_blocks,
    "reproduction": reproduction.write_blocks,
}
"""The function of each section of SECTION_NAMES. None among the blocks: the experiment does not have it."""
