"""The sections of a report. Each module registers the functions that write the blocks of its sections."""

from grading_app.publish.report.sections import (
    appendix,
    conduct,
    limitations,
    paper_texts,
    references,
    results,
    study_design,
)

__all__ = ["appendix", "conduct", "limitations", "paper_texts", "references", "results", "study_design"]
