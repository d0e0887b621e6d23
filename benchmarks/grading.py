"""The speed of rules on stored answers: `python benchmarks/grading.py [TRIALS]`, on a temporary database."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.stored import create_answers, temporary_database
from grading_app.grading.scoring import grade


def main(rows: int) -> None:
    experiment = create_answers(rows)
    for scorer in ("numeric", "exact_match"):
        for label in ("first", "again"):
            start = time.perf_counter()
            (report,) = grade(experiment, scorers=[scorer], by="benchmark")
            seconds = time.perf_counter() - start
            print(f"{scorer}, {label}: {report} in {seconds:.1f} s ({report.graded / seconds:,.0f}/s)", flush=True)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB of memory")


if __name__ == "__main__":
    with temporary_database():
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
