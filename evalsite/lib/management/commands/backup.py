"""The `manage.py backup` command: copies the database and the images into a folder."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from evalsite.lib.ops.backup import BackupError, back_up
from evalsite.lib.ops.commands import WORK_FAILED, refuse_input
from evalsite.lib.text.number_format import format_count


class Command(BaseCommand):
    help = "Back up the database and the images into a folder, while the site runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="created if it is missing; its backups share the images")
        parser.add_argument("--keep", type=int, metavar="N", help="delete all but the newest N dumps of the folder")

    def handle(self, *args: Any, folder: Path, keep: int | None, **options: Any) -> None:
        if keep is not None and keep < 1:
            refuse_input("--keep: must be at least 1")
        try:
            dump, copied = back_up(folder.resolve(), keep)
        except (BackupError, OSError) as error:
            raise CommandError(str(error), returncode=WORK_FAILED) from None
        self.stdout.write(f"{dump}: {format_count(dump.stat().st_size)} bytes; {format_count(copied)} new images")
