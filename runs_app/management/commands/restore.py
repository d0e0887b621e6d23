"""The `manage.py restore` command: loads a backup into an empty database."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from evalsite.lib.ops.backup import BackupError, restore
from evalsite.lib.ops.commands import refuse_file, resolve_actor
from evalsite.lib.text.number_format import format_count
from runs_app import run_control
from runs_app.models import Run
from runs_app.processes.site_processes import read_database_time, take_over


class Command(BaseCommand):
    help = "Fill an empty database from a backup, and put back the images beside it."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("dump", type=Path, help="a file created by `backup`")
        parser.add_argument(
            "--pause", action="store_true", help="pause all runs, so that no call is made until you resume them"
        )

    def handle(self, *args: Any, dump: Path, pause: bool, **options: Any) -> None:
        restored_at = read_database_time()
        try:
            copied = restore(dump.resolve())
        except (BackupError, OSError) as error:
            refuse_file(error)
        self.stdout.write(f"restored; {format_count(copied)} images put back")
        call_command("migrate", interactive=False, verbosity=0)
        if pause:
            paused = run_control.pause(Run.objects.all(), by=resolve_actor(), reason="Restored from a backup")
            self.stdout.write(f"{format_count(len(paused))} runs paused; `experiment resume NAME` continues them.")
        for sentence in take_over(restored_at):
            self.stdout.write(sentence)
        self.stdout.write("`reconcile` proves the counters.")
