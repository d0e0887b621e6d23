"""The tables of an analysis, computed by a worker and stored, because they need libraries that no page loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from evalsite.lib.text.hashing import content_hash
from grading_app.analysis.data import load_analysis_data
from grading_app.analysis.scope import Scope, ScopeForm
from grading_app.analysis.sections import section_tables
from grading_app.models import BlindReading
from grading_app.reports.cached_aggregates import Aggregate, Cached, Tell, get
from grading_app.reports.frame_cache import fingerprint
from grading_app.reports.result_table import ResultTable
from runs_app.annotations import flagged_items
from runs_app.models import Experiment


@dataclass(frozen=True, slots=True)
class AnalysisTables:
    """The tables of each section, by the section's name, as `ResultTable.content` writes them."""

    sections: dict[str, list[dict[str, Any]]]

    @property
    def tables(self) -> dict[str, list[ResultTable]]:
        return {name: [ResultTable.from_content(one) for one in tables] for name, tables in self.sections.items()}


@dataclass(frozen=True, slots=True)
class AnalysisQuery:
    """A scope with its blind reading, and the parameters of the address that it was read from."""

    scope: Scope
    parameters: str


def _dump(query: AnalysisQuery) -> Any:
    blind = query.scope.blind
    return [query.scope.experiment.pk, query.parameters, *([blind.pk] if blind else [])]


def _load(experiment: Experiment, content: Any) -> AnalysisQuery | None:
    blind = BlindReading.objects.get(pk=content[2]) if len(content) > 2 else None
    scope = ScopeForm(QueryDict(content[1]), experiment, blind).scope()
    return AnalysisQuery(scope, content[1]) if scope else None


def _fingerprint(query: AnalysisQuery) -> str:
    """Return a text that changes with the answers, the grades and the flagged items."""
    scope = query.scope
    return content_hash([fingerprint(scope.experiment, scope.wave), flagged_items(scope.experiment)])


def _compute(queries: Sequence[AnalysisQuery], tell: Tell) -> list[AnalysisTables]:
    found = []
    for query in queries:
        tell("reading scores")
        data = load_analysis_data(query.scope)
        tell("computing tables")
        sections = section_tables(data)
        found.append(AnalysisTables({name: [one.content() for one in tables] for name, tables in sections.items()}))
    return found


ANALYSIS: Aggregate[AnalysisQuery, AnalysisTables] = Aggregate(
    name="analysis",
    version=5,
    value_type=lambda: AnalysisTables,
    dump=_dump,
    load=_load,
    fingerprint=_fingerprint,
    is_large=lambda queries: True,
    compute=_compute,
    steps=("reading scores", "computing tables"),
    kept=40,
)


def get_analysis(scope: Scope) -> Cached[AnalysisTables]:
    """Return the stored tables of a scope, and ask a worker for them if they are missing or outdated."""
    return get(ANALYSIS, scope.experiment.pk, AnalysisQuery(scope, scope.parameters))
