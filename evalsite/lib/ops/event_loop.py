"""The event loop of processes that serve many connections."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_in_fast_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine in uvloop and return its result. Without uvloop, as on Windows, run it in the standard loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
