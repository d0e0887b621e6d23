"""Stopping rules: for runs that fail too often, and for the cases of a point in an adaptive design."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import Literal

from evalsite.lib.stats import Interval, MeanInterval, compute_bounded_interval, wilson

Correction = Literal["mapped", "excess_counts"]
Scale = tuple[int, int]  # The lowest and the highest rating.


MIN_FAILURES = 5


def find_stop_reason(
    attempts: int, permanent_failures: int, *, threshold: float | Decimal = 0.05, minimum: int = 20
) -> str | None:
    """Return the reason to stop a run, for its history, or None to continue.

    A run stops if its share of permanently failed attempts is above `threshold` with 95 % confidence: the lower end of
    the share's Wilson interval must be above `threshold`. It needs at least `minimum` attempts and MIN_FAILURES
    failures. A run with a wrong key, model name or parameter stops early. Two failures in 29 attempts do not stop it.
    """
    failures = min(permanent_failures, attempts)
    if attempts < minimum or failures < MIN_FAILURES:
        return None
    low = wilson(failures, attempts).low
    if low <= threshold:
        return None
    return (
        f"{failures:,} of {attempts:,} attempts failed permanently ({failures / attempts:.1%}). The share is above "
        f"{low:.1%} with 95 % confidence, and {float(threshold):.1%} is the limit."
    )


class Cases:
    """The counts of both kinds of points: `total` scored answers and `truncated` answers."""

    __slots__ = ()
    total: int
    truncated: int

    @property
    def cases(self) -> int:
        return self.total + self.truncated

    @property
    def truncation(self) -> float:
        """Return the share of cases with a truncated answer; 0 without cases."""
        return self.truncated / self.cases if self.cases else 0.0


@dataclass(frozen=True, slots=True)
class Tally(Cases):
    """Right and wrong answers at a point.

    `total` counts scored answers without truncated ones, `truncated` truncated answers. `guess_chances` is the sum of
    the chances to guess right over the `total`. If items have several answers, `effective` is the number of independent
    answers that the `total` is worth (`effective_size`); otherwise None. Raise ValueError for impossible counts.
    """

    correct: int
    total: int
    truncated: int = 0
    guess_chances: float = 0.0
    effective: float | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.correct <= self.total and self.truncated >= 0 and 0 <= self.guess_chances <= self.total):
            raise ValueError(f"impossible counts: {self}")
        if self.effective is not None and not 0 < self.effective <= self.total + 1e-9:
            raise ValueError(f"impossible counts: {self}")

    def interval(self, confidence: float = 0.95, correction: Correction = "mapped") -> Interval | None:
        """Return the interval of the accuracy beyond guessing; None if the guess chances add up to the total.

        "mapped" is Wilson's interval of the raw answers, mapped by (p - g) / (1 - g), where g is the mean guess chance.
        Its coverage equals that of Wilson's interval, also near the level of guessing.

        "excess_counts" is Wilson's interval of (max(0, correct - G), total - G), where G is the sum of guess chances.
        Other tools publish it. It treats guesses as certain, so it is too narrow near the level of guessing: simulated
        coverage .46 to .89 instead of .95.

        If items have several answers, both use the effective number of answers in place of the total, at the same
        shares.
        """
        excess_total = self.total - self.guess_chances
        if excess_total <= 1e-9:
            return None
        weight = 1.0 if self.effective is None else self.effective / self.total
        if correction == "excess_counts":
            return wilson(max(0.0, self.correct - self.guess_chances) * weight, excess_total * weight, confidence)
        share = wilson(self.correct * weight, self.total * weight, confidence)
        return share.beyond_guessing(self.guess_chances / self.total)


@dataclass(frozen=True, slots=True)
class PointRatings(Cases):
    """Ratings at a point.

    `items` is the number of rated items. `total` counts ratings without truncated answers, `truncated` truncated
    answers. `mean` is the mean of the items' own means, `spread` their sample standard deviation (0 for one item). An
    item's repetitions are averaged first, because they describe the item rather than the point. So each item counts
    once. Raise ValueError for impossible numbers.
    """

    items: int
    total: int
    mean: float
    spread: float
    scale: Scale
    truncated: int = 0

    def __post_init__(self) -> None:
        low, high = self.scale
        is_mean = not self.items or low - 1e-9 <= self.mean <= high + 1e-9
        if not (0 <= self.items <= self.total and self.truncated >= 0 and self.spread >= 0 and is_mean and low < high):
            raise ValueError(f"impossible numbers: {self}")

    def interval(self, confidence: float = 0.95) -> MeanInterval | None:
        """Return the interval of the mean over items, in points of the scale; None without ratings."""
        return (
            compute_bounded_interval(self.items, self.mean, self.spread, self.scale, confidence) if self.items else None
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a point, and its reason for the record. `half_width` is None without an interval."""

    kind: Literal["enough", "more", "abort", "exhausted"]
    reason: str
    half_width: float | None = None


