"""Answers as tokens: survival curves of their lengths, and power spectra of their token ids. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalsite.lib.stats import normal_quantile

BINS = 32


@dataclass(frozen=True, slots=True)
class SurvivalStep:
    """The curve from `time` to the next step. at_risk: just before `time`. low, high: the pointwise band."""

    time: int
    at_risk: int
    events: int
    survival: float
    low: float
    high: float


def kaplan_meier(
    events: Mapping[int, int], censored: Mapping[int, int], confidence: float = 0.95
) -> list[SurvivalStep]:
    """Return the product-limit estimate of survival after each time with an event.

    events, censored: the number of cases that ended, or were last observed, at each time. Cases censored at the time of
    an event are still at risk. The variance is Greenwood's. The band is symmetric for log(-log S) and stays within 0
    and 1. At S = 0 or 1, this scale has no variance, so the previous band is used.
    E. L. Kaplan & P. Meier (1958), "Nonparametric estimation from incomplete observations", JASA 53, 457-481;
    J. D. Kalbfleisch & R. L. Prentice (1980), The Statistical Analysis of Failure Time Data, section 1.3.
    """
    z = normal_quantile(confidence)
    at_risk = sum(events.values()) + sum(censored.values())
    steps: list[SurvivalStep] = []
    survival, greenwood, low, high = 1.0, 0.0, 0.0, 1.0
    for time in sorted({*events, *censored}):
        n_events, n_censored = events.get(time, 0), censored.get(time, 0)
        if n_events:
            survival *= 1 - n_events / at_risk
            if at_risk > n_events:
                greenwood += n_events / (at_risk * (at_risk - n_events))
            if 0 < survival < 1:
                width = z * math.sqrt(greenwood) / abs(math.log(survival))
                low, high = survival ** math.exp(width), survival ** math.exp(-width)
            else:
                low = 0.0
            steps.append(SurvivalStep(time, at_risk, n_events, survival, low, high))
        at_risk -= n_events + n_censored
    return steps


def thin_steps(steps: Sequence[SurvivalStep], max_steps: int = 200) -> list[SurvivalStep]:
    """Return at most `max_steps` steps, evenly over the survival, including the first and the last."""
    if len(steps) <= max_steps:
        return list(steps)
    stride = (len(steps) - 1) / (max_steps - 1)
    return [steps[round(index * stride)] for index in range(max_steps)]


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The mean spectrum of some texts. power: the share of the variance in each of BINS bands, from slow to fast.

    texts: the number of texts. tokens: the mean length. entropy: of the shares; 1 for noise, 0 for a single wave.
    flatness: the geometric mean of the shares over their mean.
    """

    texts: int
    tokens: float
    power: tuple[float, ...]
    entropy: float
    flatness: float


def mean_spectrum(sequences: Sequence[Sequence[int]]) -> Spectrum | None:
    """Return the mean of the normalized power spectra of sequences of token ids; None without a usable sequence.

    The mean of each sequence is subtracted before the fast Fourier transform. The power over frequencies from 0 to one
    half cycle per token is summed in BINS bands. Texts of any length have the same weight. Sequences of fewer than four
    tokens, or of one repeated token, have no spectrum.
    """
    import numpy as np

    bands = []
    for sequence in sequences:
        values = np.asarray(sequence, dtype=float)
        if len(values) < 4 or not np.ptp(values):
            continue
        power = np.abs(np.fft.rfft(values - values.mean()))[1:] ** 2
        positions = np.arange(1, len(power) + 1) / len(power)
        # The last edge belongs to the last band. Short texts fill every band by interpolation.
        edges = np.linspace(0, 1, BINS + 1)
        cumulative = np.interp(edges, np.concatenate(([0.0], positions)), np.concatenate(([0.0], power.cumsum())))
        bands.append(np.diff(cumulative) / power.sum())
    if not bands:
        return None
    mean = np.mean(bands, axis=0)
    positive = mean[mean > 0]
    entropy = float(-(positive * np.log(positive)).sum() / np.log(BINS))
    flatness = float(np.exp(np.log(np.maximum(mean, 1e-12)).mean()) / mean.mean())
    lengths = [len(sequence) for sequence in sequences]
    return Spectrum(len(bands), float(np.mean(lengths)), tuple(map(float, mean)), entropy, flatness)


def spectral_distance(first: Spectrum, second: Spectrum) -> float:
    """Return half the sum of absolute differences of the shares: 0 for equal spectra, 1 for disjoint ones."""
    return 0.5 * sum(abs(a - b) for a, b in zip(first.power, second.power, strict=True))
