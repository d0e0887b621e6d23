"""Prove that counters and ledger equal the rows."""

import sys
from typing import Any

from evalsite.lib.commands import SayingCommand
from runs_app.above import grading
from runs_app.reconciling import differences


class Command(SayingCommand):
    help = "Compare every counter with its rows; exit 1 and the differences if any."

    def handle(self, *args: Any, **options: Any) -> None:
        found = differences()
        for difference in found:
            self.stdout.write(str(difference))
        for note in grading().points_of_earlier_rules():
            self.stdout.write(f"note: {note}")
        if found:
            sys.exit(1)
        self.stdout.write("counters and ledger equal the rows")
