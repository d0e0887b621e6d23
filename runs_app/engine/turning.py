"""A turn of a drain: write what came in, and claim what there is room for, in one transaction for each endpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from django.db import DatabaseError, transaction

from runs_app.engine.admitting import Claim, claim, rooms
from runs_app.engine.books import open_books
from runs_app.engine.recording import Result, by_endpoint, enter, portions, runs_of, write_trials
from runs_app.engine.rescuing import OUTAGES, record_all


def turn(
    results: Sequence[Result], worker_id: int, concurrency: int, flying: Mapping[int, int]
) -> tuple[int, list[Claim]]:
    """Returns how many results still held their trial, and the new claims.

    `concurrency` is how many calls the drain keeps in flight, `flying` those that are, by endpoint. Endpoints take
    turns in no order, lest the first be served best.
    """
    came_in = by_endpoint(results)
    landed = Counter(result.claim.place.endpoint_id for result in results)
    room = rooms(concurrency, flying, landed)
    wrote, claims = 0, []
    for endpoint_id in {*came_in, *room}:
        n, new = _turn_at(endpoint_id, came_in.get(endpoint_id, []), worker_id, room.get(endpoint_id, 0))
        wrote += n
        claims += new
    return wrote, claims


def _turn_at(endpoint_id: int, results: Sequence[Result], worker_id: int, room: int) -> tuple[int, list[Claim]]:
    *before, last = list(portions(results)) or [[]]
    wrote = sum(record_all(portion, worker_id) for portion in before)
    try:
        held, claims = _at_once(endpoint_id, last, worker_id, room)
        return wrote + held, claims
    except OUTAGES:
        raise
    except DatabaseError:
        if not last:
            raise
        return wrote + record_all(last, worker_id), []


def _at_once(endpoint_id: int, results: Sequence[Result], worker_id: int, room: int) -> tuple[int, list[Claim]]:
    with transaction.atomic():
        held = write_trials(results)
        books = open_books(endpoint_id, runs_of(results), claiming=room > 0)
        if books is None:
            return len(held), []
        enter(books, results, held, worker_id)
        claims = claim(books, worker_id, room) if room > 0 else []
        books.settle()
    return len(held), claims
