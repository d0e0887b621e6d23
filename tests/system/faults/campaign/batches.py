"""Calls in batches, with lines that fail, and workers killed with -9 while they hand over and while they collect."""

import os

from tests.system.faults.campaign.account import account_of
from tests.system.faults.campaign.lab import fresh, kill_group, seconds_until

WORKERS = 8
CALLS = 200  # Of a batch.
LINES_THAT_FAIL = {"500": 0.05, "429": 0.05}
LONGEST_S = 1200.0  # A submission that never arrived is made again after a quarter of an hour.


def batchers_killed(place, trials):
    """Two workers, each while it is at a batch: one that hands it over, and one that collects it."""
    from runs_app.models import Run

    run = place.work("in-batches", trials, stop_failure_rate=1)
    os.environ["CAMPAIGN_KEY"] = "sk-simulated"
    endpoint = run.condition.model.endpoint
    type(endpoint).objects.filter(pk=endpoint.pk).update(
        batch_api="openai", batch_max_requests=CALLS, batch_max_open=WORKERS, key_env="CAMPAIGN_KEY"
    )
    Run.objects.filter(pk=run.pk).update(is_batched=True)
    place.provider.set_faults(errors=LINES_THAT_FAIL, batch_waits={"done": 2.0, "line": 0.002})
    workers = place.join(WORKERS)
    killed = [killed_at(workers, run, status) for status in ("submitting", "collecting")]
    seconds_until(lambda: fresh(run).status != "running" or place.keep(WORKERS), LONGEST_S)
    place.end_workers()
    answers = place.provider.counters()["answers"]
    place.provider.set_faults(errors="", batch_waits={})
    endpoint.save(update_fields=["batch_api", "batch_max_requests", "batch_max_open", "key_env"])  # As it was.
    batches = run.batches.count()
    note = f"{batches} batches; killed {' and '.join(killed)}"
    fault = f"10% of lines fail, two of {WORKERS} workers are killed with batches"
    return account_of(fault, run, answers=answers, recovery=note)


def killed_at(workers, run, status):
    """Kill -9 whoever is at a batch in this state. In which moment that was, in words."""
    found = []

    def struck():
        for batch in run.batches.filter(status=status, claim__isnull=False).select_related("worker"):
            victim = next((one for one in workers if batch.worker and one.pid == batch.worker.pid), None)
            if victim is not None and victim.poll() is None:
                kill_group(victim)
                found.append(run.attempt_rows.filter(token=batch.key).count())
                return True
        return fresh(run).status != "running"

    seconds_until(struck)
    return f"while {status}, with {found[0]} answers written" if found else f"nobody while {status}"
