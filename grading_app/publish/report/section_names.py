"""The names and titles of a report's sections in their order, for pages that must not load what sections need. Pure."""

SECTION_NAMES = {
    "question": "Question and design",
    "data": "Data",
    "models": "Models",
    "prompts": "Prompts",
    "settings": "Settings",
    "procedure": "Procedure",
    "results": "Results",
    "agreement": "Agreement",
    "costs": "Costs",
    "limitations": "Limitations that the data show",
    "methods": "Methods paragraph",
    "references": "References",
    "reproduction": "Reproduction",
}
