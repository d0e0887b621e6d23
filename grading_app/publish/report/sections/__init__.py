"""The sections of a report, each as the functions that write its blocks. It needs numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from grading_app.publish.report.document import Block
from grading_app.publish.report.report_source import ReportSource
from grading_app.publish.report.sections import appendix, conduct, limitations, paper_texts, results, study_design

Write = Callable[[ReportSource], Block | Iterable[Block | None] | None]
WRITERS: Mapping[str, Sequence[Write]] = {
    "abstract": [paper_texts.write_abstract],
    "methods": [paper_texts.write_methods],
    "results_paragraph": [paper_texts.write_results_paragraph],
    "question": [
        study_design.write_description,
        study_design.write_design,
        study_design.write_measures,
        study_design.write_dimensions,
    ],
    "preregistration": [study_design.write_preregistration],
    "data": [
        study_design.write_items,
        study_design.write_facts,
        study_design.write_categories,
        study_design.write_exclusions,
        study_design.write_norms,
    ],
    "models": [conduct.write_models],
    "procedure": [conduct.write_calls, conduct.write_import, conduct.write_outcomes, conduct.write_errors],
    "results": [results.write_leaderboard, results.write_figures, results.write_measures],
    "agreement": [results.write_agreement],
    "costs": [conduct.write_costs],
    "limitations": [limitations.write_limitations],
    "references": [appendix.write_references],
    "prompts": [appendix.write_prompts, appendix.write_instructions, appendix.write_rubrics],
    "settings": [appendix.write_samplers, appendix.write_settings],
    "reproduction": [
        appendix.write_summary,
        appendix.write_hashes,
        appendix.write_launches,
        appendix.write_snapshots,
        appendix.write_software,
        appendix.write_commands,
    ],
}
"""The functions that write each section of `SECTION_NAMES`, in their order."""
