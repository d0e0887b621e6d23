"""ReasonScape's scores of a model over tasks: the cell of one task, ReasonScore, and its second version.

All scores start from the counts of each task: a `Tally` of all answers, or the `PointTallies` of its points, which then
have equal weights. A tally has correct, scored and truncated answers, and the sum G of the scored cases' guess chances.
Truncated answers are not scored; their ratio is truncated / (scored + truncated). The interval of a task is Wilson's of
all its answers, mapped to the accuracy beyond guessing.

ReasonScape publishes a description: adjusted center plus margin minus truncation, 1000 times the geometric mean over
tasks; and for the second version, a bootstrap of the geometric mean from 10 to 1000. The center and margin of the first
version are Wilson's of (max(0, correct - G), scored - G). Docstrings mark formulas that are Evalsite's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evalsite.lib.stats import Interval, normal_quantile
from grading_app.statistics.intervals import bounded_score_interval
from runs_app.stopping.rules import Tally

MAX_SCORE = 1000.0
MIN_CHANCE = (
    0.01  # The lowest chance of a task, so that the second version ranges from 10 to 1000. Evalsite's own choice.
)
MIN_SHOWN_TRUNCATION = 0.02  # Cells show truncation above this share.
MIN_TASKS = 10
"""Below this number of tasks, the second version has no interval: it would reach over nearly all possible scores."""


@dataclass(frozen=True)
class PointTallies:
    """The answers of one model to one task, by point. Every point has the same weight, whatever its number of answers.

    An adaptive design asks more cases where answers vary, so that the share of right answers depends on its stopping
    rule. The mean over points does not. It is the mean over the points with a scored answer.
    """

    tallies: tuple[Tally, ...]

    @cached_property
    def answered(self) -> tuple[Tally, ...]:
        """The points with scored answers that are not all right by guessing."""
        return tuple(tally for tally in self.tallies if tally.total and tally.total - tally.guess_chances > 1e-9)

    @property
    def cases(self) -> int:
        return sum(tally.cases for tally in self.tallies)

    @property
    def total(self) -> int:
        return sum(tally.total for tally in self.answered)

    @property
    def truncation(self) -> float:
        """Return the mean over points of the share of truncated answers."""
        shares = [tally.truncation for tally in self.tallies if tally.cases]
        return math.fsum(shares) / len(shares) if shares else 0.0

    @property
    def mean(self) -> float | None:
        """Return the mean over points of the accuracy beyond guessing, from 0 to 1; None without scored answers."""
        if not self.answered:
            return None
        return min(1.0, max(0.0, math.fsum(_estimate_skill(tally) for tally in self.answered) / len(self.answered)))

    @property
    def chance(self) -> float:
        """Return the mean over points of the chance of a complete, right answer beyond guessing."""
        chances = [_estimate_skill(tally) * (1 - tally.truncation) for tally in self.answered]
        cut = sum(1 for tally in self.tallies if tally.cases and not tally.total)
        return math.fsum(chances) / (len(chances) + cut) if chances else 0.0

    def interval(self, confidence: float = 0.95) -> Interval | None:
        """Return the interval of the mean over points, within 0 and 1; None without scored answers.

        Each of the k points gets 2 / k right and 2 / k wrong answers in addition. This gives the shares p_i of n_i
        answers. With the guess chances g_i, the interval is that of a normal distribution around the mean of
        (p_i - g_i) / (1 - g_i), with the variance sum p_i (1 - p_i) / (n_i (1 - g_i)^2) / k^2. The added answers keep
        the variance above 0. Repetitions of items count as their effective number of answers.
        R. M. Price & D. G. Bonett (2004), "An improved confidence interval for a linear function of binomial
        proportions", Computational Statistics & Data Analysis 45, 449-456.
        """
        k = len(self.answered)
        if not k:
            return None
        mean = variance = 0.0
        for tally in self.answered:
            weight = 1.0 if tally.effective is None else tally.effective / tally.total
            n, guess = tally.total * weight + 4 / k, tally.guess_chances / tally.total
            share = (tally.correct * weight + 2 / k) / n
            mean += (share - guess) / (1 - guess) / k
            variance += share * (1 - share) / n / ((1 - guess) * k) ** 2
        # A mean below the level of guessing counts as 0, so that the interval does not end below it.
        mean, margin = min(1.0, max(0.0, mean)), normal_quantile(confidence) * math.sqrt(variance)
        low, high = max(0.0, mean - margin), min(1.0, mean + margin)
        return Interval((low + high) / 2, (high - low) / 2)


Counts = Tally | PointTallies


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task of one model. interval: corrected for guessing; None without scored answers. truncation: 0 to 1.

    value: the estimate of the accuracy beyond guessing, from 0 to 1. optimistic: the task's part of the first
    ReasonScore.
    """

    interval: Interval | None
    truncation: float
    complete: bool = True
    value: float | None = None
    optimistic: float = 0.0

    def describe(self) -> str:
        """Return a text such as `.84 - .97 [-.05]*`, or N/A without an interval.

        The bracket is truncation above 2 %. The star marks an incomplete task.
        """
        ends = self.interval
        text = "N/A" if ends is None else f"{format_share(ends.low)} - {format_share(ends.high)}"
        truncation = f" [-{format_share(self.truncation)}]" if self.truncation > MIN_SHOWN_TRUNCATION else ""
        return f"{text}{truncation}{'' if self.complete else '*'}"


