"""The `manage.py migrate` command: Django's own, for databases that this code can migrate."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import connections

from evalsite.lib.ops.commands import refuse_input
from evalsite.lib.ops.versions import SchemaMismatch, check_columns, check_history


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            check_history(connections[options["database"]])
            super().handle(*args, **options)
            if not any(options[name] for name in ("app_label", "plan", "check_unapplied", "prune")):
                check_columns(connections[options["database"]])
        except SchemaMismatch as error:
            refuse_input(str(error))
