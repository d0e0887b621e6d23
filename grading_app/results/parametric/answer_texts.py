"""The texts of answers and prompts: compression by outcome, and the spectrum of token ids by point.

Both read samples that a hash of the rows' content selects, so that the samples do not change.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

from evalsite.lib.sql import fetch_rows
from grading_app.results.cached_aggregates import Cached, get_aggregate, make_answer_aggregate
from grading_app.results.parametric.point_counts import CASES, GRADED_ANSWERS, TASK
from grading_app.results.scores import IN_SCOPE
from grading_app.statistics.intervals import estimate_mean, sum_clusters
from grading_app.statistics.token_statistics import mean_spectrum
from runs_app.models import Experiment, Wave
from runs_app.pricing.token_counter import CountError, encode_groups

MAX_ANSWERS, MAX_PROMPTS, MIN_BYTES = 200, 128, 64
"""Answers per condition, task and outcome; prompts per point; and the shortest text to compress."""
TOKENIZER = "o200k_base"

TEXTS = f"""SELECT condition_id, task, outcome, item_id, text FROM (
    SELECT t.condition_id, {TASK} AS task, outcome, t.item_id,
        t.reasoning || t.answer AS text, row_number() OVER (
            PARTITION BY t.condition_id, {TASK}, outcome
            ORDER BY md5(i.key || t.sample_idx::text), t.trial_id) AS rank
    FROM {GRADED_ANSWERS} CROSS JOIN LATERAL (
        SELECT CASE WHEN state.cut THEN 'cut off' WHEN g.score = 1 THEN 'right' ELSE 'wrong' END AS outcome) AS judged
    WHERE {IN_SCOPE} AND t.status = 'done' AND octet_length(t.reasoning) + octet_length(t.answer) >= %(least)s
    ) AS numbered WHERE rank <= %(most)s ORDER BY 1, 2, 3, rank"""  # noqa: S608 - constants
INPUTS = f"""SELECT task, params, input FROM (
    SELECT {TASK} AS task,
        ((i.metadata -> 'params') - 'count')::text AS params, i.input, i.position, row_number() OVER (
            PARTITION BY i.category, i.metadata -> 'params' ORDER BY i.position, i.id) AS rank
    FROM {CASES}
    ) AS numbered WHERE rank <= %(most)s ORDER BY position"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class Compression:
    """The mean ratio of compressed to original bytes of some answers. low, high: its interval, or None."""

    condition: int
    task: str
    outcome: str
    n: int
    mean: float
    low: float | None
    high: float | None
    bytes: float


@dataclass(frozen=True, slots=True)
class PromptSpectrum:
    """The spectrum of the prompts at one point (`Spectrum`)."""

    task: str
    params: dict[str, Any]
    texts: int
    tokens: float
    power: list[float]
    entropy: float
    flatness: float


@dataclass(frozen=True, slots=True)
class TextMeasures:
    """The measures of texts. problem: the reason for missing spectra, for the reader."""

    compressions: list[Compression]
    spectra: list[PromptSpectrum]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A query for the measures of texts. kind: compression or spectrum."""

    experiment: Experiment
    grader: int
    kind: str
    wave: Wave | None = None


def compute_compression_ratio(text: str) -> float:
    """Return the ratio of compressed to original bytes, at zlib's highest level."""
    content = text.encode()
    return len(zlib.compress(content, 9)) / len(content)


def measure_compression(query: TextQuery) -> list[Compression]:
    parameters: Any = {
        "experiment": query.experiment.pk,
        "wave": query.wave.pk if query.wave else None,
        "grader": query.grader,
        "least": MIN_BYTES,
        "most": MAX_ANSWERS,
    }
    groups: dict[tuple[int, str, str], list[tuple[int, float, int]]] = {}
    for condition, task, outcome, item, text in fetch_rows(TEXTS, parameters):
        groups.setdefault((condition, task, outcome), []).append(
            (item, compute_compression_ratio(text), len(text.encode()))
        )
    compressions = []
    for (condition, task, outcome), texts in groups.items():
        estimate = estimate_mean(sum_clusters([ratio for _, ratio, _ in texts], [item for item, *_ in texts]))
        low, high = (estimate.low, estimate.high) if estimate else (None, None)
        mean = sum(ratio for _, ratio, _ in texts) / len(texts)
        size = sum(size for *_, size in texts) / len(texts)
        compressions.append(Compression(condition, task, outcome, len(texts), mean, low, high, size))
    return compressions


def measure_spectra(query: TextQuery) -> list[PromptSpectrum]:
    """Return the spectrum of each point's questions. Raise CountError if the tokenizer is not available."""
    points: dict[tuple[str, str], list[str]] = {}
    for task, params, text in fetch_rows(INPUTS, {"dataset": query.experiment.dataset_id, "most": MAX_PROMPTS}):
        points.setdefault((task, params), []).append(text)
    spectra = []
    encoded = encode_groups(TOKENIZER, points.values())
    for (task, params), sequences in zip(points, encoded, strict=True):
        spectrum = mean_spectrum(sequences)
        if spectrum:
            values = (spectrum.texts, spectrum.tokens, list(spectrum.power), spectrum.entropy, spectrum.flatness)
            spectra.append(PromptSpectrum(task, json.loads(params), *values))
    return spectra


def _measure_texts(query: TextQuery) -> TextMeasures:
    if query.kind == "compression":
        return TextMeasures(measure_compression(query), [])
    try:
        return TextMeasures([], measure_spectra(query))
    except CountError as error:
        return TextMeasures([], [], f"The tokenizer is not available: {error}.")


ANSWER_TEXTS = make_answer_aggregate(
    "answer_texts",
    TextMeasures,
    _measure_texts,
    dump=lambda query: [query.grader, query.kind],
    load=lambda experiment, wave, values: TextQuery(experiment, values[0], values[1], wave),
    step="reading texts",
    is_large=lambda queries: True,
)


def get_texts(query: TextQuery) -> Cached[TextMeasures]:
    """Return the measures of a sample of texts. A worker computes them, because they need texts or a tokenizer."""
    return get_aggregate(ANSWER_TEXTS, query.experiment.pk, query)
