"""When enough has been seen: of a run's own failures, or of the cases at one point of a parametric task."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import Literal

from evalsite.lib.stats.t_interval import MeanInterval, bounded_mean
from evalsite.lib.stats.wilson import Interval, wilson

Correction = Literal["mapped", "excess_counts"]
Scale = tuple[int, int]  # The least and the highest rating.


MIN_FAILURES = 5


def should_stop_itself(
    attempts: int, permanent_failures: int, *, threshold: float | Decimal = 0.05, minimum: int = 20
) -> str | None:
    """Return the reason to stop, for the history, or None to go on.

    A run stops when the share of its attempts that failed permanently is above `threshold` beyond doubt: after
    `minimum` attempts and MIN_FAILURES failures, the lower bound of the share's 95 % Wilson interval is above it. A
    wrong key, model name or parameter is then not paid for ten thousand times, and two failures of 29 are no reason.
    """
    failures = min(permanent_failures, attempts)
    if attempts < minimum or failures < MIN_FAILURES:
        return None
    low = wilson(failures, attempts).low
    if low <= threshold:
        return None
    return (
        f"{failures:,} of {attempts:,} attempts failed for good ({failures / attempts:.1%}). The share is above "
        f"{low:.1%} with 95 % confidence, and {float(threshold):.1%} is the limit."
    )


class Cases:
    """What is common to what is known of a point: `total` answers that were scored, `truncated` that were cut off."""

    __slots__ = ()
    total: int
    truncated: int

    @property
    def cases(self) -> int:
        return self.total + self.truncated

    @property
    def truncation(self) -> float:
        """The share of cases whose answer was cut off; 0 of none."""
        return self.truncated / self.cases if self.cases else 0.0


@dataclass(frozen=True, slots=True)
class Tally(Cases):
    """Right and wrong answers at a point. total: answers that were not cut off, correct among them; truncated: those.

    guess_chances: the sum over the `total` of each case's chance to be right by guessing.
    ValueError for counts that cannot be.
    """

    correct: int
    total: int
    truncated: int = 0
    guess_chances: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.correct <= self.total and self.truncated >= 0 and 0 <= self.guess_chances <= self.total):
            raise ValueError(f"no tally: {self}")

    def interval(self, confidence: float = 0.95, correction: Correction = "mapped") -> Interval | None:
        """The interval of the accuracy beyond guessing; None where guessing leaves nothing to be known.

        "mapped": Wilson's interval of the answers as they are, mapped by (p - g) / (1 - g), g the mean guess chance. It
        covers as often as Wilson's own, near the level of guessing, too. "excess_counts": Wilson's interval of
        (max(0, correct - G), total - G), G the guess chances, which other tools publish: it takes guesses for known, so
        near guessing it is too narrow and covers far less often than it says (simulated .46 to .89, not .95).
        """
        left = self.total - self.guess_chances
        if left <= 1e-9:
            return None
        if correction == "excess_counts":
            return wilson(max(0.0, self.correct - self.guess_chances), left, confidence)
        return wilson(self.correct, self.total, confidence).beyond_guessing(self.guess_chances / self.total)


@dataclass(frozen=True, slots=True)
class Ratings(Cases):
    """Ratings at a point. total: those that were read and not cut off, of so many items; truncated: those cut off.

    mean, spread: of the items' own means, and the sample standard deviation of these (0 of one item). An item's
    repetitions are averaged first, since they say more about the item than about the point: so each item counts once.
    ValueError for numbers that cannot be.
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
            raise ValueError(f"no ratings: {self}")

    def interval(self, confidence: float = 0.95) -> MeanInterval | None:
        """Of the mean rating, in points of the scale: `bounded_mean` over items; None before any rating was read."""
        return bounded_mean(self.items, self.mean, self.spread, self.scale, confidence) if self.items else None


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next at a point, and why, in words for the record. half_width: of the interval, None without one."""

    kind: Literal["enough", "more", "abort", "exhausted"]
    reason: str
    half_width: float | None = None


SHARES = ("abortht", "backoffht")
WIDTHS = ("targetci", "targetciht", "minci")


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """How many cases a point gets, judged after each round of them.

    targetci: the half-width of the interval at which a point is known well enough; None: one round is enough.
    targetciht, backoffht: the half-width wanted instead where the share of truncated answers is above backoffht.
    abortht: above this share of truncated answers the point is given up. minci: no half-width below it is asked for.
    maximum: the cases at which a point ends in any case.

    Half-widths are shares of one where answers are right or wrong, and points of the scale where they are ratings;
    widest: the largest that can be meant.

    correction: how guessing is taken off, as in `Tally.interval`. Looking after each round costs little coverage:
    `coverage.py` holds what was simulated.
    ValueError for a half-width outside 0 to `widest`, a share outside 0 to 1, a maximum below 1, or one of targetciht
    and backoffht alone.
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
        shares, widths = dict.fromkeys(SHARES, 1.0), dict.fromkeys(WIDTHS, self.widest)
        for name, most in (shares | widths).items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name} lies between 0 and {most:g}, not at {value}")
        if self.maximum < 1:
            raise ValueError(f"a point takes at least one case, not {self.maximum}")
        if (self.targetciht is None) != (self.backoffht is None):
            raise ValueError("targetciht and backoffht come together")

    def target(self, truncation: float) -> float | None:
        """The half-width wanted at this share of truncated answers; None where none is wanted."""
        strict = self.targetciht is not None and self.backoffht is not None and truncation > self.backoffht
        wanted = self.targetciht if strict else self.targetci
        return None if wanted is None else max(wanted, self.minci)

    def half_width(self, known: Tally | Ratings) -> float | None:
        """Of the interval of the accuracy or the mean; None where nothing is known."""
        if isinstance(known, Ratings):
            mean = known.interval(self.confidence)
            return None if mean is None else mean.margin
        accuracy = known.interval(self.confidence, self.correction)
        return None if accuracy is None else accuracy.margin

    def decide(self, tally: Tally | Ratings, *, asked: int = 0) -> Decision:
        """What comes next at a point whose round is all in; `asked` counts the cases that brought no answer, too."""
        if not tally.cases and asked < self.maximum:
            return Decision("more", "no answer has come yet")
        width = self.half_width(tally)
        if self.abortht is not None and tally.truncation > self.abortht:
            return Decision("abort", f"{_cut_off(tally)}, above the {self.abortht:.1%} to give up at", width)
        target = self.target(tally.truncation)
        if target is None:
            return Decision("enough", f"{tally.cases:,} cases, and no interval was asked for", width)
        known = f"{_width(width, tally)} after {tally.cases:,} cases"
        if width is not None and width <= target:
            return Decision("enough", f"{known}, within ±{target:g}", width)
        if max(tally.cases, asked) >= self.maximum:
            return Decision("exhausted", f"{known}, the maximum; wanted ±{target:g}", width)
        return Decision("more", f"{known}, wanted ±{target:g}", width)


