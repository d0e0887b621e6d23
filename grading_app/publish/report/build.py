"""The building of a report: every section from rows, stored until a row changes, and its composition by the author.

A worker or a command builds it. The author leaves out sections, and adds texts between them.
"""

from __future__ import annotations

import json
import logging
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.http import QueryDict

from evalsite.lib.checksummed_zip import SUMS
from evalsite.lib.ops.versions import get_version
from evalsite.lib.text.hashing import hash_content
from grading_app.models import ReportChoices, Snapshot
from grading_app.publish.report.document import (
    SECTION_NAMES,
    Block,
    Document,
    Paragraph,
    ReportSection,
    Span,
    TableBlock,
    read_markdown,
)
from grading_app.results.cached_aggregates import Aggregate, Cached, StepReporter, fingerprint_results, get_aggregate
from grading_app.results.raters.agreement_cache import fingerprint_selection
from grading_app.results.raters.rating_selection import RatingSelectionForm
from grading_app.results.table import ResultTable
from runs_app.experiment_options import OPTIONS
from runs_app.models import Experiment

if TYPE_CHECKING:
    from grading_app.publish.report.report_source import ReportSource

TEXTS_AND_SETTINGS = (
    "title", "description", "status", "adaptive", "imported_from",
    *(option.name for option in OPTIONS if option.is_reported),
)  # fmt: skip
"""The fields of an experiment that a report states. Some can change while the experiment runs."""
logger = logging.getLogger("evalsite.report")
END = "end"
COST_FIGURES = "cost-"  # The prefix of their names.
PART = "report.json"
"""The part of a snapshot that holds the report as it was then."""


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A document as a row of the database holds it."""

    content: dict[str, Any]

    @property
    def document(self) -> Document:
        return Document.load(self.content)


def compute_fingerprint(experiment: Experiment) -> str:
    """Return a text that changes whenever a row of the report may have changed. It is read from counters and keys."""
    runs = experiment.runs.order_by("pk").values_list("pk", "n_done", "n_attempts", "n_unpriced", "spent_usd")
    conditions = experiment.conditions.order_by("pk").values_list("pk", "model__name", "model__model")
    selection = RatingSelectionForm(QueryDict(), experiment).get_selection()
    return hash_content(
        [
            fingerprint_results(experiment, None),
            [str(getattr(experiment, name)) for name in TEXTS_AND_SETTINGS],
            [str(row) for row in conditions],
            [[*map(str, row)] for row in runs],
            fingerprint_selection(selection) if selection else "",
            list(experiment.manifests.order_by("pk").values_list("pk", flat=True)),
            list(Snapshot.objects.filter(experiment=experiment).order_by("pk").values_list("digest", flat=True)),
            [experiment.dataset.source, experiment.dataset.licence, experiment.dataset.title],
            get_version(),
        ]
    )


def build_document(experiment: Experiment, tell: StepReporter = lambda _: None) -> Document:
    """Read the rows and return the document with every section."""
    from grading_app.publish.report.report_source import ReportSource  # It needs numpy and matplotlib.

    state, source = compute_fingerprint(experiment), ReportSource(experiment)
    for name, title in SECTION_NAMES.items():
        tell(title.lower())
        source.sections.append(_write_section(name, title, source))
    return Document(
        experiment.slug,
        experiment.title or experiment.slug,
        datetime.now(UTC).isoformat(timespec="seconds"),
        state,
        f"Evalsite {get_version()}",
        source.sections,
    )


def _write_section(name: str, title: str, source: ReportSource) -> ReportSection:
    """Return a section. A fault of ours in one section does not take the others away; the document names it."""
    from grading_app.publish.report.sections import WRITERS  # It needs numpy.

    try:
        with transaction.atomic():
            blocks: list[Block] = []
            for write in WRITERS[name]:
                found = write(source)
                several = found if isinstance(found, Iterable) else [found]
                blocks += [block for block in several if block is not None]
            return ReportSection(name, title, blocks)
    except Exception:
        logger.exception("experiment %s: the section %s of the report was not written", source.experiment, name)
        fault = Paragraph([Span("This section could not be written. The log of the worker says why.")], "note")
        return ReportSection(name, title, [fault], failed=True)


REPORT: Aggregate[Experiment, StoredReport] = Aggregate(
    name="report",
    value_type=lambda: StoredReport,
    dump=lambda experiment: experiment.pk,
    load=lambda experiment, content: experiment,
    fingerprint=compute_fingerprint,
    is_large=lambda experiments: True,
    compute=lambda experiments, tell: [StoredReport(build_document(row, tell).dump()) for row in experiments],
    steps=tuple(title.lower() for title in SECTION_NAMES.values()),
    max_rows=1,
)


def get_report(experiment: Experiment) -> Cached[StoredReport]:
    """Return the stored report, and ask a worker for it if it is missing or outdated."""
    return get_aggregate(REPORT, experiment.pk, experiment)


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
