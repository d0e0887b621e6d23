"""A logistic mixed model of right and wrong answers: log-odds with fixed effects of conditions and random items.

The log-odds of a right answer to item i under condition j are x_j beta + u_i + v_ij, where u_i and v_ij are normal with
the standard deviations of items and of item x condition. Each v_ij belongs to one item, so the likelihood is a product
over items. Without repetitions, v_ij is left out, and the integral over u_i is computed by adaptive Gauss-Hermite
quadrature: Laplace's approximation would be far off for few answers to an item. With repetitions, the integral over u_i
and v_ij is Laplace's approximation. Both are those of lme4's glmer: D. Bates, M. Mächler, B. Bolker & S. Walker (2015),
Journal of Statistical Software 67(1). Only workers may load scipy.optimize, so functions import it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evalsite.lib.stats import student_quantile
from grading_app.statistics.factorial_model import Term, list_terms, select_estimable_terms
from grading_app.statistics.item_scores import Floats, ItemScores

MIN_ITEMS = 20  # With 10 items, the tests err in up to 9 % of samples instead of 5 %.
MAX_CELLS = 50_000
LARGEST_SD = 10.0  # In log-odds. Beyond it, nearly all answers to an item are alike, and the likelihood is flat.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(25)  # Of the quadrature.
BOUNDARY = 1e-3  # A smaller standard deviation is zero.
SEPARATION, NO_SPREAD_WITHIN_ITEMS, NOT_CONVERGED = "separation", "no spread within items", "not converged"
STEP = 1e-4  # Of the differences of gradients that make the second derivatives of Laplace's approximation.


@dataclass(frozen=True, eq=False)
class LogisticFit:
    """A maximum likelihood fit of right / n to x.

    effects: log-odds, (columns of x,), with their covariance from the second derivatives in all parameters.
    item_sd, interaction_sd: in log-odds; interaction_sd is 0 if the model leaves it out. deviance: -2 log likelihood,
    without the binomial coefficients. converged: the derivatives are zero, and the second derivatives those of a
    minimum.
    """

    effects: Floats
    covariance: Floats
    item_sd: float
    interaction_sd: float
    deviance: float
    converged: bool

    @property
    def deviations(self) -> tuple[float, float]:
        return self.item_sd, self.interaction_sd

    @property
    def failure(self) -> str:
        """Return why the fit is no maximum, or ""."""
        if max(self.deviations) >= LARGEST_SD:
            return NO_SPREAD_WITHIN_ITEMS
        return "" if self.converged else NOT_CONVERGED


@dataclass(frozen=True, slots=True)
class RatioTest:
    """The likelihood-ratio test of a term: the rise of the deviance without it, chi-squared with df degrees."""

    factors: tuple[str, ...]
    chi2: float
    df: int
    p: float


@dataclass(frozen=True, slots=True)
class OddsRatio:
    """The odds of a right answer at one level over those at the reference level, for the same item.

    log_ratio: a mean over the levels of the other factors, with its standard error. df: within items.
    """

    factor: str
    level: int
    reference: int
    log_ratio: float
    se: float
    df: int

    @property
    def ratio(self) -> float:
        return math.exp(self.log_ratio)

    @property
    def interval(self) -> tuple[float, float]:
        """Wald's 95 % interval, with Student's t instead of the normal distribution."""
        reach = student_quantile(0.95, self.df) * self.se
        return math.exp(max(-700.0, self.log_ratio - reach)), math.exp(min(700.0, self.log_ratio + reach))


@dataclass(frozen=True, slots=True)
class LogisticResult:
    """The tests and odds ratios of a design. reason: why there are none; "" if the fit converged.

    has_interaction: the model has a random item x condition, which needs repetitions. alike: the columns of conditions
    whose answers are all right or all wrong, with their share, if they prevent a fit.
    """

    items: int
    answers: int
    reason: str = ""
    alike: tuple[tuple[int, int], ...] = ()
    has_interaction: bool = False
    item_sd: float = 0.0
    interaction_sd: float = 0.0
    tests: list[RatioTest] = field(default_factory=list)
    ratios: list[OddsRatio] = field(default_factory=list)
    left_out: list[tuple[str, ...]] = field(default_factory=list)


def fit_logistic_model(
    scores: ItemScores, levels: Mapping[str, Sequence[int]], references: Mapping[str, int] | None = None
) -> LogisticResult | None:
    """Return the fit to scores of 0 and 1; None without a varying factor, below MIN_ITEMS items, or above MAX_CELLS.

    levels: for each factor, the level of each condition, from 0. references: the level with which the others are
    compared; by default the first. Each term is tested by a fit without its columns.
    """
    from scipy.special import chdtrc

    has_score = scores.n > 0
    if int((has_score.sum(axis=1) > 1).sum()) < MIN_ITEMS or int(has_score.sum()) > MAX_CELLS:
        return None
    is_used = has_score.any(axis=1)
    n = scores.n[is_used].astype(np.float64)
    right = np.rint(n * np.nan_to_num(scores.mean[is_used]))
    terms, left_out = select_estimable_terms(list_terms(levels), n > 0)
    if not terms:
        return None
    x = np.hstack([np.ones((n.shape[1], 1)), *[term.columns for term in terms]])
    items, answers, has_interaction = len(n), int(n.sum()), bool(n.max() > 1)
    if alike := find_separated_conditions(right, n, x):
        return LogisticResult(items, answers, SEPARATION, alike)
    fit = fit_random_intercepts(right, n, x, has_interaction=has_interaction)
    if fit.failure:
        return LogisticResult(items, answers, fit.failure)
    tests, ratios, start = [], [], 1
    for term in terms:
        q = term.columns.shape[1]
        without = fit_random_intercepts(
            right, n, np.delete(x, np.s_[start : start + q], axis=1), has_interaction=has_interaction
        )
        if without.failure:
            return LogisticResult(items, answers, without.failure)
        chi2 = max(0.0, without.deviance - fit.deviance)
        tests.append(RatioTest(term.factors, chi2, q, float(chdtrc(q, chi2))))
        if len(term.factors) == 1:
            df = int((n > 0).sum()) - items - x.shape[1] + 1
            ratios += _compare_levels(term, fit, start, (references or {}).get(term.factors[0], 0), df)
        start += q
    return LogisticResult(
        items, answers, "", (), has_interaction, fit.item_sd, fit.interaction_sd, tests, ratios, left_out
    )


def _compare_levels(term: Term, fit: LogisticFit, start: int, reference: int, df: int) -> list[OddsRatio]:
    """Return the odds ratio of each level of a main effect. start: its first column in x."""
    q = term.columns.shape[1]
    coding = np.vstack([np.eye(q), -np.ones(q)])
    ratios = []
    for level in range(q + 1):
        if level == reference:
            continue
        weights = np.zeros(len(fit.effects))
        weights[start : start + q] = coding[level] - coding[reference]
        se = math.sqrt(float(weights @ fit.covariance @ weights))
        ratios.append(OddsRatio(term.factors[0], level, reference, float(weights @ fit.effects), se, df))
    return ratios


def find_separated_conditions(right: Floats, n: Floats, x: Floats) -> tuple[tuple[int, int], ...]:
    """Return the columns of conditions, with their share of 0 or 1, that leave some effect without a finite estimate.

    An effect is infinite if a direction of the effects raises the log-odds only of conditions whose answers are all
    right, and lowers only those whose answers are all wrong: A. Albert & J. A. Anderson (1984), Biometrika 71, 1-10.
    """
    from scipy.optimize import linprog

    shares = right.sum(axis=0) / np.maximum(1.0, n.sum(axis=0))
    sign = np.where(shares == 1, 1.0, np.where(shares == 0, -1.0, 0.0)) * (n.sum(axis=0) > 0)
    if not sign.any():
        return ()
    signed, mixed = sign[sign != 0, None] * x[sign != 0], x[(sign == 0) & (n.sum(axis=0) > 0)]
    # The largest sum of gains of at most 1 each, so that every condition with a gain is found.
    ones = np.eye(len(signed))
    best = linprog(
        np.concatenate([np.zeros(x.shape[1]), -np.ones(len(signed))]),
        A_ub=np.hstack([-signed, ones]),
        b_ub=np.zeros(len(signed)),
        A_eq=np.hstack([mixed, np.zeros((len(mixed), len(signed)))]),
        b_eq=np.zeros(len(mixed)),
        bounds=[(None, None)] * x.shape[1] + [(0, 1)] * len(signed),
    )
    gains = np.zeros(len(sign))
    gains[sign != 0] = best.x[x.shape[1] :]
    return tuple((int(column), int(shares[column])) for column in np.flatnonzero(gains > 0.5))


def fit_random_intercepts(right: Floats, n: Floats, x: Floats, *, has_interaction: bool) -> LogisticFit:
    """Return the fit of right answers of n, (items, conditions), to x, (conditions, columns). n is 0 without an answer.

    Standard deviations of at most BOUNDARY are set to zero, where the deviance is symmetric.
    """
    from scipy.optimize import minimize

    patterns, times = np.unique(np.hstack([right, n]), axis=0, return_counts=True)
    right_of_n, all_of_n = np.hsplit(patterns, 2)
    cells, n_sd = _Cells(right_of_n, all_of_n, times[:, None].astype(np.float64), x), 1 + has_interaction
    share = np.clip(right.sum() / n.sum(), 0.01, 0.99)
    start = np.concatenate(
        [np.ones(n_sd), np.linalg.lstsq(x, np.full(len(x), np.log(share / (1 - share))), rcond=None)[0]]
    )
    bounds = [(0.0, LARGEST_SD)] * n_sd + [(None, None)] * x.shape[1]

    def search(start: Floats) -> Any:
        return minimize(
            cells.deviance, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-13, "gtol": 1e-6}
        )

    best = search(start)
    if (best.x[:n_sd] < BOUNDARY).any():  # The slope is zero there, even if the deviance has a lower point beyond it.
        again = search(np.concatenate([np.maximum(best.x[:n_sd], 0.3), best.x[n_sd:]]))
        best = min(best, again, key=lambda one: float(one.fun))
    found = best.x
    free = np.concatenate([found[:n_sd] > BOUNDARY, np.ones(x.shape[1], dtype=bool)])
    found = np.where(free, found, 0.0)
    converged, covariance = False, np.full((len(found), len(found)), np.nan)
    for _ in range(5):
        gradient, second = cells.deviance(found)[1][free], cells.second_derivatives(found)[np.ix_(free, free)]
        if found[:n_sd].max() >= LARGEST_SD or np.linalg.eigvalsh(second)[0] <= 0:
            break
        step = np.linalg.solve(second, gradient)
        converged = bool(gradient @ step < 1e-8)
        covariance[np.ix_(free, free)] = 2 * np.linalg.inv(second)
        if converged:
            break
        found[free] -= step
    return LogisticFit(
        found[n_sd:],
        covariance[n_sd:, n_sd:],
        float(found[0]),
        float(found[1]) if has_interaction else 0.0,
        cells.deviance(found)[0],
        converged,
    )


class _Cells:
    """Right answers of n, (patterns, conditions), how many items have each pattern, (patterns, 1), and the design x.

    The random part of the log-odds of an item has the covariance V = a^2 + b^2 I, with the standard deviations a of
    items and b of item x condition. With W the diagonal of binomial variances and t = 1 / (1 + b^2 w), its covariance
    given the answers is G = (V^-1 + W)^-1 = b^2 diag(t) + a^2 t t' / (1 + a^2 sum w t).
    """

    def __init__(self, right: Floats, n: Floats, times: Floats, x: Floats) -> None:
        self.right, self.n, self.times, self.x = right, n, times, x
        self.start = np.zeros_like(right)

    def deviance(self, parameters: Floats) -> tuple[float, Floats]:
        """Return -2 log likelihood with its gradient in (a, b if any, effects)."""
        if len(parameters) == 1 + self.x.shape[1]:
            return self._integrate_items(parameters[0], self.x @ parameters[1:])
        # The deviance by Laplace's approximation, with its gradient.
        a = parameters[0]
        b = parameters[1]
        fixed = self.x @ parameters[2:]
        residual, w, third, u = self._find_modes(a, b, fixed)
        t = 1 / (1 + b**2 * w)
        wt, sums = w * t, residual.sum(axis=1, keepdims=True)
        s = 1 + a**2 * wt.sum(axis=1, keepdims=True)
        log_odds = fixed + u
        value = (-2 * (self.right * log_odds - self.n * np.logaddexp(0, log_odds)) + residual * u - np.log(t)).sum(
            axis=1, keepdims=True
        ) + np.log(s)
        # The modes move with the parameters: log |I + V W| changes by `moved` for each change of the log-odds.
        g = (b**2 * t + a**2 * t**2 / s) * third
        moved = g - w * (b**2 * t * g + a**2 * t * (t * g).sum(axis=1, keepdims=True) / s)
        slopes = (
            2 * a * (wt.sum(axis=1, keepdims=True) / s - sums**2 + sums * moved.sum(axis=1, keepdims=True)),
            2 * b * (wt - residual**2 + residual * moved - a**2 * wt**2 / s).sum(axis=1, keepdims=True),
        )
        gradient = [float((self.times * slope).sum()) for slope in slopes]
        by_condition = (self.times * (moved - 2 * residual)).sum(axis=0)
        return float((self.times * value).sum()), np.concatenate([gradient, by_condition @ self.x])

    def _integrate_items(self, a: float, fixed: Floats) -> tuple[float, Floats]:
        """Return the deviance by quadrature around the mode of each item, with its gradient."""
        levels, chances, shares, value = self._weigh_nodes(a, fixed)
        excess = self.right.sum(axis=1, keepdims=True) - np.einsum("ij,ijk->ik", self.n, chances)
        slope = -2 * float((self.times * shares * excess * levels).sum())
        residual = self.right - self.n * np.einsum("ijk,ik->ij", chances, shares)
        by_condition = -2 * (self.times * residual).sum(axis=0)
        return value, np.concatenate([[slope], by_condition @ self.x])

    def _integrate_second_derivatives(self, a: float, fixed: Floats) -> Floats:
        """Return the second derivatives of the deviance, by the same quadrature.

        Those of a log likelihood are the mean of its second derivatives at given levels of the items plus the
        covariance of the first: T. A. Louis (1982), Journal of the Royal Statistical Society B 44, 226-233.
        """
        levels, chances, shares, _ = self._weigh_nodes(a, fixed)
        residual = self.right[:, :, None] - self.n[:, :, None] * chances
        slopes = np.concatenate(
            [(residual.sum(axis=1) * levels)[:, :, None], residual.transpose(0, 2, 1) @ self.x], axis=2
        )  # (patterns, nodes, parameters)
        scaled = (np.sqrt(self.times * shares)[:, :, None] * slopes).reshape(-1, slopes.shape[2])
        means = np.sqrt(self.times) * np.einsum("ik,ikp->ip", shares, slopes)
        variances = self.n[:, :, None] * chances * (1 - chances) * (self.times * shares)[:, None, :]
        by_level = np.einsum("ijk,ik->j", variances, levels) @ self.x
        curvature = np.block(
            [
                [np.einsum("ijk,ik->", variances, levels**2), by_level],
                [by_level[:, None], (self.x.T * variances.sum(axis=(0, 2))) @ self.x],
            ]
        )
        second: Floats = 2 * (curvature - scaled.T @ scaled + means.T @ means)
        return second

    def _weigh_nodes(self, a: float, fixed: Floats) -> tuple[Floats, Floats, Floats, float]:
        """Return the nodes of each item's quadrature with the chances of right answers there, and the deviance.

        These are the levels in units of a, (patterns, nodes), the chances, (patterns, conditions, nodes), and the share
        of each node in the likelihood, (patterns, nodes).
        """
        residual, w, _, _ = self._find_modes(a, 0.0, fixed)
        width = 1 / np.sqrt(1 + a**2 * w.sum(axis=1, keepdims=True))
        levels = a * residual.sum(axis=1, keepdims=True) + width * NODES
        log_odds = fixed[:, None] + a * levels[:, None, :]
        smaller = np.exp(-np.abs(log_odds))  # The smaller of the odds and their inverse, without overflow.
        chances = np.where(log_odds > 0, 1.0, smaller) / (1 + smaller)
        losses = np.einsum("ij,ijk->ik", self.n, np.maximum(log_odds, 0) + np.log(1 + smaller))
        gains = (self.right @ fixed)[:, None] + self.right.sum(axis=1, keepdims=True) * a * levels
        logs = gains - losses - levels**2 / 2 + NODES**2 / 2
        highest = logs.max(axis=1, keepdims=True)
        shares = WEIGHTS * np.exp(logs - highest)
        total = shares.sum(axis=1, keepdims=True)
        value = -2 * float((self.times * (highest + np.log(total * width / math.sqrt(2 * math.pi)))).sum())
        return levels, chances, shares / total, value

    def _find_modes(self, a: float, b: float, fixed: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return residuals, binomial variances and their derivatives at the modes, and the random log-odds u.

        At a mode, u = V residuals. Newton's method finds it; a step is halved for patterns whose likelihood it lowers.
        """

        def measure(weights: Floats) -> tuple[Floats, Floats]:
            u = a**2 * weights.sum(axis=1, keepdims=True) + b**2 * weights
            likelihood = self.right * (fixed + u) - self.n * np.logaddexp(0, fixed + u) - weights * u / 2
            return u, likelihood.sum(axis=1, keepdims=True)

        weights = self.start
        u, likelihood = measure(weights)
        for _ in range(100):
            chance = 0.5 + np.tanh((fixed + u) / 2) / 2  # The logistic function, without overflow.
            w, residual = self.n * chance * (1 - chance), self.right - self.n * chance
            if np.abs(residual - weights).max() < 1e-11 * max(1.0, float(self.n.max())):
                break
            t = 1 / (1 + b**2 * w)
            target = w * u + residual
            s = 1 + a**2 * (w * t).sum(axis=1, keepdims=True)
            step = target - w * (b**2 * t * target + a**2 * t * (t * target).sum(axis=1, keepdims=True) / s) - weights
            size = np.ones_like(likelihood)
            for _ in range(30):
                new_u, new_likelihood = measure(weights + size * step)
                worse = new_likelihood < likelihood - 1e-12 * np.abs(likelihood)
                if not worse.any():
                    break
                size = np.where(worse, size / 2, size)
            weights, u, likelihood = weights + size * step, new_u, new_likelihood
        self.start = weights
        return residual, w, w * (1 - 2 * chance), u

    def second_derivatives(self, parameters: Floats) -> Floats:
        if len(parameters) == 1 + self.x.shape[1]:
            return self._integrate_second_derivatives(parameters[0], self.x @ parameters[1:])
        rows = []
        for column in range(len(parameters)):
            apart = np.zeros(len(parameters))
            apart[column] = STEP
            rows.append((self.deviance(parameters + apart)[1] - self.deviance(parameters - apart)[1]) / (2 * STEP))
        matrix = np.array(rows)
        symmetric: Floats = (matrix + matrix.T) / 2
        return symmetric
