"""The building of a report: every section from rows, stored until a row changes. A worker or a command does it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.http import QueryDict

from evalsite.lib.ops.versions import get_version
from evalsite.lib.text.hashing import hash_content
from grading_app.models import Snapshot
from grading_app.publish.report.document import Block, Document, Paragraph, ReportSection, Span
from grading_app.publish.report.section_names import SECTION_NAMES
from grading_app.raters.agreement_cache import fingerprint_selection
from grading_app.raters.rating_selection import RatingSelectionForm
from grading_app.results.cached_aggregates import Aggregate, Cached, StepReporter, fingerprint_results, get_aggregate
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


def _compute(experiments: Sequence[Experiment], tell: StepReporter) -> list[StoredReport]:
    return [StoredReport(build_document(experiment, tell).dump()) for experiment in experiments]


REPORT: Aggregate[Experiment, StoredReport] = Aggregate(
    name="report",
    value_type=lambda: StoredReport,
    dump=lambda experiment: experiment.pk,
    load=lambda experiment, content: experiment,
    fingerprint=compute_fingerprint,
    is_large=lambda experiments: True,
    compute=_compute,
    steps=tuple(title.lower() for title in SECTION_NAMES.values()),
    max_rows=1,
)


def get_report(experiment: Experiment) -> Cached[StoredReport]:
    """Return the stored report, and ask a worker for it if it is missing or outdated."""
    return get_aggregate(REPORT, experiment.pk, experiment)
