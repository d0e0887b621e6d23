"""The set of an experiment's figures: their registry, the data that they are made from, and a rating study's numbers.

To add a figure, add a module that makes it from data, and one line to `FIGURES`. `rating_summary` gives the items,
samples and correlations of each rated dimension as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, TypeVar

from django.db.models import Sum
from django.http import Http404, QueryDict
from django.utils.http import urlencode

from evalsite.lib.text.names import UnknownNameError
from grading_app.models import BlindReading
from grading_app.results.analysis.stored import get_analysis
from grading_app.results.cached_aggregates import fingerprint_results, get_aggregate
from grading_app.results.figure import Figure
from grading_app.results.figures import (
    RESULTS_FIGURES,
    analysis,
    calibration,
    cost,
    dimensions,
    planes,
    reliability,
)
from grading_app.results.figures.dimensions import RatingData, Series, load_rating_data, match_items
from grading_app.results.frames import Frames, get_frames
from grading_app.results.leaderboard import BoardQuery, Leaderboard
from grading_app.results.parametric import board_tables_and_figure, explorer_views
from grading_app.results.parametric.explorer_query import ExplorerState, load_explorer
from grading_app.results.parametric.model_board import load_board
from grading_app.results.parametric.surface_figures import PREFIX
from grading_app.results.raters import agreement_figures, length_bias
from grading_app.results.raters.agreement_cache import AGREEMENT, AgreementQuery, assign_roles
from grading_app.results.raters.length_bias import LENGTHS, ScoresByLength
from grading_app.results.raters.rating_selection import RatingSelectionForm
from grading_app.results.raters.verdict_stats import get_aggregates_by_condition
from grading_app.results.scope import MISSING_WRONG, Scope, ScopeForm
from grading_app.results.scores import Measure, list_measures, match_measure
from grading_app.results.stored_results import StoredResults, get_item_scores, get_results
from grading_app.results.table import ResultTable
from grading_app.statistics.correlation import pearson
from grading_app.statistics.item_scores import Floats, ItemScores
from runs_app.models import Experiment, Wave

T = TypeVar("T")
MAX_GRADERS = 12  # Figures of answer length. Beyond it, `by` in the address chooses a grader.
HIDE_NAMES = frozenset({*RESULTS_FIGURES, "cost", "analysis"})
"""The figures that show letters to a blind reader."""


class FigureSource:
    """The data of an experiment's figures for the choices in an address, each part loaded when a figure needs it.

    Values that a worker computes are None until it has; `is_waiting` says so. state: the fingerprints of the stored
    values that were read, so that a picture can be kept as long as they are the same. blind: the reading in which
    letters replace the names of models; only the figures of HIDE_NAMES follow it.
    """

    def __init__(
        self,
        experiment: Experiment,
        data: QueryDict | None = None,
        wave: Wave | None = None,
        blind: BlindReading | None = None,
    ) -> None:
        self.experiment, self.data, self.blind = experiment, data or QueryDict(), blind
        self.wave = wave
        if wave is None and (name := self.data.get("wave", "")):
            with suppress(UnknownNameError):  # All waves, if the experiment has none of this name.
                self.wave = experiment.find_wave(name)
        self.is_waiting = False
        self.state = f"{blind.pk}-" if blind else ""

    @cached_property
    def results(self) -> StoredResults | None:
        counts_as_wrong = self.data.get("missing") == MISSING_WRONG
        cached = get_results(BoardQuery(self.experiment, self.wave, counts_as_wrong, blind=self.blind))
        self.state += cached.fingerprint
        return cached.value

    @cached_property
    def frames(self) -> Frames:
        if self.results is not None:
            return self.results.frames
        if self.blind:
            raise Http404  # These frames would have the names of models.
        state = fingerprint_results(self.experiment, self.wave)
        self.state += state
        return get_frames(self.experiment, self.wave, state)

    @cached_property
    def board(self) -> Leaderboard | None:
        return self._note_missing(self.results.board if self.results else None)

    @cached_property
    def measures(self) -> list[Measure]:
        return list_measures(self.experiment)

    @cached_property
    def measure(self) -> Measure | None:
        """The measure in the address, or the first one; None if the experiment does not have it."""
        if name := self.data.get("measure", ""):
            try:
                return match_measure(self.measures, name)
            except UnknownNameError:
                return None
        return next(iter(self.measures), None)

    @cached_property
    def second(self) -> Measure | None:
        """The second rated dimension: the one in the address, or the next one; None if it is the first, or unknown."""
        if self.measure is None or not self.measure.is_rating:
            return None
        ratings = [measure for measure in self.measures if measure.is_rating]
        if not (name := self.data.get("second", "")):
            return next((measure for measure in ratings if measure != self.measure), None)
        try:
            second = match_measure(ratings, name)
        except UnknownNameError:
            return None
        return None if second == self.measure else second

    @cached_property
    def scope(self) -> Scope | None:
        return ScopeForm(self.data, self.experiment, self.blind).get_scope()

    @cached_property
    def tables(self) -> dict[str, ResultTable]:
        """The tables of the analysis by name: of the sections that a worker has computed."""
        if self.scope is None:
            return {}
        stored = get_analysis(self.scope)
        self._note_missing(stored if stored.is_complete else None)
        return {table.name: table for section_tables in stored.tables.values() for table in section_tables}

    @cached_property
    def explorer(self) -> ExplorerState:
        choices = {name.removeprefix(PREFIX): value for name, value in self.data.items() if name.startswith(PREFIX)}
        choices = {**choices, "wave": self.data.get("wave", "")}
        explorer = load_explorer(self.experiment, {name: str(value) for name, value in choices.items() if value})
        if explorer.cached is not None:
            self._note_missing(explorer.cached.value)
            self.state += explorer.cached.fingerprint
        return explorer

    def get_scores(self, measure: Measure) -> ItemScores | None:
        cached = get_item_scores(self.experiment, measure, self.wave)
        self.state += cached.fingerprint
        stored_scores = self._note_missing(cached.value)
        return stored_scores.scores if stored_scores else None

    def load_ratings(self, measure: Measure | None) -> RatingData | None:
        """Return the ratings of a dimension; None for a measure that is no rating, or without ratings."""
        if measure is None or not measure.is_rating:
            return None
        return load_rating_data(self.experiment, measure, self.get_scores(measure), self.frames.labels)

    def _note_missing(self, value: T | None) -> T | None:
        self.is_waiting = self.is_waiting or value is None
        return value

    def list_figures(self) -> list[Figure]:
        """Return the figures of the experiment for the choices in the address. Nothing is drawn."""
        return [figure for provider in FIGURES.values() for figure in provider(self)]

    def find_figure(self, name: str) -> Figure | None:
        """Return one figure by its name. Only the data of its provider is loaded."""
        provider = FIGURES.get(name.partition("-")[0])
        return next((figure for figure in provider(self) if figure.name == name), None) if provider else None

    def make_dimension_figures(self) -> Iterable[Figure]:
        data = self.load_ratings(self.measure)
        return dimensions.make_figures(data) if data else ()

    def make_planes(self) -> Iterable[Figure]:
        if self.second is None:
            return ()
        x, y = self.load_ratings(self.measure), self.load_ratings(self.second)
        return planes.make_figures(x, y, has_images=bool(self.data.get("images"))) if x and y else ()

    def make_reliability_figure(self) -> Iterator[Figure]:
        measure = self.measure
        scores = self.get_scores(measure) if measure else None
        if measure and scores:
            yield from filter(None, [reliability.make_figure(scores, self.frames.labels, measure.label)])

    def make_agreement_figures(self) -> Iterator[Figure]:
        selection = RatingSelectionForm(self.data, self.experiment).get_selection()
        if selection is None or not selection.raters:
            return
        roles = assign_roles(selection, {name: str(value) for name, value in self.data.items()})
        cached = get_aggregate(AGREEMENT, self.experiment.pk, AgreementQuery(selection, roles))
        self.state += cached.fingerprint
        if cached.value is None:
            self.is_waiting = True
            return
        yield from agreement_figures.make_figures(selection, roles, cached.value)

    def make_calibration_figure(self) -> Iterator[Figure]:
        query = calibration.CalibrationQuery(self.experiment)
        cached = get_aggregate(calibration.CALIBRATION, self.experiment.pk, query)
        self.state += cached.fingerprint
        if cached.value is None:
            self.is_waiting = True
        else:
            yield from filter(None, [calibration.make_figure(cached.value.rows)])

    def make_length_figures(self) -> Iterator[Figure]:
        """Yield the figure of the grade condition in the address (`by`), or of each one."""
        queryset = self.experiment.grade_conditions.select_related("grader", "rubric", "panel", "judge_condition")
        conditions = list(queryset.prefetch_related("panel__graders__rubric").order_by("pk"))
        key = self.data.get("by", "")
        selected = [condition for condition in conditions if key in ("", str(condition.pk))][:MAX_GRADERS]
        by_condition = get_aggregates_by_condition(LENGTHS, selected, conditions)
        name = "length"
        for condition in selected:
            lengths = by_condition[condition.pk].value
            self.state += by_condition[condition.pk].fingerprint
            if isinstance(lengths, ScoresByLength):
                figure = length_bias.make_length_figure(name, condition.label, lengths, self.frames.labels)
                if figure is not None:
                    yield figure
                    name = f"length-{condition.pk}"

    def make_space_figures(self) -> Iterator[Figure]:
        """Yield the figures of the explorer for one task, and the experiment's rows of the leaderboard of tasks."""
        query = self.explorer.query if self.experiment.dataset.is_parametric else None
        if query is None:
            return
        yield from explorer_views.list_paper_figures(query)
        if query.view not in dict(explorer_views.PAPER_FIGURES):
            content = explorer_views.VIEW_PAGES[query.view].load(query)
            self.state += content.cached.fingerprint if content.cached else ""
            yield from content.figures
        experiments = Experiment.objects.filter(pk=self.experiment.pk).annotate(answers=Sum("runs__n_done"))
        board = load_board(list(experiments.select_related("dataset"))).board
        if board.rows:
            yield board_tables_and_figure.make_board_figure(
                board, board_tables_and_figure.sort_rows(board, board_tables_and_figure.DEFAULT_SORT)
            )

    def summarize_ratings(self) -> dict[str, Any]:
        """Return the number of items, the samples per item and the correlations of each rated dimension.

        Correlations: with the norms, and between every two dimensions, by condition, with Fisher's 95 % interval.
        """
        experiment = self.experiment
        dimensions = [data for measure in self.measures if measure.is_rating and (data := self.load_ratings(measure))]
        return {
            "experiment": experiment.slug,
            "dataset": str(experiment.dataset),
            "dataset_hash": experiment.dataset.content_hash,
            "wave": self.wave.number if self.wave else None,
            "items": experiment.dataset.active_count,
            "dimensions": {
                data.measure.key: {
                    "scale": list(data.ends),
                    "conditions": {
                        series.label: _summarize_condition(series, data.norms) for series in data.conditions
                    },
                    "norms": None if data.norms is None else {"items": int(data.norms.rated.sum())},
                }
                for data in dimensions
            },
            "between_dimensions": [
                entry
                for index, first in enumerate(dimensions)
                for second in dimensions[index + 1 :]
                for entry in _correlate_conditions(first, second)
            ],
        }


