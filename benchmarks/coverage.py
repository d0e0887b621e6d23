"""The simulated coverage of each interval on a page: `python benchmarks/coverage.py [SAMPLES] [--row NAME]`.

It prints the table that `docs/statistics.md` holds. Each cell is the lowest coverage of 95 % intervals over the truths
of its design, with fixed seeds. With 1,000 samples its standard error is .007 at .95. The intervals come from the
functions that the pages call. Two rows take half of SAMPLES. The last rows are tests without an interval.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
django.setup()

import numpy as np

from benchmarks import coverage_agreement as agreement
from benchmarks import coverage_norms as norms
from benchmarks import coverage_scores as scores
from benchmarks.coverage_scores import Draw, Truths
from grading_app.statistics.agreement_coefficients import cohens_kappa, krippendorff_alpha
from grading_app.statistics.intraclass import FORMS

ITEMS, REPETITIONS, SAMPLES, SEED = (10, 40, 200), (1, 20), 1000, 20260301
FEW_INTERVALS = 0.05  # A larger share of samples without an interval is printed.


@dataclass(frozen=True)
class Design:
    """A simulated design. repeated: repetitions matter. part: the number of samples is divided by it.

    fewest: the smallest number of repetitions that the design allows.
    """

    truths: Callable[[Draw, int, int], Truths] | Any
    repeated: bool = False
    part: int = 1
    fewest: int = 1


DESIGNS: dict[str, Design] = {
    "share of right answers": Design(scores.simulate_share, True),
    "mean rating on 1 to 7": Design(scores.simulate_rating, True),
    "share, unequal repetitions": Design(scores.simulate_unequal_repetitions, True, fewest=2),
    "share, more answers to hard items": Design(scores.simulate_more_answers_to_hard_items, True, fewest=2),
    "share, missing counted as wrong": Design(scores.simulate_missing_answers, True),
    "mean without a scale": Design(scores.simulate_free_mean, True),
    "mean without a scale, skewed": Design(scores.simulate_skewed_mean),
    "accuracy of a point, beyond guessing": Design(scores.simulate_guessed_point, True),
    "the same, by excess counts": Design(scores.simulate_excess_counts, True),
    "mean over points, beyond guessing": Design(scores.simulate_point_mean),
    "rated point": Design(scores.simulate_rated_point, True),
    "change of a share": Design(scores.simulate_changed_share, True),
    "change of a rating": Design(scores.simulate_changed_rating, True),
    "change at a ceiling": Design(scores.simulate_change_at_ceiling, True),
    "change of a rating, odd items": Design(scores.simulate_change_with_odd_items),
    "change on the same items": Design(scores.simulate_change_on_the_same_items, True, fewest=2),
    "marginal mean of a factor": Design(scores.simulate_marginal_mean, True),
    "odds ratio": Design(scores.simulate_odds_ratio),
    "odds ratio of a factor": Design(scores.simulate_factor_odds, True, 2),
    "share of variance": Design(scores.simulate_variance_share, True),
    "ReasonScore": Design(scores.simulate_reason_score),
    "judge's bias": Design(agreement.simulate_bias, True),
    "percent agreement": Design(agreement.simulate_percent_agreement),
    "Krippendorff's alpha": Design(agreement.simulate_alpha),
    "Krippendorff's alpha, rare category": Design(
        agreement.simulate_rare_category(partial(krippendorff_alpha, level="nominal"), 3)
    ),
    "Cohen's kappa": Design(agreement.simulate_cohens_kappa),
    "Cohen's kappa, rare category": Design(agreement.simulate_rare_category(cohens_kappa, 2)),
    "Fleiss' kappa": Design(agreement.simulate_fleiss_kappa),
    **{f"ICC({form})": Design(agreement.simulate_icc(form)) for form in FORMS},
    "Kendall's W": Design(agreement.simulate_kendalls_w),
    "Lin's concordance, Agreement": Design(agreement.simulate_lins_concordance),
    "slope of the judge": Design(agreement.simulate_deming_slope),
    "limits of agreement, Agreement": Design(agreement.simulate_limits_of_agreement),
    "judge and people": Design(agreement.simulate_judge_against_people, part=2),
    "corrected share": Design(agreement.simulate_corrected_mean(True)),
    "corrected mean": Design(agreement.simulate_corrected_mean(False)),
    "people's share": Design(agreement.simulate_corrected_mean(True, "people")),
    "people's mean": Design(agreement.simulate_corrected_mean(False, "people")),
    "r with a reference": Design(agreement.simulate_rater_against_norms("r")),
    "concordance with a reference": Design(agreement.simulate_rater_against_norms("concordance")),
    "strength of an answer": Design(agreement.simulate_strengths, True, 2),
    "difference from norms": Design(norms.simulate_difference, True),
    "Cohen's d": Design(norms.simulate_effect),
    "Pearson's r, normal values": Design(norms.simulate_normal_correlation),
    "Pearson's r, skewed values": Design(norms.simulate_correlation),
    "Pearson's r, odd items": Design(norms.simulate_odd_correlation),
    "Spearman's rho": Design(norms.simulate_rank_correlation),
    "Lin's concordance, Analysis": Design(norms.simulate_lins_formula),
    "MAE": Design(norms.simulate_error("mae")),
    "RMSE": Design(norms.simulate_error("rmse")),
    "least squares, a": Design(norms.simulate_line("least squares", "intercept")),
    "least squares, b": Design(norms.simulate_line("least squares", "slope")),
    "Deming, a": Design(norms.simulate_line("deming", "intercept")),
    "Deming, b": Design(norms.simulate_line("deming", "slope")),
}
TESTS: dict[str, Callable[[Draw, int, int], float]] = {
    "equivalence, found at the margin": norms.estimate_equivalence_level,
    "power, less its formula": norms.estimate_power_error,
    "likelihood ratio of a factor, without a difference": scores.estimate_likelihood_ratio_level,
}


def measure_coverage(name: str, items: int, repetitions: int, samples: int = SAMPLES) -> tuple[float, float]:
    """Return the lowest coverage over the truths, and the largest share of samples without an interval.

    Samples without an interval do not count for the coverage.
    """
    draw = np.random.default_rng([SEED, items, repetitions])
    rates, shares = [float("nan")], [0.0]
    for truth, once in DESIGNS[name].truths(draw, items, repetitions):
        ends = [once() for _ in range(samples)]
        intervals = [(low, high) for low, high in ends if low is not None and high is not None]
        shares.append(1 - len(intervals) / samples)
        if intervals:
            rates.append(float(np.mean([low - 1e-9 <= truth <= high + 1e-9 for low, high in intervals])))
    return float(np.nanmin(rates)) if len(rates) > 1 else float("nan"), max(shares)


def format_row(
    name: str, samples: int = SAMPLES, sizes: Sequence[int] = ITEMS, repeats: Sequence[int] = REPETITIONS
) -> str:
    """Return a row of the table in the documentation, in per cent. sizes, repeats: numbers of items and repetitions."""
    design = DESIGNS[name]
    n_samples = max(1, samples // design.part)
    cells = []
    for items in sizes:
        for repetitions in repeats:
            if repetitions < design.fewest or (repetitions > 1 and not design.repeated):
                cells.append("-")
                continue
            rate, share = measure_coverage(name, items, repetitions, n_samples)
            without = f" ({100 * share:.0f} none)" if share > FEW_INTERVALS else ""
            cells.append("none" if np.isnan(rate) else f"{100 * rate:.1f}{without}")
    return f"| {name} | {' | '.join(cells)} |"


def format_test_row(name: str, samples: int = SAMPLES) -> str:
    """Return the row of a test in per cent: its error rate, or the difference of its power from the formula."""
    rates = (TESTS[name](np.random.default_rng([SEED, items]), items, 10 * samples) for items in ITEMS)
    return f"| {name} | {' | '.join('-' if np.isnan(rate) else f'{100 * rate:.1f}' for rate in rates)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate the coverage of the intervals on pages.")
    parser.add_argument("samples", nargs="?", type=int, default=SAMPLES)
    parser.add_argument("--row", action="append", choices=[*DESIGNS, *TESTS], help="only this row; several are allowed")
    parser.add_argument("--items", nargs="+", type=int, default=ITEMS, help="the numbers of items")
    parser.add_argument("--repetitions", nargs="+", type=int, default=REPETITIONS, help="the numbers of repetitions")
    options = parser.parse_args()
    for name in options.row or [*DESIGNS, *TESTS]:
        is_test = name in TESTS
        sizes = options.items, options.repetitions
        row = format_test_row(name, options.samples) if is_test else format_row(name, options.samples, *sizes)
        print(row, flush=True)


if __name__ == "__main__":
    main()
