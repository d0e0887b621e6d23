"""The power spectrum of texts as sequences of token ids. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BINS = 32


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
