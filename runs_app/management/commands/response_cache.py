"""The command `manage.py response_cache VERB`: the cached answers of all experiments."""

from __future__ import annotations

from typing import Any

from django.template.defaultfilters import filesizeformat

from evalsite.lib.ops.commands import VerbCommand, resolve_actor
from evalsite.lib.text.number_format import format_count
from runs_app.cache_purge import list_purges, measure_cache, purge


class Command(VerbCommand):
    help = "Count and forget the answers of the response cache."

    def add_verbs(self, verbs: Any) -> None:
        parser = verbs.add_parser("show", help="how many answers are remembered, and who emptied it when")
        parser.add_argument("--json", action="store_true")
        parser = verbs.add_parser("purge", help="forget them all")
        parser.add_argument("--reason", default="", metavar="TEXT")
        parser.add_argument("--user", default="", metavar="NAME", help="whom the history names")
        parser.add_argument("--yes", action="store_true")

    def do_show(self, json: bool, **options: Any) -> None:
        size = measure_cache()
        if json:
            emptied = [
                {"at": one.at, "by": one.actor, "held": one.from_value, "reason": one.reason} for one in list_purges()
            ]
            self.say_json({"answers": size.answers, "bytes": size.bytes, "oldest": size.oldest, "emptied": emptied})
            return
        self.say(f"{format_count(size.answers)} answers are remembered, {filesizeformat(size.bytes)} of keys")
        for one in list_purges():
            reason = f": {one.reason}" if one.reason else ""
            self.say(f"{one.at:%Y-%m-%d %H:%M:%S} UTC  {one.actor} emptied it of {one.from_value}{reason}")

    def do_purge(self, yes: bool, reason: str, user: str, **options: Any) -> None:
        by = resolve_actor(user)
        held = measure_cache().answers
        self.confirm(f"Forget {format_count(held)} answers? They will be asked and paid for anew.", yes)
        self.say(f"{format_count(purge(by=by, reason=reason))} answers are forgotten")


def _emptied() -> list[dict[str, Any]]:
    return [{"at": one.at, "by": one.actor, "held": one.from_value, "reason": one.reason} for one in list_purges()]
