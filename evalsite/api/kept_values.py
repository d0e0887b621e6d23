"""Values that the gateway reads for a call and keeps for some seconds, because reading them takes as long as a call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from runs_app.engine.external_queue import ExternalQueue

logger = logging.getLogger("evalsite.gateway")

KEPT_S, REFRESH_S = 5.0, 4.0  # How long a value is kept, and after how long it is read again.
BESIDE_S = 0.005  # How much later, so that the call that found it old has been sent: both need the interpreter.
MAX_KEPT = 1000

Value = TypeVar("Value")


class KeptValues(Generic[Value]):
    """The kept values of one process, by key.

    A value is read again after REFRESH_S, while calls go on with the kept one. `is_kept` tells which values may be
    kept; reading another one forgets the kept one.
    """

    def __init__(self, is_kept: Callable[[Any], bool]) -> None:
        self._is_kept = is_kept
        self._values: dict[Any, tuple[float, Value]] = {}
        self._refreshing: set[Any] = set()

    async def get(self, queue: ExternalQueue, key: Any, read: Callable[[], Awaitable[Value]]) -> Value:
        """Return the kept value of the key, or read it."""
        kept = self._values.get(key)
        age_s = time.monotonic() - kept[0] if kept is not None else KEPT_S
        if kept is None or age_s >= KEPT_S:
            return await self._read(key, read)
        if age_s >= REFRESH_S and key not in self._refreshing:
            self._refreshing.add(key)
            queue.start(self._refresh(key, read))
        return kept[1]

    async def _refresh(self, key: Any, read: Callable[[], Awaitable[Value]]) -> None:
        try:
            await asyncio.sleep(BESIDE_S)
            await self._read(key, read)
        except Exception:
            logger.exception("a kept value cannot be read again")
        finally:
            self._refreshing.discard(key)

    async def _read(self, key: Any, read: Callable[[], Awaitable[Value]]) -> Value:
        began = time.monotonic()
        value = await read()
        self._values.pop(key, None)
        if self._is_kept(value):
            while len(self._values) >= MAX_KEPT:
                self._values.pop(next(iter(self._values)), None)
            self._values[key] = began, value
        return value
