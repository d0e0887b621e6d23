"""The `manage.py restore` command: loads a backup into an empty database."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from evalsite.lib.ops.backup import BackupError, restore
from evalsite.lib.ops.commands import refuse_input
from evalsite.lib.text.number_format import format_count


class Command(BaseCommand):
    help = "Fill an empty database from a backup, and put back the images beside it."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("dump", type=Path, help="a file created by `backup`")

    def handle(self, *args: Any, dump: Path, **options: Any) -> None:
        try:
            copied = restore(dump.resolve())
        except (BackupError, OSError) as error:
            refuse_input(str(error))
        self.stdout.write(f"restored; {format_count(copied)} images put back. `reconcile` proves the counters.")
