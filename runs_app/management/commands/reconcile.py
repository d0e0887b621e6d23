"""The command `manage.py reconcile`: the consistency check of counters and ledger against the rows."""

import sys
from typing import Any

from evalsite.lib.ops.commands import OutputCommand
from runs_app.grading_interface import grading
from runs_app.monitoring.consistency_check import find_differences


class Command(OutputCommand):
    help = "Compare every counter with its rows; exit 1 and the differences if any."

    def handle(self, *args: Any, **options: Any) -> None:
        found = find_differences()
        for difference in found:
            self.stdout.write(str(difference))
        for note in grading().find_points_of_earlier_rules():
            self.stdout.write(f"note: {note}")
        if found:
            sys.exit(1)
        self.stdout.write("counters and ledger equal the rows")
