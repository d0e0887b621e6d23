"""Processes with many connections run in uvloop, or in the standard loop where it cannot be installed."""

import asyncio
import sys

from evalsite.lib.ops.event_loop import run_in_fast_loop


async def name_loop():
    return type(asyncio.get_running_loop()).__module__


def test_the_loop_is_that_of_uvloop():
    assert run_in_fast_loop(name_loop()) == "uvloop"


def test_without_uvloop_the_loop_is_the_standard_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_in_fast_loop(name_loop()).startswith("asyncio.")
