"""The tables and figures of the results page, computed once for each state of an experiment.

A figure's texts and numbers are stored with the page; its picture is drawn from the stored frames.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grading_app.models import BlindReading
from grading_app.reports.answer_aggregates import make_answer_aggregate
from grading_app.reports.cached_aggregates import Cached, get_aggregate
from grading_app.reports.figures import FIGURES
from grading_app.reports.figures.kinds import AnyFigure, FigureTable
from grading_app.reports.frames import Frames, NormPair, Outcomes, RatedDimension, load_frames
from grading_app.reports.plot_style import NARROW, WIDE
from grading_app.results.scores import MeasureScores
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
class Results:
    """The frames of an experiment as JSON-compatible values, with the texts of its figures. norms: encoded pairs."""

    labels: dict[int, str]
    dimensions: dict[int, RatedDimension]
    outcomes: list[Outcomes]
    scores: list[MeasureScores]
    rating_counts: list[tuple[int, int, dict[int, int]]]
    norms: str
    points: list[PointLine]
    figures: list[FigureTexts]

    @classmethod
    def of(cls, frames: Frames) -> Results:
        return cls(
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


@dataclass(frozen=True, slots=True)
class ResultsQuery:
    """A query for the results of one wave or of all. blind: the blind reading whose letters replace names of models."""

    experiment: Experiment
    wave: Wave | None = None
    blind: BlindReading | None = None


def _compute(query: ResultsQuery) -> Results:
    letters = query.blind.assign_letters() if query.blind else None
    return Results.of(load_frames(query.experiment, query.wave, letters))


def _load(experiment: Experiment, wave: Wave | None, values: list[Any]) -> ResultsQuery:
    blind = BlindReading.objects.get(pk=values[0]) if values else None
    return ResultsQuery(experiment, wave, blind)


RESULTS = make_answer_aggregate(
    "results",
    Results,
    _compute,
    dump=lambda query: [query.blind.pk] if query.blind else [],
    load=_load,
    step="adding up answers",
    version=2,
)


def get_results(experiment: Experiment, wave: Wave | None, blind: BlindReading | None = None) -> Cached[Results]:
    """Return the results. For a large experiment, the value is None until a worker has computed the first ones."""
    return get_aggregate(RESULTS, experiment.pk, ResultsQuery(experiment, wave, blind))