def make_explorer_query(choices: Mapping[str, str]) -> str:
    """Return the query with which an address of figures has these choices of the explorer.

    They have a prefix, because x and y are the labels of the axes in an address of figures.
    """
    return urlencode({name if name == "wave" else PREFIX + name: value for name, value in choices.items()})


def _from_frames(make: Callable[[Frames], Figure | None], source: FigureSource) -> Iterator[Figure]:
    yield from filter(None, [make(source.frames)])


Provider = Callable[[FigureSource], Iterable[Figure]]
FIGURES: Mapping[str, Provider] = {
    **{name: partial(_from_frames, make) for name, make in RESULTS_FIGURES.items()},
    "cost": lambda source: cost.make_figures(source.board) if source.board else (),
    "dimension": FigureSource.make_dimension_figures,
    "plane": FigureSource.make_planes,
    "reliability": FigureSource.make_reliability_figure,
    "analysis": lambda source: analysis.make_figures(source.tables, source.scope.measure.label) if source.scope else (),
    "calibration": FigureSource.make_calibration_figure,
    "agreement": FigureSource.make_agreement_figures,
    "length": FigureSource.make_length_figures,
    "space": FigureSource.make_space_figures,
}
"""The registry: all figures by the part of their names before the first hyphen, in the order of the page."""


