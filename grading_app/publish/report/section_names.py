"""The names and titles of a report's sections in their order, for pages that must not load what sections need. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from grading_app.publish.report.document import Block

SECTION_NAMES = {
    "abstract": "Abstract",
    "methods": "Methods paragraph",
    "results_paragraph": "Results paragraph",
    "question": "Question and design",
    "preregistration": "Preregistration",
    "data": "Data",
    "models": "Models",
    "procedure": "Procedure",
    "results": "Results",
    "agreement": "Agreement",
    "costs": "Costs",
    "limitations": "Limitations that the data show",
    "references": "References",
    "prompts": "Appendix: prompts",
    "settings": "Appendix: settings",
    "reproduction": "Appendix: reproduction",
}
PASTED = ("abstract", "methods", "results_paragraph")
"""The sections that are one text to paste into a paper."""
FOLDED = ("references", "prompts", "settings", "reproduction")
"""The sections that a page shows folded. Files show them open."""
Write = Callable[[Any], "Block | Iterable[Block | None] | None"]
"""A function that takes a `ReportSource` and returns a block, several, or None."""
W = TypeVar("W", bound=Write)
WRITERS: dict[str, list[Write]] = {name: [] for name in SECTION_NAMES}
"""The functions that write each section, in their order. The modules of `sections` fill it."""


def writes(section: str) -> Callable[[W], W]:
    """Return a decorator that adds a function to the writers of a section."""

    def register(write: W) -> W:
        WRITERS[section].append(write)
        return write

    return register
