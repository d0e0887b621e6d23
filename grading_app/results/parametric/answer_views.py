"""The views of answers and prompts: compression, lengths and spectra, with tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalsite.lib.stats import wilson
from grading_app.results import plot_style
from grading_app.results.cached_aggregates import Cached
from grading_app.results.figure import Figure
from grading_app.results.parametric.answer_texts import (
    MAX_ANSWERS,
    MAX_PROMPTS,
    MIN_BYTES,
    TOKENIZER,
    Compression,
    PromptSpectrum,
    TextQuery,
    get_texts,
)
from grading_app.results.parametric.explorer_query import ExplorerQuery
from grading_app.results.parametric.surface import label_value
from grading_app.results.parametric.surface_figures import KEY_HEIGHT, MAX_LINES, MAX_ROWS, PREFIX, draw_lines
from grading_app.results.table import ResultColumn, ResultTable, Row
from grading_app.statistics.token_statistics import BINS, Spectrum, spectral_distance, thin_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
import math
from collections import Counter

from evalsite.lib.sql import fetch_rows
from grading_app.results.cached_aggregates import get_aggregate, make_answer_aggregate
from grading_app.results.parametric.point_counts import GRADED_ANSWERS, TASK
from grading_app.results.scores import IN_SCOPE
from grading_app.statistics.token_statistics import SurvivalStep, kaplan_meier
from runs_app.models import Experiment, Wave


@dataclass(frozen=True, slots=True)
class ViewContent:
    """The content of a view. cached: the state of its stored numbers, or None. note: on samples and problems."""

    tables: Sequence[ResultTable]
    figures: Sequence[Figure]
    cached: Cached[Any] | None = None
    note: str = ""


def show_compression(query: ExplorerQuery) -> ViewContent:
    """Show the compression of right, wrong and cut-off answers."""
    cached = get_texts(TextQuery(query.experiment, query.grader, "compression", query.wave))
    compressions = [row for row in cached.value.compressions if row.condition in query.labels] if cached.value else []
    note = (
        f"At most {MAX_ANSWERS} answers of each condition, task and outcome, selected by a hash of their items, "
        f"of at least {MIN_BYTES} bytes with their reasoning."
    )
    if not compressions:
        note = "No answer is long enough to be compressed." if cached.value else ""
        return ViewContent([], [], cached, note)
    selected = [row for row in compressions if row.condition == query.condition][:MAX_ROWS]
    rows: list[Row] = [
        {
            "condition": query.labels[row.condition],
            "task": row.task,
            "outcome": row.outcome,
            "ratio": row.mean,
            "interval": None if row.low is None else (row.low, row.high),
            "n": row.n,
            "bytes": row.bytes,
        }
        for row in compressions
    ]
    columns = [
        ResultColumn("condition", "Condition"),
        ResultColumn("task", "Task"),
        ResultColumn("outcome", "Outcome"),
        ResultColumn("ratio", "Ratio", "number", 3),
        ResultColumn("interval", "95 % interval", "interval", 3),
        ResultColumn("n", "Answers", "count"),
        ResultColumn("bytes", "Mean bytes", "number", 0),
    ]
    formula = (
        "Ratio: bytes of the reasoning and the answer after zlib at level 9, by their bytes before; the mean over "
        "answers with Student's interval over items. Short texts compress less, so compare texts of similar length."
    )
    table = ResultTable("compression", "Compression of answers", columns, rows, formula=formula)
    figure = Figure(
        f"{PREFIX}compression",
        "Compression",
        f"Mean of compressed by original bytes, with 95 % intervals: {query.labels[query.condition]}.",
        f"Compression of {len(selected)} groups of answers. The table holds the numbers.",
        lambda width: (width, 70 + 24 * max(1, len(selected))),
        lambda width: _draw_compression(selected, width),
        lambda: table,
        page="explorer",
    )
    return ViewContent([table], [figure] if selected else [], cached, note)


def _draw_compression(compressions: Sequence[Compression], width: int) -> Drawing:
    left = 190 if width >= plot_style.WIDE else width // 3
    grid = plot_style.Grid(1, 1, width, 24 * max(1, len(compressions)), left=left)
    figure, (axes,) = grid.make_panels()
    plot_style.draw_intervals(axes, [(index, row.mean, row.low, row.high) for index, row in enumerate(compressions)])
    names = [plot_style.shorten(f"{row.task}, {row.outcome}", left - 12) for row in compressions]
    axes.set_yticks([-index for index in range(len(compressions))], names)
    axes.set_ylim(0.7 - max(1, len(compressions)), 0.7)
    axes.set_xlim(left=0)
    axes.set_xlabel("Compressed / original bytes", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    plot_style.draw_gridlines(axes, "x")
    return figure


def show_lengths(query: ExplorerQuery) -> ViewContent:
    """Show the chance that an answer is finished, right or cut off as its tokens grow."""
    length_query = LengthQuery(query.experiment, query.grader, query.condition, query.task, query.wave)
    cached = get_lengths(length_query)
    lengths = cached.value
    if lengths is None or not lengths.answers:
        return ViewContent([], [], cached, "No answer has a token count." if lengths else "")
    rows: list[Row] = []
    for step in thin_steps(lengths.estimate_survival(), 60):
        right, cut = (lengths.estimate_share_until(counts, step.time) for counts in (lengths.right, lengths.cut))
        rows.append(
            {
                "tokens": step.time,
                "at_risk": step.at_risk,
                "finished": 1 - step.survival,
                "finished_ci": (1 - step.high, 1 - step.low),
                "right": right[0],
                "right_ci": right[1:],
                "cut": cut[0],
                "cut_ci": cut[1:],
            }
        )
    columns = [
        ResultColumn("tokens", "Output tokens", "count"),
        ResultColumn("at_risk", "At risk", "count"),
        ResultColumn("finished", "Finished", "share"),
        ResultColumn("finished_ci", "95 % interval", "share_interval"),
        ResultColumn("right", "Right", "share"),
        ResultColumn("right_ci", "95 % interval", "share_interval"),
        ResultColumn("cut", "Cut off", "share"),
        ResultColumn("cut_ci", "95 % interval", "share_interval"),
    ]
    formula = (
        "Finished: 1 minus Kaplan and Meier's estimate, with cut-off answers censored, Greenwood's variance and a "
        "log(−log) band. Right and cut off: shares of all answers, with Wilson's intervals. Each interval is "
        "pointwise."
    )
    title = f"{query.task}, {query.labels[query.condition]}"
    table = ResultTable("hazard", title, columns, rows, formula=formula)
    figure = Figure(
        f"{PREFIX}hazard",
        "Tokens until the end",
        "Bands: 95 % at each number of tokens. Finished: Kaplan–Meier, where a cut-off answer counts until its cut.",
        "Shares of answers that are finished, right and cut off by tokens. The table holds the numbers.",
        lambda width: (width, 280 + KEY_HEIGHT * 3),
        lambda width: _draw_lengths(lengths, width),
        lambda: table,
        page="explorer",
    )
    return ViewContent([table], [figure], cached)


def _draw_lengths(lengths: AnswerLengths, width: int) -> Drawing:
    finished = [(step.time, 1 - step.survival, 1 - step.high, 1 - step.low) for step in lengths.estimate_survival()]
    lines = [
        ("finished, if none were cut off", [(0.0, 0.0, 0.0, 0.0), *finished]),
        ("right", lengths.estimate_share_curve(lengths.right)),
        ("cut off", lengths.estimate_share_curve(lengths.cut)),
    ]
    figure, _ = draw_lines(lines, width, "Output tokens", "Share of answers", steps=True)
    return figure


def show_spectra(query: ExplorerQuery) -> ViewContent:
    """Show the spectra of the token ids of the questions at each point of the task."""
    cached = get_texts(TextQuery(query.experiment, query.grader, "spectrum", query.wave))
    spectra = [row for row in cached.value.spectra if row.task == query.task] if cached.value else []
    if not spectra:
        problem = cached.value.problem or "No question has a spectrum." if cached.value else ""
        return ViewContent([], [], cached, problem)
    step = (len(spectra) - 1) / max(1, MAX_LINES - 1)
    drawn = [spectra[round(index * step)] for index in range(min(MAX_LINES, len(spectra)))]
    mean = [sum(row.power[band] for row in spectra) / len(spectra) for band in range(BINS)]
    mean_spectrum = Spectrum(len(spectra), 0.0, tuple(mean), 0.0, 0.0)
    names = list(dict.fromkeys(name for row in spectra for name in row.params))
    rows: list[Row] = [
        {
            **{name: label_value(row.params[name]) for name in names if name in row.params},
            "questions": row.texts,
            "mean_tokens": row.tokens,
            "entropy": row.entropy,
            "flatness": row.flatness,
            "distance": spectral_distance(
                Spectrum(row.texts, row.tokens, tuple(row.power), row.entropy, row.flatness), mean_spectrum
            ),
        }
        for row in spectra
    ]
    columns = [
        *(ResultColumn(name, name) for name in names),
        ResultColumn("questions", "Questions", "count"),
        ResultColumn("mean_tokens", "Tokens", "number", 0),
        ResultColumn("entropy", "Entropy", "coefficient"),
        ResultColumn("flatness", "Flatness", "coefficient"),
        ResultColumn("distance", "Distance from the mean", "number", 3),
    ]
    formula = (
        f"Spectrum: the squared discrete Fourier transform of the token ids without their mean, normalised for each "
        f"question, in {BINS} bands, averaged. Entropy: of the bands, 1 for noise. Flatness: geometric by arithmetic "
        "mean of the bands. Distance: half the sum of absolute differences from the mean over points, 0 to 1."
    )
    table = ResultTable("spectrum", f"Questions of {query.task} by point", columns, rows, formula=formula)
    figure = Figure(
        f"{PREFIX}spectrum",
        "Spectrum of the questions",
        "Share of the variance of the token ids by frequency, from slow to fast. At most six points are drawn.",
        f"Spectra of {len(drawn)} points. The table holds the numbers.",
        lambda width: (width, 280 + KEY_HEIGHT * len(drawn)),
        lambda width: _draw_spectra(drawn, width),
        lambda: table,
        page="explorer",
    )
    note = f"At most {MAX_PROMPTS} questions of each point, without the prompt around them; tokenizer {TOKENIZER}."
    return ViewContent([table], [figure], cached, note)


def _draw_spectra(spectra: Sequence[PromptSpectrum], width: int) -> Drawing:
    lines = []
    for row in spectra:
        label = ", ".join(f"{name} {label_value(value)}" for name, value in row.params.items())
        points = [((band + 0.5) / BINS / 2, power, power, power) for band, power in enumerate(row.power)]
        lines.append((label, points))
    figure, axes = draw_lines(lines, width, "Frequency (cycles per token)", "Share of the variance", bounds=None)
    axes.set_ylim(bottom=0)
    return figure


MAX_LENGTHS = 4000
"""The maximum number of stored lengths of a condition. More lengths are merged into bands of equal width."""

LENGTHS = f"""SELECT t.output_tokens, count(*) FILTER (WHERE state.cut)::int,
        count(*) FILTER (WHERE NOT state.cut AND g.score = 1)::int,
        count(*) FILTER (WHERE NOT state.cut AND g.score IS DISTINCT FROM 1)::int
    FROM {GRADED_ANSWERS}
    WHERE {IN_SCOPE} AND t.condition_id = %(condition)s AND t.status = 'done' AND t.output_tokens IS NOT NULL
        AND {TASK} = %(task)s
    GROUP BY 1 ORDER BY 1"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class AnswerLengths:
    """The number of answers by their output tokens: cut off, right, and finished but not right."""

    tokens: list[int]
    cut: list[int]
    right: list[int]
    wrong: list[int]

    @property
    def answers(self) -> int:
        return sum(self.cut) + sum(self.right) + sum(self.wrong)

    def estimate_survival(self) -> list[SurvivalStep]:
        """Return the share of unfinished answers by tokens. A cut-off answer is censored at its cut."""
        events = Counter(dict(zip(self.tokens, map(sum, zip(self.right, self.wrong, strict=True)), strict=True)))
        return thin_steps(kaplan_meier(events, dict(zip(self.tokens, self.cut, strict=True))))

    def estimate_share_until(self, counts: Sequence[int], tokens: int) -> tuple[float, float, float]:
        """Return the share of answers of this kind that end within `tokens`, with its interval."""
        total = sum(count for length, count in zip(self.tokens, counts, strict=True) if length <= tokens)
        interval = wilson(total, self.answers)
        return total / self.answers, interval.low, interval.high

    def estimate_share_curve(self, counts: Sequence[int]) -> list[tuple[float, float, float, float]]:
        """Return (tokens, share, low, high): the share of answers of this kind that end within the tokens."""
        n, total, curve = self.answers, 0, []
        for tokens, count in zip(self.tokens, counts, strict=True):
            total += count
            if count:
                interval = wilson(total, n)
                curve.append((float(tokens), total / n, interval.low, interval.high))
        return curve


