"""The command `manage.py raw_responses remove`: the retention rule for raw responses, now."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.template.defaultfilters import filesizeformat

from evalsite.lib.ops.commands import VerbCommand, add_user, refuse_input, resolve_actor
from evalsite.lib.text.number_format import format_count
from grading_app.grading.retention import find_due, measure_raw_responses, remove_raw_responses


class Command(VerbCommand):
    help = "Remove the raw responses of finished, graded experiments."

    def add_verbs(self, verbs: Any) -> None:
        parser = verbs.add_parser("remove", help="remove raw responses of experiments that ended some days ago")
        parser.add_argument(
            "--days", type=int, metavar="N", help="days since the end; default: EVALSITE_RAW_RESPONSE_DAYS"
        )
        parser.add_argument("--dry-run", action="store_true", help="count rows and bytes, and remove nothing")
        parser.add_argument("--yes", action="store_true")
        add_user(parser)

    def do_remove(self, days: int | None, dry_run: bool, yes: bool, user: str, **options: Any) -> None:
        days = settings.RAW_RESPONSE_DAYS or None if days is None else days
        if days is None or days < 0:
            refuse_input("--days: give a number of days, because EVALSITE_RAW_RESPONSE_DAYS is not set")
        by = resolve_actor(user)
        rows = n_bytes = 0
        for experiment in find_due(days):
            stored = measure_raw_responses(experiment)
            self.write(f"{experiment}: {format_count(stored.rows)} rows, {filesizeformat(stored.bytes)}")
            rows, n_bytes = rows + stored.rows, n_bytes + stored.bytes
        self.write(f"{format_count(rows)} raw responses are due, with {filesizeformat(n_bytes)}")
        if dry_run or not rows:
            return
        self.confirm(f"Remove {format_count(rows)} raw responses? They cannot be restored.", yes)
        self.write(f"{format_count(remove_raw_responses(days, by=by))} raw responses were removed")
