"""Values that the gateway keeps for some seconds: read again beside calls, and forgotten if they may not be kept."""

import asyncio

import pytest

from evalsite.api.kept_values import KeptValues
from runs_app.engine.external_queue import Executors, ExternalQueue


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.BESIDE_S", 0)


def run(scene):
    """Return the answers of the scene's reads, which end the program's calls at "refused"."""

    async def main():
        queue = ExternalQueue(Executors(None, None, None))
        answers = iter(("first", "second", "refused", "third"))
        values = KeptValues(lambda value: value != "refused")

        async def read():
            await asyncio.sleep(0)
            return next(answers)

        async def get():
            return await values.get(queue, "key", read)

        result = await scene(get)
        await queue.finish()
        return result, list(answers)

    return asyncio.run(main())


async def get_in_turn(get):
    found = []
    for _ in range(4):
        found.append(await get())
        await asyncio.sleep(0.01)
    return found


def test_a_fresh_value_is_read_once():
    assert run(get_in_turn) == (["first"] * 4, ["second", "refused", "third"])


def test_an_old_value_is_read_before_the_call(monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.KEPT_S", 0)
    assert run(get_in_turn)[0] == ["first", "second", "refused", "third"]


def test_a_value_is_read_again_beside_the_call_and_forgotten_if_it_may_not_be_kept(monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.REFRESH_S", 0)
    assert run(get_in_turn)[0] == ["first", "first", "second", "third"]


def test_a_refresh_lets_the_call_that_needs_it_go_first(monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.REFRESH_S", 0)
    monkeypatch.setattr("evalsite.api.kept_values.BESIDE_S", 0.05)
    values, reads = KeptValues(bool), []

    async def read():
        reads.append(1)
        return "value"

    async def main():
        queue = ExternalQueue(Executors(None, None, None))
        for _ in range(2):
            await values.get(queue, "key", read)
        await asyncio.sleep(0)
        n_before = len(reads)
        await queue.finish()
        return n_before, len(reads)

    assert asyncio.run(main()) == (1, 2)


def test_calls_at_the_same_time_share_one_refresh(monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.REFRESH_S", 0)

    async def scene(get):
        await get()
        return await asyncio.gather(*(get() for _ in range(5)))

    assert run(scene) == (["first"] * 5, ["refused", "third"])


def test_a_failed_refresh_keeps_the_value_and_is_tried_again(monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.REFRESH_S", 0)
    values, attempts = KeptValues(bool), []

    async def read():
        attempts.append(1)
        if len(attempts) > 1:
            raise ConnectionError
        return "first"

    async def main():
        queue = ExternalQueue(Executors(None, None, None))
        for _ in range(3):
            assert await values.get(queue, "key", read) == "first"
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(attempts) == 3


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_values_are_kept_than_allowed(most, monkeypatch):
    monkeypatch.setattr("evalsite.api.kept_values.MAX_KEPT", most)
    values = KeptValues(bool)

    async def main():
        queue = ExternalQueue(Executors(None, None, None))
        for key in range(9):

            async def read(key=key):
                return f"value {key}"

            await values.get(queue, key, read)

    asyncio.run(main())
    assert list(values._values) == list(range(9 - most, 9))
