"""The command `manage.py drain`: a worker in the foreground, on any machine with the code and DATABASE_URL."""

from __future__ import annotations

import asyncio
import signal
from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

from evalsite.lib.ops.commands import refuse_input
from evalsite.lib.ops.versions import SchemaMismatch

if TYPE_CHECKING:
    from runs_app.engine.worker import Drain


class Command(BaseCommand):
    help = "Run a worker until Ctrl-C or SIGTERM. Calls in flight then finish or are released."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--concurrency", type=int, default=256, help="maximum calls in flight in this worker (default 256)"
        )
        parser.add_argument(
            "--grace",
            type=float,
            default=10,
            metavar="SECONDS",
            help="time for calls in flight to finish after a stop signal (default 10)",
        )
        parser.add_argument("--until-idle", action="store_true", help="exit when no run has work")

    def handle(self, *args: Any, concurrency: int, grace: float, until_idle: bool, **options: Any) -> None:
        from runs_app.engine.worker import DrainLimits
        from runs_app.processes.worker_process import run_worker

        try:
            recorded = run_worker(
                DrainLimits(concurrency=concurrency, until_idle=until_idle, grace_s=grace), self._handle_signals
            )
        except SchemaMismatch as mismatch:
            refuse_input(str(mismatch))
        self.stdout.write(f"{recorded} results recorded")

    async def _handle_signals(self, drain: Drain) -> None:
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signal_number, drain.stop)
        self.stdout.write(f"draining as {drain.registration.name}")
        self.stdout.flush()
