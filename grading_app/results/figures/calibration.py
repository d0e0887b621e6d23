"""Calibration of judges: what a reference gave to the answers that a judge scored alike.

The reference is the adjudicated score if there is one, else the people of a queue, else a rule. The database adds up
the pairs of scores; no row per answer is read. Over many answers, a worker does so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalsite.lib.sql import fetch_rows
from grading_app.models import GradeCondition
from grading_app.results import plot_style
from grading_app.results.cached_aggregates import make_answer_aggregate
from grading_app.results.figure import Figure
from grading_app.results.scores import ALL_ZERO_OR_ONE, Measure, estimate, list_grader_measures, make_parameters
from grading_app.results.statistic_format import format_coefficient
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.intervals import Bounds
from grading_app.statistics.item_scores import ItemScores
from runs_app.models import Experiment, Wave

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

BINS = 10
"""Scores are rounded to this many steps of the judge's scale; a scale with fewer points keeps them."""
MAX_PANELS = 12


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers that a judge scored alike: its score, and the mean of the reference with its interval."""

    score: float
    n: int
    items: int
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """One judge against the reference. judge_ends, reference_ends: the ends of their scales."""

    judge: str
    reference: str
    judge_ends: Bounds
    reference_ends: Bounds
    bins: list[Bin]

    @property
    def error(self) -> float:
        """The expected calibration error: the mean distance of both scores, as shares of their scales, over answers."""
        n = sum(score_bin.n for score_bin in self.bins)
        return (
            sum(
                score_bin.n
                * abs(_rescale(score_bin.score, self.judge_ends) - _rescale(score_bin.mean, self.reference_ends))
                for score_bin in self.bins
            )
            / n
        )


def _rescale(value: float, ends: Bounds) -> float:
    return (value - ends[0]) / (ends[1] - ends[0])


@dataclass(frozen=True, slots=True)
class Calibrations:
    """The calibrations of all judges of an experiment."""

    rows: list[Calibration]


@dataclass(frozen=True, slots=True)
class CalibrationQuery:
    """A query for the calibrations of an experiment, over all waves."""

    experiment: Experiment
    wave: Wave | None = None


CALIBRATION = make_answer_aggregate(
    "calibration",
    Calibrations,
    lambda query: Calibrations(load_calibrations(query.experiment)),
    dump=lambda _: [],
    load=lambda experiment, wave, _: CalibrationQuery(experiment, wave),
    step="comparing judges with a reference",
)


def make_figure(calibrations: list[Calibration]) -> Figure | None:
    """Return the figure of these judges; None if there are none, because no judge shares answers with a reference."""
    if not calibrations:
        return None
    return Figure(
        "calibration",
        f"Calibration of judges against {calibrations[0].reference}",
        "Mean score of the reference for the answers that the judge scored alike, with 95 % intervals clustered by "
        "item. On the dashed line, both agree. Larger points stand for more answers. ECE: expected calibration "
        "error, the mean distance as a share of the scale.",
        "; ".join(f"{calibration.judge}: calibration error {calibration.error:.3f}" for calibration in calibrations),
        lambda width: (width, _make_grid(calibrations, width).height),
        lambda width: _draw(calibrations, _make_grid(calibrations, width)),
        lambda: _build_table(calibrations),
        page="experiment_agreement",
        in_report=True,
    )


def load_calibrations(experiment: Experiment) -> list[Calibration]:
    """Return one calibration for each judge or panel that shares answers with the reference."""
    graders = list_grader_measures(experiment)
    judges = [measure for measure in graders if measure.kind in ("judge", "panel")]
    reference = _find_reference(experiment, graders) if judges else None
    if reference is None:
        return []
    calibrations = [_estimate_calibration(experiment, judge, reference) for judge in judges[:MAX_PANELS]]
    return [calibration for calibration in calibrations if calibration is not None]


def _find_reference(experiment: Experiment, graders: list[Measure]) -> Measure | None:
    """Return the adjudicated scores, or else the people of a queue, or else a rule."""
    for grader in experiment.grade_conditions.filter(kind=GradeCondition.Kind.ADJUDICATED).order_by("pk"):
        if grader.scale:
            return Measure("", "adjudicated scores", grader.kind, grader.pk, None, *grader.scale.ends)
    with_scale = [measure for measure in graders if measure.length]
    return next((measure for kind in ("person", "rule") for measure in with_scale if measure.kind == kind), None)


SCORES_BY_BIN = f"""SELECT item_id, bin, count(score), 0, avg(score), var_pop(score) * count(score),
        {ALL_ZERO_OR_ONE} FROM (
    SELECT g.item_id, g.score, round((j.score - %(low)s) / %(step)s)::int AS bin
    FROM grading_app_grading j JOIN grading_app_answerscore g ON g.trial_id = j.trial_id
    WHERE j.condition_id = %(judge)s AND j.score IS NOT NULL AND g.experiment_id = %(experiment)s
        AND g.grader_kind = %(kind)s AND g.grader_id = %(grader)s AND g.score IS NOT NULL) AS pairs
    GROUP BY 1, 2 ORDER BY 2, 1"""  # noqa: S608 - constants


def _estimate_calibration(experiment: Experiment, judge: Measure, reference: Measure) -> Calibration | None:
    if judge.low is None or judge.high is None or not judge.length:
        return None
    step = 1.0 if 1 <= judge.length <= BINS and float(judge.length).is_integer() else judge.length / BINS
    parameters = make_parameters(experiment, reference) | {"judge": judge.grader, "low": judge.low, "step": step}
    rows = fetch_rows(SCORES_BY_BIN, parameters)
    if not rows:
        return None
    items, steps = (list(dict.fromkeys(row[at] for row in rows)) for at in (0, 1))
    scores = ItemScores.from_rows([row[:6] for row in rows], items, steps, is_binary=all(row[6] for row in rows))
    ends = (reference.low or 0.0, reference.high or 1.0)
    bins = [
        Bin(judge.low + at * step, one.n, one.items, one.mean, one.low, one.high)
        for at in steps
        if (one := estimate(scores, reference, at)).mean is not None
    ]
    return Calibration(judge.label, reference.label, (judge.low, judge.high), ends, bins)


def _build_table(calibrations: list[Calibration]) -> ResultTable:
    columns = [
        ResultColumn("judge", "Judge"),
        ResultColumn("score", "Judge's score", "number"),
        ResultColumn("n", "Answers", "count"),
        ResultColumn("items", "Items", "count"),
        ResultColumn("mean", "Mean of the reference", "number"),
        ResultColumn("interval", "95 % interval", "interval"),
    ]
    rows = [
        {
            "judge": calibration.judge,
            "score": score_bin.score,
            "n": score_bin.n,
            "items": score_bin.items,
            "mean": score_bin.mean,
            "interval": (score_bin.low, score_bin.high) if score_bin.low is not None else None,
        }
        for calibration in calibrations
        for score_bin in calibration.bins
    ]
    return ResultTable("calibration", f"Calibration of judges against {calibrations[0].reference}", columns, rows)


def _make_grid(calibrations: list[Calibration], width: int) -> plot_style.Grid:
    columns = max(1, min(3, len(calibrations), width // 170))
    return plot_style.Grid(
        len(calibrations), columns, width, panel_height=170, left=48, right=16, top=44, bottom=44, gap_x=44, gap_y=62
    )


def _draw(calibrations: list[Calibration], grid: plot_style.Grid) -> Drawing:
    figure, axes = grid.make_panels()
    for place, (axis, calibration) in enumerate(zip(axes, calibrations, strict=True)):
        axis.plot(calibration.judge_ends, calibration.reference_ends, color=plot_style.RULE,
                  linewidth=plot_style.PIXEL, dashes=(4, 4), zorder=1)  # fmt: skip
        max_n = max(score_bin.n for score_bin in calibration.bins)
        for score_bin in calibration.bins:
            if score_bin.low is not None and score_bin.high is not None:
                axis.plot([score_bin.score] * 2, [score_bin.low, score_bin.high], color=plot_style.DATA,
                          linewidth=1.4 * plot_style.PIXEL)  # fmt: skip
            axis.plot([score_bin.score], [score_bin.mean], marker="o", color=plot_style.DATA, clip_on=False,
                      markersize=(4 + 7 * (score_bin.n / max_n) ** 0.5) * plot_style.PIXEL)  # fmt: skip
        margins = [0.05 * (ends[1] - ends[0]) for ends in (calibration.judge_ends, calibration.reference_ends)]
        axis.set_xlim(calibration.judge_ends[0] - margins[0], calibration.judge_ends[1] + margins[0])
        axis.set_ylim(calibration.reference_ends[0] - margins[1], calibration.reference_ends[1] + margins[1])
        plot_style.write_head(axis, plot_style.shorten(calibration.judge, 0.88 * grid.panel_width), offset=19)
        answers = sum(score_bin.n for score_bin in calibration.bins)
        text = f"ECE {format_coefficient(calibration.error)}, {answers} answers"
        plot_style.write_note(axis, 0, 1, text, va="bottom", offset=5,
                        color=plot_style.TEXT)  # fmt: skip
        plot_style.draw_gridlines(axis, "y")
        if place % grid.columns == 0:
            axis.set_ylabel("Reference", fontsize=plot_style.SMALL, color=plot_style.MUTED)
        if place + grid.columns >= len(calibrations):
            axis.set_xlabel("Judge's score", fontsize=plot_style.SMALL, color=plot_style.MUTED)
    return figure
