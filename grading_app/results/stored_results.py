"""The results page of an experiment: its sentences, tables and figures, computed once for each state of its answers.

A figure's texts and numbers are stored with the page; its picture is drawn from the stored frames. The results of a
large experiment are computed by a worker, so a page only reads them.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grading_app.models import BlindReading
from grading_app.results import cost_figure
from grading_app.results.answer_aggregates import make_answer_aggregate
from grading_app.results.cached_aggregates import Cached, get_aggregate
from grading_app.results.conclusions import Conclusion, draw_conclusions
from grading_app.results.figures import FIGURES
from grading_app.results.figures.kinds import AnyFigure, FigureTable
from grading_app.results.frames import Frames, NormPair, Outcomes, RatedDimension, load_facets, load_frames
from grading_app.results.leaderboard import BoardQuery, Leaderboard, compute_leaderboard
from grading_app.results.leaderboard_tables import (
    BoardLinks,
    costs_differ,
    describe_lead,
    make_baseline_table,
    make_closeness_table,
    make_condition_table,
    make_effort_table,
    make_leaderboard_table,
)
from grading_app.results.plot_style import NARROW, WIDE
from grading_app.results.pooled_waves import find_pooled_waves
from grading_app.results.scope import MISSING_WRONG
from grading_app.results.scores import Measure, MeasureScores, load_scores
from grading_app.results.table import ResultTable
from grading_app.results.telling_items import TellingItems, find_telling_items
from runs_app.models import Experiment, Wave
from runs_app.monitoring.point_status import PointLine


@dataclass(frozen=True, slots=True)
class FigureTexts:
    """A figure without its picture. size, narrow_size: width and height in CSS pixels."""

    name: str
    title: str
    caption: str
    alt: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    first_number: int
    size: tuple[int, int]
    narrow_size: tuple[int, int]

    @property
    def table(self) -> FigureTable:
        return FigureTable(self.head, self.rows, self.first_number)


@dataclass(frozen=True, slots=True)
class CostFigure:
    """The figure of score against cost. measure: its key."""

    measure: str
    texts: FigureTexts


@dataclass(frozen=True, slots=True)
class Screen:
    """The content of the results page. Tables are the content of ResultTables.

    first: the table of conditions. further: of the other measures. effort: cost, tokens and time. baselines: the
    differences from a chosen baseline. files: tables without a place on the page, only for files. best_two: a sentence
    on the two best conditions. items: None if no item stands out. pooled: sentences on waves that the numbers pool;
    has_drifted: these waves differ. problem: that the primary measure has no scores; else empty. cost: None if the
    costs of conditions are equal or unknown.
    """

    conclusions: list[Conclusion]
    first: dict[str, Any]
    effort: dict[str, Any]
    further: list[dict[str, Any]]
    baselines: list[dict[str, Any]]
    files: list[dict[str, Any]]
    best_two: str
    items: TellingItems | None
    pooled: list[str]
    has_drifted: bool
    problem: str
    cost: CostFigure | None

    @property
    def tables(self) -> list[ResultTable]:
        """Every table that a reader can download."""
        contents = [self.first, self.effort, *self.further, *self.baselines, *self.files]
        return [ResultTable.from_content(content) for content in contents]


@dataclass(frozen=True, slots=True)
class Results:
    """The leaderboard and the frames of an experiment as JSON-compatible values, with the texts of its figures.

    screen: None before an answer was planned. norms: encoded pairs.
    """

    board: Leaderboard
    screen: Screen | None
    labels: dict[int, str]
    dimensions: dict[int, RatedDimension]
    outcomes: list[Outcomes]
    scores: list[MeasureScores]
    rating_counts: list[tuple[int, int, dict[int, int]]]
    norms: str
    points: list[PointLine]
    figures: list[FigureTexts]

    @classmethod
    def of(cls, board: Leaderboard, screen: Screen | None, frames: Frames) -> Results:
        return cls(
            board,
            screen,
            frames.labels,
            frames.dimensions,
            frames.outcomes,
            frames.scores,
            [(*key, counts) for key, counts in frames.rating_counts.items()],
            encode_pairs(frames.norm_pairs),
            frames.points,
            [texts for figure in FIGURES.values() if (texts := describe_figure(figure, frames))],
        )

    @property
    def summary(self) -> Frames:
        """The frames without the pairs of model and human means, which only pictures need."""
        return Frames(
            self.labels,
            self.dimensions,
            self.outcomes,
            self.scores,
            {(condition, dimension): counts for condition, dimension, counts in self.rating_counts},
            [],
            self.points,
        )

    @property
    def frames(self) -> Frames:
        return replace(self.summary, norm_pairs=decode_pairs(self.norms))


def describe_figure(figure: AnyFigure, frames: Frames) -> FigureTexts | None:
    """Return the texts of a figure; None if the experiment has no data for it. Nothing is drawn."""
    data = figure.select_data(frames)
    if data is None:
        return None
    table = figure.table(data)
    return FigureTexts(
        figure.name,
        figure.title,
        figure.caption(data),
        figure.alt(data),
        table.head,
        list(table.rows),
        table.first_number,
        figure.size(data, WIDE),
        figure.size(data, NARROW),
    )


def encode_pairs(pairs: Sequence[NormPair]) -> str:
    """Return a compressed text for a JSON column. `decode_pairs` reverses it exactly."""
    import numpy as np

    if not pairs:
        return ""
    buffer = io.BytesIO()
    keys, key_indices = np.unique([pair.item_key for pair in pairs], return_inverse=True)
    columns: dict[str, Any] = {name: np.array([getattr(pair, name) for pair in pairs]) for name in NormPair.__slots__}
    np.savez(buffer, **{**columns, "item_key": key_indices.astype(np.int32), "keys": keys})
    return base64.b64encode(zlib.compress(buffer.getvalue(), 1)).decode("ascii")


def decode_pairs(text: str) -> list[NormPair]:
    import numpy as np

    if not text:
        return []
    with np.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), allow_pickle=False) as arrays:
        columns = {name: arrays[name] for name in NormPair.__slots__}
        columns["item_key"] = arrays["keys"][columns["item_key"]]
    return [NormPair(*row) for row in zip(*(columns[name].tolist() for name in NormPair.__slots__), strict=True)]


def _compute(query: BoardQuery) -> Results:
    board = compute_leaderboard(query)
    screen = _make_screen(query, board) if board.measures and board.rows else None
    return Results.of(board, screen, load_frames(query.experiment, query.wave, query.letters))


def _make_screen(query: BoardQuery, board: Leaderboard) -> Screen:
    experiment, first = query.experiment, board.measures[0]
    links = BoardLinks(board, experiment, query.wave, MISSING_WRONG if query.missing_is_wrong else "")
    rated = board.rated_with_norms
    table = make_closeness_table(board, links) if rated else make_condition_table(board, first, links, is_first=True)
    further = [measure for measure in board.measures if measure not in (rated or [first])]
    pooled = find_pooled_waves(experiment, query.wave, in_worker=True)
    with_cost = [one for one in board.measures if cost_figure.has_costs(board, one)] if costs_differ(board) else []
    baselines = [make_baseline_table(board, measure, links.compare) for measure in board.measures]
    unknown = experiment.primary_measure if not board.primary else ""
    return Screen(
        conclusions=draw_conclusions(board, load_facets(experiment, query.letters, is_brief=True)),
        first=table.content(),
        effort=make_effort_table(board).content(),
        further=[make_condition_table(board, measure, links).content() for measure in further],
        baselines=[one.content() for one in baselines if one],
        files=[make_leaderboard_table(board).content()],
        best_two=" ".join(filter(None, (describe_lead(board, measure) for measure in board.measures))),
        items=find_telling_items(board, first, load_scores(experiment, first, query.wave), experiment),
        pooled=pooled.sentences if pooled else [],
        has_drifted=bool(pooled and pooled.drifted),
        problem=f"The primary measure {unknown} has no scores; {first.label} comes first." if unknown else "",
        cost=_describe_cost_figure(board, with_cost[0]) if with_cost else None,
    )


def _describe_cost_figure(board: Leaderboard, measure: Measure) -> CostFigure:
    texts = FigureTexts(
        f"cost-{measure.key.replace(':', '-')}",
        f"{cost_figure.TITLE}: {measure.label}",
        "Points with 95 % intervals. The line is the efficient frontier: no cheaper condition scores as high.",
        cost_figure.write_alt_text(board, measure),
        (),
        [],
        0,
        cost_figure.compute_size(WIDE),
        cost_figure.compute_size(NARROW),
    )
    return CostFigure(measure.key, texts)


def _load(experiment: Experiment, wave: Wave | None, values: list[Any]) -> BoardQuery | None:
    missing_is_wrong, baseline, blind = values
    reading = BlindReading.objects.filter(pk=blind).first() if blind else None
    return None if blind and reading is None else BoardQuery(experiment, wave, missing_is_wrong, baseline, reading)


RESULTS = make_answer_aggregate(
    "results",
    Results,
    _compute,
    dump=lambda query: [query.missing_is_wrong, query.baseline, query.blind.pk if query.blind else None],
    load=_load,
    step="adding up answers",
    version=4,
)


def get_results(query: BoardQuery) -> Cached[Results]:
    """Return the results. For a large experiment, the value is None until a worker has computed the first ones."""
    return get_aggregate(RESULTS, query.experiment.pk, query)


def get_leaderboard(query: BoardQuery) -> Leaderboard | None:
    """Return the leaderboard in the results; None until a worker has computed the first ones."""
    results = get_results(query).value
    return results.board if results else None