@dataclass(frozen=True, slots=True)
class ReasonScore:
    """A score from 0 (or 10) to 1000 over tasks. low, high: its interval; None without one.

    missing: the tasks without answers. Pages mark incomplete scores with *.
    """

    score: float
    tasks: int
    missing: tuple[str, ...] = ()
    incomplete: bool = False
    low: float | None = None
    high: float | None = None

    @property
    def marked(self) -> str:
        """The score without decimals, with * if it is incomplete."""
        return f"{self.score:.0f}{'*' if self.incomplete else ''}"

    def per_token(self, tokens: int, answers: int) -> float | None:
        """Return the score divided by the mean number of tokens of an answer; None without tokens."""
        return self.score * answers / tokens if tokens > 0 and answers > 0 else None


def score_task(counts: Counts, *, complete: bool = True) -> TaskScore:
    """Return the cell of one task. complete: all planned cases have an answer.

    The optimistic score is center + margin - truncation, but at least 0. It favours few cases and penalizes truncated
    answers. Without scored answers, center and margin are 0. Of pooled answers, they are Wilson's of the excess counts.
    All this is as in ReasonScape's evaluation, except the lower limit, which is Evalsite's own.
    """
    if isinstance(counts, PointTallies):
        interval = published = counts.interval()
        value = counts.mean
    else:
        interval = counts.interval() if counts.total else None
        published = counts.interval(correction="excess_counts") if interval else None
        value = min(1.0, max(0.0, _estimate_skill(counts))) if interval else None
    upper = published.center + published.margin if published else 0.0
    return TaskScore(interval, counts.truncation, complete, value, max(0.0, upper - counts.truncation))


def _estimate_skill(tally: Tally) -> float:
    """Return the accuracy beyond guessing, which is below 0 for fewer right answers than by guessing."""
    return (tally.correct - tally.guess_chances) / (tally.total - tally.guess_chances)


def reason_score(tallies: Mapping[str, Counts], *, incomplete: Iterable[str] = ()) -> ReasonScore | None:
    """Return ReasonScore: 1000 times the geometric mean over tasks of center + margin - truncation.

    incomplete: tasks with planned cases that have no answer. Tasks without answers are excluded and make the score
    incomplete. Return None if no task has answers. A single task of 0 makes the score 0.
    """
    answered, missing = _split_by_answers(tallies)
    if not answered:
        return None
    score = MAX_SCORE * geometric_mean([score_task(tally).optimistic for tally in answered.values()])
    return ReasonScore(score, len(answered), missing, bool(missing) or bool(set(incomplete) & set(tallies)))


def chance_correct(tally: Counts) -> float:
    """Return the chance of a complete, right answer beyond guessing, from MIN_CHANCE to 1. Evalsite's own estimator.

    max(0, correct - G) / (scored - G), times the share of answers that are not truncated. So truncation is a factor,
    not a penalty. Of several points, the mean.
    """
    if isinstance(tally, PointTallies):
        return min(1.0, max(MIN_CHANCE, tally.chance))
    beyond_guessing = tally.total - tally.guess_chances
    skill = max(0.0, tally.correct - tally.guess_chances) / beyond_guessing if beyond_guessing > 1e-9 else 0.0
    return min(1.0, max(MIN_CHANCE, skill * (1 - tally.truncation)))


def chance_score(tallies: Mapping[str, Counts], *, incomplete: Iterable[str] = ()) -> ReasonScore | None:
    """Return the second ReasonScore: 1000 times the geometric mean over tasks of `chance_correct`, from 10 to 1000.

    The interval shows how the score depends on the choice of tasks, without the error from each task's cases. It is
    Evalsite's own (`estimate_geometric_mean`). Below MIN_TASKS tasks there is none.
    """
    answered, missing = _split_by_answers(tallies)
    if not answered:
        return None
    chances = [chance_correct(answered[name]) for name in sorted(answered)]
    low, high = estimate_geometric_mean(chances) or (None, None)
    is_incomplete = bool(missing) or bool(set(incomplete) & set(tallies))
    return ReasonScore(
        MAX_SCORE * geometric_mean(chances),
        len(chances),
        missing,
        is_incomplete,
        None if low is None else MAX_SCORE * low,
        None if high is None else MAX_SCORE * high,
    )


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean. Raise ValueError for no values or a negative value."""
    if not values or min(values) < 0:
        raise ValueError(f"no geometric mean: {list(values)[:10]}")
    if min(values) == 0:
        return 0.0
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def estimate_geometric_mean(chances: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the interval over tasks of the geometric mean of chances from MIN_CHANCE to 1; None below MIN_TASKS.

    It is the score interval of the mean logarithm on its scale, `bounded_score_interval`, which allows for tasks at
    both ends. ReasonScape's percentile bootstrap covers 66 % over ten tasks if one task in ten is failed, and 85 to
    91 % for other populations of tasks.
    """
    n = len(chances)
    if n < MIN_TASKS:
        return None
    logs = [math.log(chance) for chance in chances]
    mean = math.fsum(logs) / n
    se = math.sqrt(math.fsum((value - mean) ** 2 for value in logs) / (n - 1) / n)
    low, high = bounded_score_interval(min(0.0, mean), se, n, (math.log(MIN_CHANCE), 0.0), confidence)
    return math.exp(low), math.exp(high)


def _split_by_answers(tallies: Mapping[str, Counts]) -> tuple[dict[str, Counts], tuple[str, ...]]:
    """Return the tasks with answers, and the names of the other tasks."""
    answered = {name: tally for name, tally in tallies.items() if tally.cases}
    return answered, tuple(sorted(set(tallies) - set(answered)))


def format_share(value: float) -> str:
    """Return a share such as `.84`; 1 is `1.00`."""
    return f"{value:.2f}".removeprefix("0") if value < 0.995 else "1.00"
