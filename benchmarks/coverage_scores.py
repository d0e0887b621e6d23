"""Simulated designs for the intervals of means, shares and their changes. `coverage.py` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from evalsite.lib.stats import AnswerSums, compute_bounded_interval, estimate_effective_size
from grading_app.statistics.clusters import ClusterSums
from grading_app.statistics.condition_pairs import odds_ratio_interval
from grading_app.statistics.factorial_model import fit_factors
from grading_app.statistics.fixed_items import estimate_on_these_items
from grading_app.statistics.intervals import estimate_mean
from grading_app.statistics.item_scores import ItemScores
from grading_app.statistics.logistic_mixed_model import LogisticResult, fit_logistic_model
from grading_app.statistics.paired import MIN_CHANGED, estimate_change
from grading_app.statistics.reason_score import PointTallies, estimate_geometric_mean
from grading_app.statistics.variance_components import share_intervals
from runs_app.stopping.rules import Correction, Tally

Draw = np.random.Generator
Ends = tuple[float | None, float | None]
Truths = Iterator[tuple[float, Callable[[], Ends]]]
NONE: Ends = (None, None)
SHARES = (0.5, 0.7, 0.9, 0.95, 0.99)
CORRELATIONS = (0.0, 0.1, 0.3, 0.6)
SCALE = np.arange(1, 8)
# The share of each rating from 1 to 7: spread around the middle, at both ends, skewed, and nearly all alike.
SHAPES = ((0.02, 0.08, 0.2, 0.4, 0.2, 0.08, 0.02), (0.5, 0, 0, 0, 0, 0, 0.5), (0.7, 0.15, 0.07, 0.04, 0.02, 0.01, 0.01),
          (0, 0, 0, 0, 0, 0.05, 0.95))  # fmt: skip
CHANGES = ((0.02, 0.0), (0.1, 0.02), (0.3, 0.05), (0.2, 0.2))


def get_ends(interval: Any) -> Ends:
    return (interval.low, interval.high) if interval else NONE


def compute_sums(values: Any) -> ClusterSums:
    """Return the sums of a table of items x repetitions."""
    items, repetitions = values.shape
    totals = values.sum(axis=1)
    total = float(totals.sum())
    squares = float((values**2).sum())
    return ClusterSums(
        items * repetitions, total, squares, items, float(totals @ totals), repetitions * total, items * repetitions**2
    )


def draw_correct_answers(draw: Draw, p: float, alike: float, items: int, repetitions: int) -> Any:
    """Return answers of 0 and 1, (items, repetitions); answers to one item have the correlation `alike`."""
    more = 1 / alike - 1 if alike else 0.0
    chances = draw.beta(p * more, (1 - p) * more, items) if alike else np.full(items, p)
    return (draw.random((items, repetitions)) < chances[:, None]).astype(float)


def draw_ratings(draw: Draw, shape: tuple[float, ...], items: int, repetitions: int) -> Any:
    """Return ratings that equal the item's own value with probability .7, and are random otherwise."""
    item_values = draw.choice(SCALE, p=shape, size=(items, 1))
    new_values = draw.choice(SCALE, p=shape, size=(items, repetitions))
    return np.where(draw.random((items, repetitions)) < 0.7, item_values, new_values).astype(float)


