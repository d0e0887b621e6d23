"""The tasks that django-q2 runs. The trials table is the queue, so a lost task loses no work.

A task only starts a drain.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import connection

from datasets_app.models import BackgroundJob
from runs_app.grading_interface import grading
from runs_app.llm.calls import CallReply, CallRequest
from runs_app.notifications import enqueue_sending, notice_events, send_due
from runs_app.taskqueue.enqueue import (
    enqueue_drains,
    enqueue_grading_of_idle_runs,
    enqueue_one_drain,
    enqueue_retention_rule,
)
from runs_app.taskqueue.supervisor_channel import is_stop_requested

if TYPE_CHECKING:
    from runs_app.engine.worker import Drain


def drain() -> int:
    """Run one drain for a bounded time, and enqueue the next one if work is left. Return the number of recorded
    results.

    Raise SchemaMismatch if this code does not match the database schema; then no further drain is enqueued.
    """
    from runs_app.processes.worker_process import is_drain_needed

    if is_stop_requested():
        return 0
    with drain_slot() as free:
        recorded = _drain_once() if free and is_drain_needed() else 0
    if free and is_drain_needed():
        enqueue_one_drain()
    return recorded


def _drain_once() -> int:
    from runs_app.engine.worker import DrainLimits
    from runs_app.processes.worker_process import run_worker

    limits = DrainLimits(concurrency=settings.DRAIN_CONCURRENCY, seconds=settings.DRAIN_SECONDS, until_idle=True)
    return run_worker(limits, _stop_on_request)


async def _stop_on_request(drain: Drain) -> None:
    """Stop the drain when the supervisor asks for it. Poll, because the task queue passes no signals to its workers."""
    while not is_stop_requested():
        await asyncio.sleep(0.3)
    drain.stop()


@contextmanager
def drain_slot() -> Iterator[bool]:
    """Yield True if one of this host's drain slots was free, and hold that slot during the block.

    The slot is an advisory lock, so the database server releases it after a crash.
    """
    host = zlib.crc32(socket.gethostname().encode()) & 0x7FFFFFFF
    with connection.cursor() as cursor:
        for slot in range(settings.DRAINS):
            cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [host, slot])
            if cursor.fetchone()[0]:
                break
        else:
            yield False
            return
    try:
        yield True
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [host, slot])


def maintain(queue: str | None = None) -> int:
    """Release claims and end jobs of lost workers, decide adaptive rounds, grade idle runs, restore missing drains.

    It runs every few seconds. Each `up` schedules it on the queue of its own cluster, so each machine restores its own
    drains.
    """
    from runs_app.engine.leases import sweep_expired
    from runs_app.processes.worker_process import is_drain_needed

    swept = sweep_expired()
    BackgroundJob.objects.sweep()
    grading().decide_rounds()
    enqueue_grading_of_idle_runs()
    enqueue_retention_rule()
    notice_events()
    enqueue_sending()
    if is_drain_needed():
        enqueue_drains(queue)
    return swept


def send_notifications() -> int:
    """Send the messages that are due by mail and webhook. Return the number of sent ones."""
    return send_due()


def make_preflight(key: int) -> str:
    """Make one tiny call in a worker process, and return the status of the preflight.

    The web server thus never loads the model library.
    """
    from runs_app.engine import preflight
    from runs_app.llm import gateway

    gateway.warm_up()  # Load before a slot is taken and before the time of the call is measured.
    return preflight.make_preflight(key, lambda request: asyncio.run(_make_call(request)))


async def _make_call(request: CallRequest) -> CallReply:
    from runs_app.llm import gateway

    try:
        return await gateway.call(request)
    finally:
        await gateway.close_session()
