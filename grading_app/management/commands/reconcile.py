"""The command `manage.py reconcile`: the consistency check of counters and ledger against the rows."""

import sys
from typing import Any

from evalsite.lib.ops.commands import OutputCommand
from grading_app.grading.adaptive_decisions import describe_earlier_rules
from grading_app.grading.consistency_check import find_differences


class Command(OutputCommand):
    help = "Compare every counter with its rows. Print the differences and exit with code 1 if there are any."

    def handle(self, *args: Any, **options: Any) -> None:
        differences = find_differences()
        for difference in differences:
            self.stdout.write(str(difference))
        for note in describe_earlier_rules():
            self.stdout.write(f"note: {note}")
        if differences:
            sys.exit(1)
        self.stdout.write("counters and ledger agree with the rows")
