"""The speed of planning a large design: `python benchmarks/planning.py [TRIALS]`, on a temporary database.

It prints seconds and rows per second. It plans three times: a first plan, the same plan again, and one sample more.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

import django

django.setup()

from django.db import connection

from runs_app.models import Experiment, Trial
from runs_app.planning import plan as plan_module
from tests.factories import drafts

ITEMS, RUNS, SAMPLES = 1000, 10, 10


def main(trials: int) -> None:
    per_run = trials // RUNS
    dimensions = max(1, per_run // ITEMS // SAMPLES)
    experiment = drafts.make_draft_experiment(
        dataset=drafts.make_questions(ITEMS),
        models=[drafts.make_rehearsal_model(f"m{at}") for at in range(RUNS)],
        dimensions=[drafts.make_draft_dimension(f"d{at}") for at in range(dimensions)],
        samples=SAMPLES,
    )
    measure_plan("first plan", experiment)
    measure_plan("the same again", experiment)
    experiment.samples += 1
    experiment.save()
    measure_plan("one more sample", experiment)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{Trial.objects.count():,} rows; this process took {memory} MB")


def measure_plan(label: str, experiment: Experiment) -> None:
    start = time.perf_counter()
    report = plan_module.plan(experiment)
    seconds = time.perf_counter() - start
    print(
        f"{label}: {report.trials_added:,} trials in {seconds:.2f} s ({report.trials_added / seconds:,.0f}/s)",
        flush=True,
    )


if __name__ == "__main__":
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
