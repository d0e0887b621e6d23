"""The spectrum of token ids, on sequences whose spectrum is known."""

import math
import random

import pytest

from grading_app.statistics.token_statistics import BINS, mean_spectrum, spectral_distance

MIDDLE_7, MIDDLE_25 = 7.5 / BINS / 2, 25.5 / BINS / 2
"""Frequencies in the middle of bands 7 and 25."""


def build_wave(cycles_per_token, n=256, phase=0.0):
    return [round(1000 + 500 * math.sin(2 * math.pi * cycles_per_token * index + phase)) for index in range(n)]


@pytest.mark.parametrize("band", [1, 7, 20, 30])
def test_a_wave_has_its_power_in_the_band_of_its_frequency(band):
    result = mean_spectrum([build_wave((band + 0.5) / BINS / 2)])
    assert max(range(BINS), key=lambda at: result.power[at]) == band
    assert result.power[band] > 0.9
    assert result.entropy < 0.2


def test_shares_add_up_to_one_and_do_not_depend_on_scale_offset_or_length():
    first, second = (
        mean_spectrum([build_wave(MIDDLE_7)]),
        mean_spectrum([[3 * value + 7 for value in build_wave(MIDDLE_7, n=512)]]),
    )
    assert sum(first.power) == pytest.approx(1)
    assert spectral_distance(first, second) < 0.1
    assert spectral_distance(first, mean_spectrum([build_wave(MIDDLE_25)])) > 0.9


def test_noise_has_a_flat_spectrum_and_each_text_has_equal_weight():
    rng = random.Random(5)
    noise = mean_spectrum([[rng.randrange(200_000) for _ in range(200)] for _ in range(100)])
    assert noise.entropy > 0.99
    assert noise.flatness > 0.95
    mixed = mean_spectrum([build_wave(MIDDLE_7), build_wave(MIDDLE_25), build_wave(MIDDLE_25)])
    assert mixed.power[25] == pytest.approx(2 / 3, abs=0.05)


def test_texts_without_a_spectrum_are_excluded():
    assert mean_spectrum([[5, 5, 5, 5, 5], [1, 2]]) is None
    assert mean_spectrum([build_wave(MIDDLE_7), [7] * 50]).texts == 1
