"""The results and item scores of an experiment, computed once for each state of its answers.

The results of a large experiment are computed by a worker, so a page only reads them.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from grading_app.models import BlindReading
from grading_app.results.cached_aggregates import Cached, get_aggregate, make_answer_aggregate
from grading_app.results.figures import list_results_figures
from grading_app.results.frames import Frames, NormPair, Outcomes, RatedDimension, load_frames
from grading_app.results.leaderboard import BoardQuery, Leaderboard, compute_leaderboard
from grading_app.results.results_page import Screen, make_screen
from grading_app.results.scores import EXCLUSIONS, Measure, MeasureScores, find_measure, load_scores
from grading_app.statistics.item_scores import ItemScores
from runs_app.models import Experiment, Wave
from runs_app.monitoring.point_status import PointLine


@dataclass(frozen=True, slots=True)
class StoredResults:
    """The leaderboard and the frames of an experiment as JSON-compatible values, with the texts of its figures.

    screen: None before an answer was planned. norms: encoded pairs. figures: the contents of figures.
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
    figures: list[dict[str, Any]]

    @classmethod
    def of(cls, board: Leaderboard, screen: Screen | None, frames: Frames) -> StoredResults:
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
            [figure.content() for figure in list_results_figures(frames)],
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


def _compute(query: BoardQuery) -> StoredResults:
    board = compute_leaderboard(query)
    screen = make_screen(query, board) if board.measures and board.rows else None
    return StoredResults.of(board, screen, load_frames(query.experiment, query.wave, query.letters))


def _load(experiment: Experiment, wave: Wave | None, values: list[Any]) -> BoardQuery | None:
    missing_is_wrong, baseline, blind, measure = values
    reading = BlindReading.objects.filter(pk=blind).first() if blind else None
    return (
        None
        if blind and reading is None
        else BoardQuery(experiment, wave, missing_is_wrong, baseline, reading, measure)
    )


RESULTS = make_answer_aggregate(
    "results",
    StoredResults,
    _compute,
    dump=lambda query: [
        query.missing_is_wrong,
        query.baseline,
        query.blind.pk if query.blind else None,
        query.measure,
    ],
    load=_load,
    step="adding up answers",
    version=11,
    is_shared=True,
)


def get_results(query: BoardQuery) -> Cached[StoredResults]:
    """Return the results. For a large experiment, the value is None until a worker has computed the first ones."""
    return get_aggregate(RESULTS, query.experiment.pk, query)


def get_leaderboard(query: BoardQuery) -> Leaderboard | None:
    """Return the leaderboard in the results; None until a worker has computed the first ones."""
    results = get_results(query).value
    return results.board if results else None


@dataclass(frozen=True, slots=True)
class ScoresQuery:
    """A query for the scores of one measure, in one wave or in all. exclude: keys of EXCLUSIONS."""

    experiment: Experiment
    measure: Measure
    wave: Wave | None = None
    exclude: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EncodedScores:
    """Item scores encoded for a JSON column."""

    text: str

    @property
    def scores(self) -> ItemScores:
        return _decode(self.text)


@lru_cache(maxsize=2)  # A million cells take 24 MB.
def _decode(text: str) -> ItemScores:
    return ItemScores.decode(text)


def _load_item_scores(experiment: Experiment, wave: Wave | None, values: list[Any]) -> ScoresQuery | None:
    key, exclude = values
    measure = find_measure(experiment, key)
    return ScoresQuery(experiment, measure, wave, frozenset(exclude) & set(EXCLUSIONS)) if measure else None


ITEM_SCORES = make_answer_aggregate(
    "item_scores",
    EncodedScores,
    lambda query: EncodedScores(load_scores(query.experiment, query.measure, query.wave, query.exclude).encode()),
    dump=lambda query: [query.measure.key, sorted(query.exclude)],
    load=_load_item_scores,
    step="adding up scores",
    max_rows=40,
    is_shared=True,
)


def get_item_scores(
    experiment: Experiment, measure: Measure, wave: Wave | None = None, exclude: Collection[str] = ()
) -> Cached[EncodedScores]:
    """Return the scores of a measure, as `.value.scores`. The value is None until a worker has computed the first."""
    return get_aggregate(ITEM_SCORES, experiment.pk, ScoresQuery(experiment, measure, wave, frozenset(exclude)))


def list_items_that_differ(experiment: Experiment, key: str = "") -> list[int] | None:
    """Return the items whose mean scores differ between conditions. key: of the measure; "" for the first measure.

    Return None while a worker computes the scores of a large experiment for the first time.
    """
    measure = find_measure(experiment, key)
    if measure is None:
        return []
    stored = get_item_scores(experiment, measure).value
    if stored is None:
        return None
    scores = stored.scores
    return [int(item) for item in scores.items[scores.find_differing_items()]]