def simulate_share(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield each truth with a function that draws a sample and returns its interval."""
    for p in SHARES:
        for alike in CORRELATIONS if repetitions > 1 else (0.0,):

            def once(p: float = p, alike: float = alike) -> Ends:
                return get_ends(
                    estimate_mean(compute_sums(draw_correct_answers(draw, p, alike, items, repetitions)), (0, 1))
                )

            yield p, once


def simulate_rating(draw: Draw, items: int, repetitions: int) -> Truths:
    for shape in SHAPES:

        def once(shape: tuple[float, ...] = shape) -> Ends:
            return get_ends(estimate_mean(compute_sums(draw_ratings(draw, shape, items, repetitions)), (1, 7)))

        yield float(SCALE @ shape), once


def simulate_free_mean(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield normal and skewed scores without a scale."""
    for skewed in (False, True):

        def once(skewed: bool = skewed) -> Ends:
            item_means = draw.gamma(2.0, 1.0, (items, 1)) if skewed else draw.normal(2, 1, (items, 1))
            return get_ends(estimate_mean(compute_sums(item_means + draw.normal(0, 0.7, (items, repetitions)))))

        yield 2.0, once


def simulate_rated_point(draw: Draw, items: int, repetitions: int) -> Truths:
    for shape in SHAPES:

        def once(shape: tuple[float, ...] = shape) -> Ends:
            means = draw_ratings(draw, shape, items, repetitions).mean(axis=1)
            return get_ends(compute_bounded_interval(items, float(means.mean()), float(means.std(ddof=1)), (1, 7)))

        yield float(SCALE @ shape), once


def simulate_guessed_point(draw: Draw, items: int, repetitions: int, correction: Correction = "mapped") -> Truths:
    """Yield accuracies beyond a guess chance of one in four, from none to nearly perfect."""
    guess = 0.25
    for skill in (0.0, 0.3, 0.7, 0.95):
        for alike in CORRELATIONS if repetitions > 1 else (0.0,):

            def once(p: float = guess + (1 - guess) * skill, alike: float = alike) -> Ends:
                right = draw_correct_answers(draw, p, alike, items, repetitions)
                totals, n = right.sum(axis=1), items * repetitions
                effective = None
                if repetitions > 1:
                    sums = AnswerSums(
                        n, items, n * repetitions, totals.sum(), totals @ totals, repetitions * totals.sum()
                    )
                    effective = float(estimate_effective_size(sums))
                interval = Tally(int(totals.sum()), n, guess_chances=guess * n, effective=effective).interval(
                    correction=correction
                )
                return get_ends(interval)

            yield skill, once


def simulate_excess_counts(draw: Draw, items: int, repetitions: int) -> Truths:
    return simulate_guessed_point(draw, items, repetitions, "excess_counts")


def simulate_point_mean(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield means over 12 points of the accuracy beyond guessing, with `items` cases at each point."""
    shapes = {
        "falling": np.linspace(1, 0, 12),
        "nearly perfect": np.full(12, 0.99),
        "two levels": np.repeat([1.0, 0.0], 6),
        "middle": np.full(12, 0.6),
        "one weak point": np.append(np.ones(11), 0.5),
    }
    for skills in shapes.values():
        for guess in (0.0, 0.5):

            def once(skills: Any = skills, guess: float = guess) -> Ends:
                rights = draw.binomial(items, guess + (1 - guess) * skills)
                tallies = tuple(Tally(int(right), items, guess_chances=guess * items) for right in rights)
                return get_ends(PointTallies(tallies).interval())

            yield float(skills.mean()), once


def simulate_changed_share(draw: Draw, items: int, repetitions: int) -> Truths:
    for gain, loss in CHANGES:

        def once(gain: float = gain, loss: float = loss) -> Ends:
            kinds = draw.choice([1.0, -1.0, 0.0], size=items, p=[gain, loss, 1 - gain - loss])
            # An item that changes does so in all repetitions; the others are right half of the time.
            noise = (
                (draw.binomial(repetitions, 0.5, items) - draw.binomial(repetitions, 0.5, items)) / repetitions
                if repetitions > 1
                else 0.0
            )
            return _estimate_change(np.where(kinds, kinds, noise), 1.0, once=repetitions == 1)

        yield gain - loss, once


def make_item_scores(answers: Any) -> ItemScores:
    """Return the scores of answers (items, conditions, repetitions)."""
    items, conditions, repetitions = answers.shape
    means = answers.mean(axis=2)
    within = ((answers - means[:, :, None]) ** 2).sum(axis=2)
    n = np.full((items, conditions), repetitions)
    return ItemScores(np.arange(items), np.arange(conditions), n, 0 * n, means, within, False)


def simulate_change_on_the_same_items(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield changes of shares of fixed items, whose answers alone are drawn. At least two repetitions."""
    for level in (0.8, 0.97, 0.99):
        chances = draw.beta(8 * level, 8 * (1 - level), (items, 2, 1))

        def once(chances: Any = chances) -> Ends:
            answers = draw.random((items, 2, repetitions)) < chances
            return get_ends(estimate_on_these_items(make_item_scores(answers.astype(float)), 0, 1, 1.0))

        yield float((chances[:, 1] - chances[:, 0]).mean()), once


def simulate_skewed_mean(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield means of log-normal scores without a scale, such as latencies."""
    for sigma in (1.0, 1.5):

        def once(sigma: float = sigma) -> Ends:
            return get_ends(estimate_mean(compute_sums(np.exp(draw.normal(0, sigma, (items, 1))))))

        yield float(np.exp(sigma**2 / 2)), once


def simulate_unequal_repetitions(draw: Draw, items: int, repetitions: int, related: float = 0.0) -> Truths:
    """Yield shares of items with 1 to 2 n - 1 answers; answers to one item are alike.

    related: by how much the chance of a further answer is higher for items that are always wrong, and lower for items
    that are always right.
    """

    def draw_counts(chances: Any) -> Any:
        return 1 + draw.binomial(2 * repetitions - 2, 0.5 + related * (0.5 - chances))

    for p in SHARES:
        for alike in (0.1, 0.6):
            more = 1 / alike - 1
            pool = draw.beta(p * more, (1 - p) * more, 200_000)
            n_pool = draw_counts(pool)

            def once(pool: Any = pool) -> Ends:
                chances = draw.choice(pool, items)
                n = draw_counts(chances)
                right = draw.binomial(n, chances).astype(float)
                sums = (n.sum(), right.sum(), right.sum(), items, right @ right, n @ right, n @ n)
                return get_ends(estimate_mean(ClusterSums(*map(float, sums)), (0, 1)))

            yield float((pool * n_pool).sum() / n_pool.sum()), once


def simulate_more_answers_to_hard_items(draw: Draw, items: int, repetitions: int) -> Truths:
    return simulate_unequal_repetitions(draw, items, repetitions, related=0.4)


def simulate_missing_answers(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield shares in which wrong answers are often missing, with missing answers counted as wrong."""
    for p in SHARES:

        def once(p: float = p) -> Ends:
            right = draw_correct_answers(draw, p, 0.3 if repetitions > 1 else 0.0, items, repetitions)
            is_missing = draw.random(right.shape) < np.where(right, 0.05, 0.5)
            return get_ends(estimate_mean(compute_sums(np.where(is_missing, 0.0, right)), (0, 1)))

        yield 0.95 * p, once


def simulate_changed_rating(draw: Draw, items: int, repetitions: int) -> Truths:
    for shift, spread in ((0.0, 0.0), (0.5, 0.5), (1.0, 1.5)):

        def once(shift: float = shift, spread: float = spread) -> Ends:
            return _estimate_change(draw.normal(shift, np.sqrt(spread**2 + 0.5 / repetitions), items), 6.0)

        yield shift, once


def simulate_change_at_ceiling(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield changes from a ceiling: of ratings of 7, a few of which fall, and of shares near 1 that rise a little."""
    return _simulate_falls(draw, items) if repetitions == 1 else _simulate_small_gains(draw, items, repetitions)


def _simulate_falls(draw: Draw, items: int) -> Truths:
    for share, fall in ((0.02, 6.0), (0.05, 3.0), (0.1, 2.0)):

        def once(share: float = share, fall: float = fall) -> Ends:
            return _estimate_change(np.where(draw.random(items) < share, -fall, 0.0), 6.0)

        yield -share * fall, once


def _simulate_small_gains(draw: Draw, items: int, repetitions: int) -> Truths:
    for level, gain in ((0.8, 0.1), (0.95, 0.02), (0.97, 0.0)):

        def once(level: float = level, gain: float = gain) -> Ends:
            chances = draw.beta(8 * level, 8 * (1 - level), items)
            rights = [draw.binomial(repetitions, c) for c in (chances, chances + gain * (1 - chances))]
            return _estimate_change((rights[1] - rights[0]) / repetitions, 1.0)

        yield gain * (1 - level), once


def simulate_change_with_odd_items(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield changes of ratings in which a few items fall by 3 points and the others hardly change."""
    for share in (0.05, 0.1):

        def once(share: float = share) -> Ends:
            return _estimate_change(draw.normal(0, 0.25, items) - 3 * (draw.random(items) < share), 6.0)

        yield -3 * share, once


def simulate_odds_ratio(draw: Draw, items: int, repetitions: int) -> Truths:
    for gain, loss in ((0.1, 0.02), (0.3, 0.05), (0.2, 0.2)):

        def once(gain: float = gain, loss: float = loss) -> Ends:
            counts = draw.multinomial(items, [gain, loss, 1 - gain - loss])
            low, high = odds_ratio_interval(int(counts[0]), int(counts[1]))
            return low, float("inf") if high is None else high

        yield gain / loss, once


# The log-odds of conditions, and the standard deviations of items and of item x condition.
LOG_ODDS = (((0.5, 1.3), 1.5, 0.8), ((0.0, 0.0, 0.6, 1.2), 1.0, 0.5), ((2.5, 3.2), 1.2, 0.6))


def fit_drawn_log_odds(
    draw: Draw, log_odds: Any, item_sd: float, interaction_sd: float, items: int, repetitions: int
) -> LogisticResult | None:
    """Return the fit to answers of one factor. Without repetitions, item x condition does not vary."""
    shape = items, len(log_odds)
    levels = np.asarray(log_odds) + draw.normal(0, item_sd, (items, 1))
    levels = levels + draw.normal(0, interaction_sd if repetitions > 1 else 0.0, shape)
    answers = draw.random((*shape, repetitions)) < 1 / (1 + np.exp(-levels[:, :, None]))
    return fit_logistic_model(make_item_scores(answers.astype(float)), {"condition": range(shape[1])})


def simulate_factor_odds(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield the odds ratio of the last and the first condition in a logistic mixed model."""
    for log_odds, item_sd, interaction_sd in LOG_ODDS:

        def once(log_odds: Any = log_odds, item_sd: float = item_sd, interaction_sd: float = interaction_sd) -> Ends:
            fit = fit_drawn_log_odds(draw, log_odds, item_sd, interaction_sd, items, repetitions)
            return fit.ratios[-1].interval if fit and fit.ratios else NONE

        yield float(np.exp(log_odds[-1] - log_odds[0])), once


def estimate_likelihood_ratio_level(draw: Draw, items: int, samples: int, repetitions: int = 5) -> float:
    """Return the largest share of samples in which equal conditions differ; NaN if there is never a fit."""
    rates = []
    for log_odds, item_sd, interaction_sd in LOG_ODDS:
        equal = np.full(len(log_odds), np.mean(log_odds))
        drawn = (
            fit_drawn_log_odds(draw, equal, item_sd, interaction_sd, items, repetitions) for _ in range(samples // 20)
        )
        p_values = [fit.tests[0].p for fit in drawn if fit and fit.tests]
        rates.append(float(np.mean(np.array(p_values) < 0.05)) if p_values else float("nan"))
    return max(rates)


def simulate_variance_share(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield the shares of variance of items, of three conditions, and of their interaction.

    The conditions are the same in all samples: the interval is over items.
    """
    levels = np.array([-0.5, 0.0, 0.5])
    parts = {"item": 1.0, "condition": float(levels.var(ddof=1)), "interaction": 0.3}
    repetition = 0.5 if repetitions > 1 else 0.0
    total = sum(parts.values()) + repetition
    for name, part in {**parts, **({"repetition": repetition} if repetitions > 1 else {})}.items():

        def once(name: str = name) -> Ends:
            means = draw.normal(0, 1, (items, 1)) + levels + draw.normal(0, np.sqrt(0.3), (items, 3))
            within = np.zeros((items, 3))
            if repetitions > 1:
                means = means + draw.normal(0, np.sqrt(0.5 / repetitions), (items, 3))
                within = 0.5 * draw.chisquare(repetitions - 1, (items, 3))
            n = np.full((items, 3), repetitions)
            scores = ItemScores(np.arange(items), np.arange(3), n, 0 * n, means, within, False)
            return share_intervals(scores).get(name, NONE)

        yield part / total, once


def simulate_reason_score(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield the second ReasonScore over `items` tasks, drawn from populations of tasks: varied, easy, some failed."""
    n = 400_000
    populations = (
        np.exp(draw.normal(-0.5, 0.5, n)),
        draw.beta(4, 1, n),
        draw.beta(0.7, 0.7, n),
        np.where(draw.random(n) < 0.1, draw.uniform(0.01, 0.3, n), draw.uniform(0.8, 1, n)),
    )
    for population in populations:
        chances = population.clip(0.01, 1)

        def once(chances: Any = chances) -> Ends:
            return estimate_geometric_mean(draw.choice(chances, items).tolist()) or NONE

        yield float(np.exp(np.log(chances).mean())), once


def _estimate_change(differences: Any, span: float, *, once: bool = False) -> Ends:
    n = len(differences)
    changed = differences[differences != 0].tolist()
    few = changed if len(changed) < MIN_CHANGED else None
    sd = float(differences.std(ddof=1))
    return get_ends(estimate_change(n, float(differences.mean()), sd, few, span=span, is_single_answer=once))


def simulate_marginal_mean(draw: Draw, items: int, repetitions: int) -> Truths:
    """Yield a level of a factor of two models x two prompts, with a tenth of the cells missing."""
    for shape in SHAPES:

        def once(shape: tuple[float, ...] = shape) -> Ends:
            item_values = draw.choice(SCALE, p=shape, size=(items, 1))
            ratings = (draw_ratings(draw, shape, items, repetitions) for _ in range(4))
            cells = [np.where(draw.random((items, 1)) < 0.5, item_values, cell) for cell in ratings]
            scores = np.stack(cells, axis=1).mean(axis=2)
            scores[draw.random(scores.shape) < 0.1] = np.nan
            fit = fit_factors(scores, {"model": (0, 0, 1, 1), "prompt": (0, 1, 0, 1)}, (1, 7))
            return get_ends(fit.means[0]) if fit else NONE

        yield float(SCALE @ shape), once
