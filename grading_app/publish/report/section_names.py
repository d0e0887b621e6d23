"""The names and titles of a report's sections in their order, for pages that must not load what sections need. Pure."""

from __future__ import annotations

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
FOLDED = ("data", "models", "procedure", "references", "prompts", "settings", "reproduction")
"""The sections that a page shows folded, because the paragraphs to paste sum them up. Files show them open."""
