"""A report as its author wants it: the generated document with sections left out and texts between them."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from typing import Any

from evalsite.lib.checksummed_zip import SUMS
from grading_app.models import ReportChoices, Snapshot
from grading_app.publish.report.build import build_document
from grading_app.publish.report.document import (
    Document,
    Paragraph,
    ReportSection,
    Span,
    TableBlock,
)
from grading_app.publish.report.markdown import read_markdown
from grading_app.results.table import ResultTable
from runs_app.models import Experiment

END = "end"
COST_FIGURES = "cost-"  # The prefix of their names.
PART = "report.json"
"""The part of a snapshot that holds the report as it was then."""


def compose(document: Document, choices: ReportChoices) -> Document:
    """Return the document with the author's choices. A text is a section without a title.

    A document with a section that could not be written says so before everything else.
    """
    sections: list[ReportSection] = []
    for section in document.sections:
        sections += _make_text_section(choices, section.name)
        if section.name not in choices.left_out:
            sections.append(section)
    composition = replace(document, sections=[*sections, *_make_text_section(choices, END)])
    return replace(composition, sections=[*_make_problem_section(composition.failed), *composition.sections])


def _make_problem_section(titles: list[str]) -> list[ReportSection]:
    if not titles:
        return []
    text = f"This report is incomplete. These sections could not be written: {', '.join(titles)}. "
    advice = "Do not publish it. The log of the site says why; write the report again after the fault is mended."
    return [ReportSection("incomplete", "", [Paragraph([Span(text, strong=True), Span(advice)], "note")])]


def leave_out_costs(document: Document) -> Document:
    """Return the document without the section on costs, the figures of costs, and the columns of money in tables.

    Every other amount, such as the budget, belongs to the section on costs.
    """
    sections = [
        replace(
            section,
            blocks=[
                replace(block, content=drop_money_columns(block.table).content())
                if isinstance(block, TableBlock)
                else block
                for block in section.blocks
                if not is_cost_figure(block)
            ],
        )
        for section in document.sections
        if section.name != "costs"
    ]
    return replace(document, sections=sections)


def is_cost_figure(figure: Any) -> bool:
    """Return whether a figure, or the block of a report with it, shows scores against costs."""
    return str(getattr(figure, "name", "")).startswith(COST_FIGURES)


def drop_money_columns(table: ResultTable) -> ResultTable:
    return replace(table, columns=[column for column in table.columns if column.kind != "money"])


def _make_text_section(choices: ReportChoices, name: str) -> list[ReportSection]:
    blocks = read_markdown(str(choices.texts.get(name, "")))
    return [ReportSection(f"text-{name}", "", blocks)] if blocks else []


def freeze_report(experiment: Experiment) -> dict[str, Any]:
    """Return the report of the present rows with the author's choices, as JSON for a snapshot."""
    return compose(build_document(experiment), ReportChoices.load(experiment)).dump()


def read_frozen(snapshot: Snapshot) -> Document | None:
    """Return the report that a snapshot froze; None for a snapshot without one, or whose file is gone."""
    try:
        with zipfile.ZipFile(snapshot.path) as archive:
            if SUMS not in archive.namelist() or PART not in archive.namelist():
                return None
            return Document.load(json.loads(archive.read(PART)))
    except (FileNotFoundError, zipfile.BadZipFile, ValueError):
        return None
