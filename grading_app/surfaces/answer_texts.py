"""The texts of answers and prompts: compression by outcome, and the spectrum of token ids by point.

Both read samples that a seed of the rows' own content chooses, so that they are the same every time.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

from evalsite.lib.sql import fetch_rows
from grading_app.reports.answer_aggregates import make_answer_aggregate
from grading_app.reports.cached_aggregates import Cached, get_aggregate
from grading_app.reports.frames import IN_SCOPE
from grading_app.statistics.intervals import estimate_mean, sum_clusters
from grading_app.statistics.token_spectrum import mean_spectrum
from runs_app.models import Experiment, Wave
from runs_app.pricing.token_counter import CountError, encode_groups

ANSWERS, PROMPTS, LEAST_BYTES = 200, 128, 64
"""Answers of each condition, task and outcome; prompts of each point; the shortest text that is compressed."""
TOKENIZER = "o200k_base"

TEXTS = f"""SELECT condition_id, task, outcome, item_id, text FROM (
    SELECT r.condition_id, coalesce(nullif(i.category, ''), i.metadata ->> 'task', '') AS task, outcome, t.item_id,
        t.reasoning || t.answer AS text, row_number() OVER (
            PARTITION BY r.condition_id, coalesce(nullif(i.category, ''), i.metadata ->> 'task', ''), outcome
            ORDER BY md5(i.key || t.sample_idx::text), t.id) AS place
    FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id JOIN datasets_app_item i ON i.id = t.item_id
    LEFT JOIN grading_app_grading g ON g.condition_id = %(grader)s AND g.trial_id = t.id
    CROSS JOIN LATERAL (SELECT CASE WHEN (t.truncated OR g.parse_error = 'truncated') IS TRUE THEN 'cut off'
        WHEN g.score = 1 THEN 'right' ELSE 'wrong' END AS outcome) AS state
    WHERE {IN_SCOPE} AND t.status = 'done' AND octet_length(t.reasoning) + octet_length(t.answer) >= %(least)s
    ) AS numbered WHERE place <= %(most)s ORDER BY 1, 2, 3, place"""  # noqa: S608 - constants
INPUTS = """SELECT task, params, input FROM (
    SELECT coalesce(nullif(i.category, ''), i.metadata ->> 'task', '') AS task,
        ((i.metadata -> 'params') - 'count')::text AS params, i.input, i.position, row_number() OVER (
            PARTITION BY i.category, i.metadata -> 'params' ORDER BY i.position, i.id) AS place
    FROM datasets_app_item i
    WHERE i.dataset_id = %(dataset)s AND NOT i.excluded AND jsonb_typeof(i.metadata -> 'params') = 'object'
    ) AS numbered WHERE place <= %(most)s ORDER BY position"""


@dataclass(frozen=True, slots=True)
class Compression:
    """The ratio compressed / original bytes of some answers. low, high: of the mean; None without an interval."""

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
    """problem: why there are no spectra, in words for a reader."""

    compressions: list[Compression]
    spectra: list[PromptSpectrum]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TextQuery:
    """kind: compression or spectrum."""

    experiment: Experiment
    grader: int
    kind: str
    wave: Wave | None = None


def compress(text: str) -> float:
    """Return the size of the text under zlib's highest level, as a share of its own size."""
    content = text.encode()
    return len(zlib.compress(content, 9)) / len(content)


def measure_compression(query: TextQuery) -> list[Compression]:
    where: Any = {
        "experiment": query.experiment.pk,
        "wave": query.wave.pk if query.wave else None,
        "grader": query.grader,
        "least": LEAST_BYTES,
        "most": ANSWERS,
    }
    groups: dict[tuple[int, str, str], list[tuple[int, float, int]]] = {}
    for condition, task, outcome, item, text in fetch_rows(TEXTS, where):
        groups.setdefault((condition, task, outcome), []).append((item, compress(text), len(text.encode())))
    found = []
    for (condition, task, outcome), texts in groups.items():
        estimate = estimate_mean(sum_clusters([ratio for _, ratio, _ in texts], [item for item, *_ in texts]))
        low, high = (estimate.low, estimate.high) if estimate else (None, None)
        mean = sum(ratio for _, ratio, _ in texts) / len(texts)
        size = sum(size for *_, size in texts) / len(texts)
        found.append(Compression(condition, task, outcome, len(texts), mean, low, high, size))
    return found


def measure_spectra(query: TextQuery) -> list[PromptSpectrum]:
    """Return the spectrum of each point's questions. Raise CountError if the tokenizer cannot be run."""
    points: dict[tuple[str, str], list[str]] = {}
    for task, params, text in fetch_rows(INPUTS, {"dataset": query.experiment.dataset_id, "most": PROMPTS}):
        points.setdefault((task, params), []).append(text)
    found = []
    encoded = encode_groups(TOKENIZER, points.values())
    for (task, params), sequences in zip(points, encoded, strict=True):
        spectrum = mean_spectrum(sequences)
        if spectrum:
            one = (spectrum.texts, spectrum.tokens, list(spectrum.power), spectrum.entropy, spectrum.flatness)
            found.append(PromptSpectrum(task, json.loads(params), *one))
    return found


def _measure_texts(query: TextQuery) -> TextMeasures:
    if query.kind == "compression":
        return TextMeasures(measure_compression(query), [])
    try:
        return TextMeasures([], measure_spectra(query))
    except CountError as error:
        return TextMeasures([], [], f"The tokenizer could not be run: {error}.")


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
    """Return the measures of a sample of texts. A worker computes them, because they read texts or need a tokenizer."""
    return get_aggregate(ANSWER_TEXTS, query.experiment.pk, query)
