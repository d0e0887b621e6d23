"""The command `manage.py response_cache VERB`: the cached answers of all experiments."""

from __future__ import annotations

from typing import Any

from django.template.defaultfilters import filesizeformat

from evalsite.lib.ops.commands import VerbCommand, add_reason, resolve_actor
from evalsite.lib.text.number_format import format_count
from runs_app.models.cache import list_purges, measure_cache, purge_cache


class Command(VerbCommand):
    help = "Count and clear the answers of the response cache."

    def add_verbs(self, verbs: Any) -> None:
        parser = verbs.add_parser("show", help="show the number of cached answers, and when the cache was cleared")
        parser.add_argument("--json", action="store_true")
        parser = verbs.add_parser("purge", help="clear the cache")
        add_reason(parser)
        parser.add_argument("--yes", action="store_true")

    def do_show(self, json: bool, **options: Any) -> None:
        size = measure_cache()
        if json:
            purges = [
                {"at": change.at, "by": change.actor, "held": change.from_value, "reason": change.reason}
                for change in list_purges()
            ]
            self.write_json({"answers": size.answers, "bytes": size.bytes, "oldest": size.oldest, "emptied": purges})
            return
        self.write(f"{format_count(size.answers)} answers are cached; their keys use {filesizeformat(size.bytes)}")
        for change in list_purges():
            reason = f": {change.reason}" if change.reason else ""
            self.write(f"{change.at:%Y-%m-%d %H:%M:%S} UTC  {change.actor} cleared {change.from_value}{reason}")

    def do_purge(self, yes: bool, reason: str, user: str, **options: Any) -> None:
        by = resolve_actor(user)
        answers = measure_cache().answers
        self.confirm(f"Clear {format_count(answers)} cached answers? The same requests will be paid for again.", yes)
        self.write(f"{format_count(purge_cache(by=by, reason=reason))} cached answers were cleared")
