"""`manage.py response_cache VERB`: the answers that are remembered, over all experiments."""

from __future__ import annotations

from typing import Any

from evalsite.lib.commands import VerbCommand
from evalsite.lib.wording import count_text
from runs_app.engine import remembering


class Command(VerbCommand):
    help = "Count and forget the answers of the response cache."

    def add_verbs(self, verbs: Any) -> None:
        verbs.add_parser("show", help="how many answers are remembered").add_argument("--json", action="store_true")
        verbs.add_parser("purge", help="forget them all").add_argument("--yes", action="store_true")

    def do_show(self, json: bool, **options: Any) -> None:
        n = remembering.how_many()
        if json:
            self.say_json({"answers": n})
        else:
            self.say(f"{count_text(n)} answers are remembered")

    def do_purge(self, yes: bool, **options: Any) -> None:
        self.confirm(f"Forget {count_text(remembering.how_many())} answers? They will be asked and paid for anew.", yes)
        self.say(f"{count_text(remembering.forget())} answers are forgotten")
