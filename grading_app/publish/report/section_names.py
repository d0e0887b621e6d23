"""The names and titles of a report's sections in their order, for pages that must not load what sections need. Pure."""

SECTION_NAMES = {
    "abstract": "Abstract",
    "question": "Question and design",
    "preregistration": "Preregistration",
    "data": "Data",
    "models": "Models",
    "procedure": "Procedure",
    "results": "Results",
    "agreement": "Agreement",
    "costs": "Costs",
    "limitations": "Limitations that the data show",
    "methods": "Methods paragraph",
    "results_paragraph": "Results paragraph",
    "references": "References",
    "prompts": "Appendix: prompts",
    "settings": "Appendix: settings",
    "reproduction": "Appendix: reproduction",
}
PASTED = ("abstract", "methods", "results_paragraph")
"""The sections that are one text to paste into a paper."""