SHARE_FIELDS = ("abortht", "backoffht")
WIDTH_FIELDS = ("targetci", "targetciht", "minci")


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """The rule that decides after each round whether a point needs more cases.

    - `targetci`: the half-width of the interval at which a point is decided. None: one round is enough.
    - `targetciht`, `backoffht`: the half-width to use instead if the share of truncated answers is above `backoffht`.
    - `abortht`: the share of truncated answers above which the point is aborted.
    - `minci`: the smallest target half-width.
    - `maximum`: the number of cases at which a point always ends.
    - `widest`: the largest possible half-width. Half-widths are shares of one for right or wrong answers, and points of
      the scale for ratings.
    - `correction`: the correction for guessing, as in `Tally.interval`.

    A look after each round costs little coverage; `coverage.py` has the simulated values. Raise ValueError for a
    half-width outside 0 to `widest`, a share outside 0 to 1, a maximum below 1, or only one of `targetciht` and
    `backoffht`.
    """

    maximum: int
    targetci: float | None = None
    targetciht: float | None = None
    abortht: float | None = None
    backoffht: float | None = None
    minci: float = 0.0
    confidence: float = 0.95
    correction: Correction = "mapped"
    widest: float = 1.0

    def __post_init__(self) -> None:
        shares, widths = dict.fromkeys(SHARE_FIELDS, 1.0), dict.fromkeys(WIDTH_FIELDS, self.widest)
        for name, most in (shares | widths).items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name} lies between 0 and {most:g}, not at {value}")
        if self.maximum < 1:
            raise ValueError(f"a point needs at least one case, not {self.maximum}")
        if (self.targetciht is None) != (self.backoffht is None):
            raise ValueError("targetciht and backoffht come together")

    def target(self, truncation: float) -> float | None:
        """Return the target half-width at this share of truncated answers; None without a target."""
        backs_off = self.targetciht is not None and self.backoffht is not None and truncation > self.backoffht
        target = self.targetciht if backs_off else self.targetci
        return None if target is None else max(target, self.minci)

    def half_width(self, counts: Tally | PointRatings) -> float | None:
        """Return the half-width of the interval of the accuracy or the mean; None without data."""
        if isinstance(counts, PointRatings):
            mean = counts.interval(self.confidence)
            return None if mean is None else mean.margin
        accuracy = counts.interval(self.confidence, self.correction)
        return None if accuracy is None else accuracy.margin

    def decide(self, tally: Tally | PointRatings, *, n_planned: int = 0) -> Decision:
        """Return the decision about a point whose round is complete.

        `n_planned` also counts cases without an answer.
        """
        if not tally.cases and n_planned < self.maximum:
            return Decision("more", "there is no answer yet")
        width = self.half_width(tally)
        if self.abortht is not None and tally.truncation > self.abortht:
            truncated = f"{tally.truncated:,} of {tally.cases:,} answers were truncated ({tally.truncation:.1%})"
            return Decision("abort", f"{truncated}, above the limit of {self.abortht:.1%}", width)
        target = self.target(tally.truncation)
        if target is None:
            return Decision("enough", f"{tally.cases:,} cases, and the rule has no target interval", width)
        counts = f"{_describe_width(width, tally)} after {tally.cases:,} cases{_describe_effective_size(tally)}"
        if width is not None and width <= target:
            return Decision("enough", f"{counts}, within ±{target:g}", width)
        if max(tally.cases, n_planned) >= self.maximum:
            return Decision("exhausted", f"{counts}, the maximum; the target is ±{target:g}", width)
        return Decision("more", f"{counts}, the target is ±{target:g}", width)


SKILLS = tuple(step / 20 for step in range(21))  # Accuracies beyond guessing, from 0 to 1.


@lru_cache(maxsize=4096)
def expect_cases(rule: StoppingRule, per_round: int, guess: float = 0.0, items: int | None = None) -> float:
    """Return the mean number of cases at the stop, in rounds of `per_round`, if every accuracy is equally likely.

    This assumes that the share of right answers equals its expected value, and that no answer is truncated. All answers
    to an item are assumed equal, so repetitions add nothing. `guess` is the guess chance of a case, `items` the number
    of the point's items.
    """

    def width(cases: int, skill: float) -> float:
        right, cases = skill + (1 - skill) * guess, min(cases, items or cases)
        return wilson(right * cases, cases, rule.confidence).beyond_guessing(guess).margin

    if guess >= 1:
        return rule.maximum
    return sum(_find_cases_until(rule, per_round, partial(width, skill=skill)) for skill in SKILLS) / len(SKILLS)


SPREADS = tuple(step / 60 for step in range(21))  # Spreads of items' ratings: from 0 to a third of the scale's length.


@lru_cache(maxsize=4096)
def expect_ratings(rule: StoppingRule, per_round: int, scale: Scale, items: int) -> float:
    """Return the mean number of ratings at the stop, if every spread of the items is equally likely.

    This assumes ratings around the middle of the scale, and no spread within an item, so repetitions add nothing. A
    third of the scale's length is about the spread of uniform ratings.
    """
    low, high = scale

    def width(cases: int, spread: float) -> float:
        return compute_bounded_interval(
            min(cases, items), (low + high) / 2, spread * (high - low), scale, rule.confidence
        ).margin

    return sum(_find_cases_until(rule, per_round, partial(width, spread=spread)) for spread in SPREADS) / len(SPREADS)


def _find_cases_until(rule: StoppingRule, per_round: int, width: Callable[[int], float]) -> int:
    """Return the number of cases at which the interval is narrow enough. `width` must fall as cases grow."""
    rounds, target = range(1, -(-rule.maximum // per_round) + 1), rule.target(0)

    def stops(n: int) -> bool:
        return target is None or width(min(n * per_round, rule.maximum)) <= target

    return min((bisect_left(rounds, True, key=stops) + 1) * per_round, rule.maximum)


def _describe_effective_size(counts: Tally | PointRatings) -> str:
    """Return a text with the effective number of answers if repetitions made it smaller than their number."""
    if isinstance(counts, PointRatings) or counts.effective is None or round(counts.effective) >= counts.total:
        return ""
    return f" (worth {counts.effective:,.0f} answers to different items)"


def _describe_width(width: float | None, counts: Cases) -> str:
    if width is not None:
        return f"the interval is ±{width:.4f}"
    return "no rating was read" if isinstance(counts, PointRatings) else "guessing explains all answers"
