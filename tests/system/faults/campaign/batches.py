"""Batches with failing lines whose workers are killed with -9 while they submit and while they collect."""

import os

from tests.system.faults.campaign.fault_account import make_account
from tests.system.faults.campaign.lab import kill_group, refresh, wait_until

WORKERS = 8
CALLS = 200  # Per batch.
LINES_THAT_FAIL = {"500": 0.05, "429": 0.05}
LONGEST_S = 1200.0  # A lost submission is repeated after a quarter of an hour.


def kill_batch_workers(lab, trials):
    """Kill two workers: one while it submits a batch and one while it collects a batch."""
    from runs_app.models import Run

    run = lab.make_run("in-batches", trials, stop_failure_rate=1)
    os.environ["EVALSITE_KEY_CAMPAIGN"] = "sk-simulated"
    endpoint = run.condition.model.endpoint
    type(endpoint).objects.filter(pk=endpoint.pk).update(
        batch_api="openai", batch_max_requests=CALLS, batch_max_open=WORKERS, key_env="EVALSITE_KEY_CAMPAIGN"
    )
    Run.objects.filter(pk=run.pk).update(is_batched=True)
    lab.provider.set_faults(errors=LINES_THAT_FAIL, batch_waits={"done": 2.0, "line": 0.002})
    workers = lab.start_workers(WORKERS)
    killed = [kill_in_status(workers, run, status) for status in ("submitting", "collecting")]
    wait_until(lambda: refresh(run).status != "running" or lab.replace_ended_workers(WORKERS), LONGEST_S)
    lab.end_workers()
    answers = lab.provider.counters()["answers"]
    lab.provider.set_faults(errors="", batch_waits={})
    # Restore the endpoint.
    endpoint.save(update_fields=["batch_api", "batch_max_requests", "batch_max_open", "key_env"])
    batches = run.batches.count()
    note = f"{batches} batches; killed {' and '.join(killed)}"
    fault = f"10% of lines fail, two of {WORKERS} workers are killed with batches"
    return make_account(fault, run, answers=answers, recovery=note)


def kill_in_status(workers, run, status):
    """Kill -9 a worker that processes a batch in this status. Return a description of the moment."""
    written = []

    def kill_owner():
        for batch in run.batches.filter(status=status, claim__isnull=False).select_related("worker"):
            victim = next((worker for worker in workers if batch.worker and worker.pid == batch.worker.pid), None)
            if victim is not None and victim.poll() is None:
                kill_group(victim)
                written.append(run.attempt_rows.filter(token=batch.key).count())
                return True
        return refresh(run).status != "running"

    wait_until(kill_owner)
    return f"while {status}, with {written[0]} answers written" if written else f"nobody while {status}"