@dataclass(frozen=True, slots=True)
class LengthQuery:
    experiment: Experiment
    grader: int
    condition: int
    task: str
    wave: Wave | None = None


def count_lengths(query: LengthQuery) -> AnswerLengths:
    """Count the answers of one condition in one task by length, in one statement."""
    parameters: Any = {
        "experiment": query.experiment.pk,
        "wave": query.wave.pk if query.wave else None,
        "grader": query.grader,
        "condition": query.condition,
        "task": query.task,
    }
    rows = fetch_rows(LENGTHS, parameters)
    if len(rows) > MAX_LENGTHS:
        rows = _merge_lengths(rows)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    return AnswerLengths(*columns)


def _merge_lengths(rows: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return at most MAX_LENGTHS rows. A band is at its upper end, so that no answer ends too early."""
    width = math.ceil(rows[-1][0] / MAX_LENGTHS)
    bands: dict[int, list[int]] = {}
    for tokens, *counts in rows:
        band = bands.setdefault(math.ceil(tokens / width) * width, [0, 0, 0])
        for index, count in enumerate(counts):
            band[index] += count
    return [(tokens, *counts) for tokens, counts in bands.items()]  # type: ignore[misc]


ANSWER_LENGTHS = make_answer_aggregate(
    "answer_lengths",
    AnswerLengths,
    count_lengths,
    dump=lambda query: [query.grader, query.condition, query.task],
    load=lambda experiment, wave, values: LengthQuery(experiment, values[0], values[1], values[2], wave),
    step="counting answers by length",
    max_rows=60,
)


def get_lengths(query: LengthQuery) -> Cached[AnswerLengths]:
    return get_aggregate(ANSWER_LENGTHS, query.experiment.pk, query)
