"""The page of a queue shows how far each rater agrees with the others, and marks a careless rater."""

import random
from statistics import fmean, pstdev

import numpy as np
import pytest

from grading_app.grading.rating.queue_results import find_fast_raters, find_low_agreement, list_rater_progress
from grading_app.models import Rating
from grading_app.statistics.intervals import AgreementEstimate
from tests.factories.queues import make_queue, make_rater, rate_all, sign_in
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


def make_study(raters=4, items=30, careless=True):
    """Return a queue that careful raters rated within one point of the item's level, and one rater by chance."""
    queue = make_queue(items=items, raters_wanted=raters)
    for number in range(raters):
        is_careless = careless and number == raters - 1

        def choose(rating, number=number, is_careless=is_careless):
            chance = random.Random(f"{number} {rating.item.position}")  # Independent of the rater's own order.
            level = 1 + rating.item.position % 6 + chance.choice([0, 0, 1])
            return chance.randint(1, 7) if is_careless else level

        rate_all(make_rater(queue, started=True), choose)
    return queue


@shared_rows
def queue():
    return make_study()


def test_the_agreement_is_lins_concordance_with_the_mean_of_the_others(queue):
    table = {}
    for rater, item, value in Rating.objects.counted().values_list("assignment__number", "item", "value"):
        table.setdefault(rater, {})[item] = value
    everything = [value for values in table.values() for value in values.values()]
    for line in list_rater_progress(queue):
        own = table.pop(line.assignment.number)
        pairs = [(own[item], fmean(values[item] for values in table.values())) for item in own]
        table[line.assignment.number] = own
        x, y = (np.array(side) / pstdev(everything) for side in zip(*pairs, strict=True))
        expected = 2 * np.cov(x, y, bias=True)[0, 1] / (x.var() + y.var() + (x.mean() - y.mean()) ** 2)
        assert line.agreement.estimate == pytest.approx(expected)
        assert line.agreement.units == 30
        assert line.agreement.low < expected < line.agreement.high


def test_only_the_careless_rater_is_marked(queue):
    assert [line.is_low for line in list_rater_progress(queue)] == [False, False, False, True]


def test_careful_raters_are_not_marked():
    assert not any(line.is_low or line.is_fast for line in list_rater_progress(make_study(careless=False)))


def test_few_common_items_say_too_few():
    queue = make_study(items=4)
    assert [line.agreement for line in list_rater_progress(queue)] == [None] * 4
    assert sign_in(queue.owner).get("/ratings/queues/study/").content.decode().count("too few") == 4


def test_an_excluded_rater_has_no_agreement_and_no_part_in_that_of_the_others(queue):
    before = [line.agreement.estimate for line in list_rater_progress(queue)]
    queue.assignments.get(number=4).exclude(by=queue.owner, reason="careless")
    lines = list_rater_progress(queue)
    assert lines[3].agreement is None
    assert all(line.agreement.estimate > old for line, old in zip(lines[:3], before, strict=False))


def test_the_page_shows_interval_n_mark_and_rule(queue):
    page = " ".join(sign_in(queue.owner).get("/ratings/queues/study/").content.decode().split())
    assert page.count(">low</span>") == 1
    assert page.count("n 30") == 4
    assert "below half of the other raters' median agreement" in page


def test_a_fast_rater_is_marked_and_needs_two_others():
    assert find_fast_raters({1: 4.0, 2: 6.0, 3: 1.0}) == {3}
    assert find_fast_raters({1: 4.0, 2: 6.0, 3: 1.3}) == set()
    assert find_fast_raters({1: 4.0, 2: 0.0}) == set()


def test_of_two_raters_neither_is_marked():
    estimates = {
        rater: AgreementEstimate("Lin's concordance", value, 20, 2, 40, low=value - 0.1, high=value + 0.1)
        for rater, value in {1: 0.8, 2: 0.0}.items()
    }
    assert find_low_agreement(estimates) == set()
    assert find_low_agreement({**estimates, 3: estimates[1]}) == {2}
