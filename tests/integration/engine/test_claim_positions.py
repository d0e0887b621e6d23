"""A worker's claims continue where its last one ended, and no trial that became claimable again is left behind."""

import pytest

from runs_app.engine.admission import WorkerCapacity
from runs_app.engine.claim_order import REWIND_S, START, ClaimPosition, ClaimPositions
from runs_app.engine.recorder import Result
from runs_app.engine.worker_cycle import run_cycle
from tests import factories
from tests.factories.engine import register_worker

pytestmark = pytest.mark.django_db


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def positions(clock):
    return ClaimPositions(clock)


@pytest.fixture
def many(db):
    """Return a run of twelve items."""
    experiment = factories.make_experiment("many", dataset=factories.make_dataset("many", 12), samples=1, max_usd=None)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    return run


@pytest.fixture
def claim(many, positions):
    """Return a function that claims with the positions of one worker, and returns the claims by item."""
    worker = register_worker()

    def claim(n, results=()):
        claims = run_cycle(results, worker, WorkerCapacity(n, positions=positions)).claims
        return sorted(claims, key=lambda claim: claim.item_id)

    return claim


def release(claims):
    return [Result(claim, "pending", released=True) for claim in claims]


def list_items(claims):
    return [claim.item_id for claim in claims]


def test_a_claim_continues_after_the_last_one(claim, many, positions):
    first, second = claim(4), claim(4)
    assert list_items(second)[0] > list_items(first)[-1]
    assert positions.get(many.pk).item_id == list_items(second)[-1]


def test_a_released_trial_is_claimed_when_the_claims_begin_at_the_start_again(claim, clock):
    first = claim(4)
    second = claim(4, release(first[:1]))
    assert first[0].item_id not in list_items(second)
    clock.now += REWIND_S + 0.1
    assert first[0].item_id in list_items(claim(4))


def test_a_claim_that_finds_too_few_trials_after_its_position_looks_before_it(claim):
    first = claim(8)
    claim(3, release(first[:2]))
    last = claim(5)
    assert list_items(last)[:2] == list_items(first)[:2], "two before the position"
    assert len(last) == 3, "and one after it"
    assert claim(5) == []


def test_a_position_lasts_for_a_second(clock):
    positions = ClaimPositions(clock)
    positions.note([(1, ClaimPosition(0, 0, 2, 5)), (1, ClaimPosition(0, 0, 1, 9))])
    assert positions.get(1) == (0, 0, 2, 5)
    assert positions.get(2) == START
    clock.now += 0.6
    positions.note([(1, ClaimPosition(0, 0, 3, 1))])
    assert positions.get(1) == (0, 0, 3, 1)
    clock.now += 0.6
    assert positions.get(1) == START, "the second began with the first claim"