SKILLS = tuple(step / 20 for step in range(21))  # Accuracies beyond guessing, from none to all.


@lru_cache(maxsize=4096)
def expected_cases(rule: StoppingRule, per_round: int, guess: float = 0.0) -> float:
    """The mean number of cases at the stop, in rounds of `per_round`, if every accuracy is equally likely.

    Each point is taken to answer just as its accuracy says, none of it cut off; `guess` is a case's guess chance.
    """

    def width(cases: int, skill: float) -> float:
        right = skill + (1 - skill) * guess
        return wilson(right * cases, cases, rule.confidence).beyond_guessing(guess).margin

    if guess >= 1:
        return rule.maximum
    return sum(_cases_until(rule, per_round, partial(width, skill=skill)) for skill in SKILLS) / len(SKILLS)


SPREADS = tuple(step / 60 for step in range(21))  # Of items' ratings: from none to a third of the scale's length.


@lru_cache(maxsize=4096)
def expected_ratings(rule: StoppingRule, per_round: int, scale: Scale, items: int) -> float:
    """As `expected_cases`, of ratings around the middle of the scale, if every spread of the items is equally likely.

    All spread is taken to lie between the `items` of the point: once all are rated, their repetitions tell no more. A
    third of the scale's length is about the spread of ratings that fall on each of its points equally often.
    """
    low, high = scale

    def width(cases: int, spread: float) -> float:
        return bounded_mean(min(cases, items), (low + high) / 2, spread * (high - low), scale, rule.confidence).margin

    return sum(_cases_until(rule, per_round, partial(width, spread=spread)) for spread in SPREADS) / len(SPREADS)


def _cases_until(rule: StoppingRule, per_round: int, width: Callable[[int], float]) -> int:
    """The cases after which an interval, whose half-width falls with the cases, is narrow enough for the rule."""
    rounds, target = range(1, -(-rule.maximum // per_round) + 1), rule.target(0)

    def stops(n: int) -> bool:
        return target is None or width(min(n * per_round, rule.maximum)) <= target

    return min((bisect_left(rounds, True, key=stops) + 1) * per_round, rule.maximum)


def _cut_off(tally: Cases) -> str:
    return f"{tally.truncated:,} of {tally.cases:,} answers were cut off ({tally.truncation:.1%})"


def _width(width: float | None, known: Cases) -> str:
    if width is not None:
        return f"the interval is ±{width:.4f}"
    return "no rating was read" if isinstance(known, Ratings) else "nothing is known beyond guessing"
