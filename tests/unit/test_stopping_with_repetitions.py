"""Points that repeat their items: repetitions are not independent answers, and the interval still covers."""

import pytest

from evalsite.lib.stats import AnswerSums, estimate_effective_size, wilson
from runs_app.stopping.coverage import RepeatedDesign, find_coverage, simulate_repeated
from runs_app.stopping.rules import StoppingRule, Tally, expect_cases

EIGHT_BY_SIXTEEN = RepeatedDesign(items=8, maximum=128, per_round=8, target=0.09)


def compute_sums(right, each):
    n = len(right) * each
    squares, total = sum(score * score for score in right), sum(right)
    return AnswerSums(float(n), len(right), float(len(right) * each**2), float(total), float(squares), each * total)


def test_eight_items_with_equal_answers_do_not_stop_after_sixteen_repetitions():
    answers = estimate_effective_size(compute_sums([16, 16, 16, 16, 0, 0, 0, 0], 16))
    assert answers == pytest.approx(8)
    rule = StoppingRule(maximum=512, targetci=0.09)
    assert rule.decide(Tally(64, 128)).kind == "enough"  # 128 different items.
    result = rule.decide(Tally(64, 128, effective=answers))
    assert result.kind == "more"
    assert result.half_width == pytest.approx(wilson(4, 8).margin)
    assert result.reason.endswith("after 128 cases (worth 8 answers to different items), the target is ±0.09")


def test_one_answer_per_item_gives_the_rule_without_repetitions():
    assert estimate_effective_size(compute_sums([1, 0, 1, 1, 0, 1], 1)) == pytest.approx(6)
    assert Tally(96, 128).interval() == Tally(96, 128, effective=128.0).interval() == wilson(96, 128)


def test_guesses_are_removed_from_the_effective_answers():
    result = Tally(64, 128, guess_chances=32, effective=16.0).interval()
    assert result == wilson(8, 16).beyond_guessing(0.25)
    excess = Tally(64, 128, guess_chances=32, effective=16.0).interval(correction="excess_counts")
    assert excess == wilson(4, 12)


@pytest.mark.parametrize("effective", [0.0, -1.0, 129.0])
def test_an_impossible_effective_number_is_refused(effective):
    with pytest.raises(ValueError, match="impossible counts"):
        Tally(64, 128, effective=effective)


@pytest.mark.parametrize("correlation", [0, 0.3, 0.6])
@pytest.mark.parametrize("skill", [0.5, 0.7, 0.9, 0.97])
def test_intervals_for_8_items_with_16_repetitions_cover_in_93_of_100_points(skill, correlation):
    covered, _ = simulate_repeated(EIGHT_BY_SIXTEEN, skill, correlation, points=1500, seed=3)
    assert covered > 0.93 - 2 * 0.0066  # .0066 is the standard error of a share of .93 of 1,500.


def test_counting_each_answer_as_an_item_would_cover_too_rarely(monkeypatch):
    monkeypatch.setattr("runs_app.stopping.coverage.estimate_effective_size", lambda sums, _: sums.n + 0 * sums.right)
    covered, _ = simulate_repeated(EIGHT_BY_SIXTEEN, 0.5, 0.3, points=1500, seed=3)
    assert covered < 0.7


@pytest.mark.slow
def test_items_without_repetitions_have_the_coverage_of_the_table():
    once = RepeatedDesign(items=2048, maximum=2048, per_round=32, target=0.15)
    covered, cases = simulate_repeated(once, 0.5, 0, points=2000, seed=3)
    assert covered == pytest.approx(0.930, abs=3 * 0.0057)  # The table of `coverage`, and the error of 2,000 points.
    assert 32 < cases < 64


def test_low_coverage_of_a_design_is_reported():
    assert not find_coverage(EIGHT_BY_SIXTEEN).is_low
    assert find_coverage(RepeatedDesign(items=4, maximum=16, per_round=4, target=0.5)).least < 0.9
    assert find_coverage(RepeatedDesign(items=4, maximum=16, per_round=4, target=0.5)).is_low


def test_repetitions_are_not_expected_to_narrow_an_interval():
    rule = StoppingRule(maximum=512, targetci=0.09)
    assert expect_cases(rule, 32, items=512) == expect_cases(rule, 32)
    assert expect_cases(rule, 32, items=8) == 512