def iterate_figures(experiment: Experiment, data: QueryDict) -> Iterator[Figure]:
    """Yield the figures for each measure in turn; those that do not depend on the measure once."""
    seen = set()
    for measure in FigureSource(experiment).measures:
        choices = data.copy()
        choices["measure"] = measure.key
        for figure in FigureSource(experiment, choices).list_figures():
            if (figure.name, figure.title) not in seen:
                seen.add((figure.name, figure.title))
                yield figure


def _summarize_condition(series: Series, norms: Series | None) -> dict[str, Any]:
    rated = series.rated
    content: dict[str, Any] = {
        "items": int(rated.sum()),
        "samples_per_item": {
            "least": int(series.n[rated].min()),
            "most": int(series.n[rated].max()),
            "mean": float(series.n[rated].mean()),
        },
        "mean": float(series.mean[rated].mean()),
    }
    if norms is not None:
        common = rated & norms.rated
        content["with_norms"] = _summarize_correlation(series.mean[common], norms.mean[common])
    return content


def _summarize_correlation(x: Floats, y: Floats) -> dict[str, Any]:
    correlation = pearson(list(x), list(y)) if len(x) else None
    if correlation is None:
        return {"items": len(x), "r": None}
    return {
        "items": correlation.n,
        "r": correlation.r,
        "low": correlation.low,
        "high": correlation.high,
        "p": correlation.p,
    }


def _correlate_conditions(first: RatingData, second: RatingData) -> Iterator[dict[str, Any]]:
    first_places, second_places = match_items(first, second)
    second_series = {series.label: series for series in second.all_series}
    for series in first.all_series:
        if series.label in second_series:
            x, y = series.mean[first_places], second_series[series.label].mean[second_places]
            common = (x == x) & (y == y)
            yield {
                "rated_by": series.label,
                "dimensions": [first.measure.key, second.measure.key],
                **_summarize_correlation(x[common], y[common]),
            }
