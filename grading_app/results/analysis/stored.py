"""The tables of an analysis, computed by a worker and stored, because they need libraries that pages do not load.

Each section is an aggregate. If a worker cannot finish an analysis within the time of one task, the finished sections
are kept, and the next task computes the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import QueryDict

from evalsite.lib.text.hashing import hash_content
from grading_app.models import BlindReading
from grading_app.results.analysis.data import AnalysisData, load_analysis_data
from grading_app.results.analysis.sections import SECTIONS, AnalysisSection
from grading_app.results.cached_aggregates import Aggregate, Cached, StepReporter, fingerprint_results, get_aggregates
from grading_app.results.scope import Scope, ScopeForm
from grading_app.results.table import ResultTable
from runs_app.models import Experiment
from runs_app.models.annotations import list_flagged_items

SECTIONS_BY_NAME = {section.name: section for section in SECTIONS}


@dataclass(frozen=True, slots=True)
class SectionTables:
    """The tables of one section, as `ResultTable.content` writes them."""

    content: list[dict[str, Any]]

    @property
    def tables(self) -> list[ResultTable]:
        return [ResultTable.from_content(table) for table in self.content]


@dataclass(frozen=True, slots=True)
class AnalysisQuery:
    """A section of a scope, with the query string of the scope.

    state: the fingerprint if the caller has it, because all sections of a page share it; else "".
    """

    scope: Scope
    parameters: str
    section: str
    state: str = ""


def _dump(query: AnalysisQuery) -> Any:
    blind = query.scope.blind
    return [query.scope.experiment.pk, query.parameters, query.section, *([blind.pk] if blind else [])]


def _load(experiment: Experiment, content: Any) -> AnalysisQuery | None:
    if len(content) < 3 or content[2] not in SECTIONS_BY_NAME:
        return None
    blind = BlindReading.objects.get(pk=content[3]) if len(content) > 3 else None
    scope = ScopeForm(QueryDict(content[1]), experiment, blind).get_scope()
    return AnalysisQuery(scope, content[1], content[2]) if scope else None


def _fingerprint(query: AnalysisQuery) -> str:
    return query.state or _read_state(query.scope)


def _read_state(scope: Scope) -> str:
    """Return a text that changes whenever answers, grades or flagged items change."""
    return hash_content([fingerprint_results(scope.experiment, scope.wave), list_flagged_items(scope.experiment)])


_last: tuple[str, AnalysisData] | None = None
"""The data of the last section, because a worker computes the sections of a scope one after another."""


def _compute(queries: Sequence[AnalysisQuery], report_step: StepReporter) -> list[SectionTables]:
    global _last
    section_tables = []
    for query in queries:
        report_step("reading scores")
        blind = query.scope.blind
        key = hash_content([query.parameters, blind.pk if blind else None, _fingerprint(query)])
        if _last is None or _last[0] != key:
            _last = None  # Before the next data are loaded, so that both are never in memory.
            _last = key, load_analysis_data(query.scope)
        report_step("computing tables")
        tables = SECTIONS_BY_NAME[query.section].build(_last[1])
        section_tables.append(SectionTables([table.content() for table in tables]))
    return section_tables


ANALYSIS: Aggregate[AnalysisQuery, SectionTables] = Aggregate(
    name="analysis",
    version=10,
    value_type=lambda: SectionTables,
    dump=_dump,
    load=_load,
    fingerprint=_fingerprint,
    is_large=lambda queries: True,
    compute=_compute,
    steps=("reading scores", "computing tables"),
    max_rows=40 * len(SECTIONS),
)


@dataclass(frozen=True)
class Analysis:
    """The stored sections of a scope, in the order of the page. A section has no value before its first result."""

    sections: tuple[tuple[AnalysisSection, Cached[SectionTables]], ...]

    @property
    def tables(self) -> dict[str, list[ResultTable]]:
        """The tables of the sections that have a result, by the section's name."""
        return {section.name: cached.value.tables for section, cached in self.sections if cached.value}

    @property
    def is_complete(self) -> bool:
        return all(cached.value for _, cached in self.sections)

    @property
    def is_fresh(self) -> bool:
        return all(cached.is_fresh and cached.value for _, cached in self.sections)

    @property
    def is_under_way(self) -> bool:
        return any(cached.is_under_way for _, cached in self.sections)

    @property
    def n_sections(self) -> int:
        return len(self.sections)

    @property
    def n_fresh(self) -> int:
        """The number of sections that include all current answers."""
        return sum(bool(cached.is_fresh and cached.value) for _, cached in self.sections)

    @property
    def next_title(self) -> str:
        """The title of the section that a worker is computing or will compute next; empty if there is none."""
        return next((section.title for section, cached in self.sections if cached.is_under_way), "")

    @property
    def as_of(self) -> datetime | None:
        """The time at which the rows behind the oldest section were read."""
        return min((cached.as_of for _, cached in self.sections if cached.as_of), default=None)

    @property
    def requested_at(self) -> datetime | None:
        times = [cached.row.requested_at for _, cached in self.sections if cached.row and cached.is_under_way]
        return min((time for time in times if time), default=None)

    @property
    def duration_s(self) -> float:
        return sum(cached.row.duration_s for _, cached in self.sections if cached.row)

    @property
    def problems(self) -> list[tuple[str, str]]:
        """The title of each section whose last calculation failed, with the reason."""
        return [
            (section.title, cached.row.problem)
            for section, cached in self.sections
            if cached.row and cached.row.problem
        ]


def get_analysis(scope: Scope) -> Analysis:
    """Return the stored sections of a scope. Enqueue the computation of missing and outdated sections."""
    state = _read_state(scope)
    queries = [AnalysisQuery(scope, scope.parameters, section.name, state) for section in SECTIONS]
    return Analysis(tuple(zip(SECTIONS, get_aggregates(ANALYSIS, scope.experiment.pk, queries), strict=True)))
