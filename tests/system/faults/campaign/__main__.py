"""Inject each fault into a run, then run many trials under random faults. Print a Markdown table.

    python -m tests.system.faults.campaign                               # every fault once, and 3,000 trials under fire
    python -m tests.system.faults.campaign --only worker postgres        # these alone
    python -m tests.system.faults.campaign --only rage --trials 100000   # the long one

It starts its own PostgreSQL and providers and removes them. The exit code is 1 if a promise was broken.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from tests.system.faults.campaign.fault_account import format_table
from tests.system.faults.campaign.faults import FAULTS, fill_small_disk
from tests.system.faults.campaign.lab import run_lab
from tests.system.faults.campaign.random_faults import run_random_faults

DISK, RAGE = "disk", "rage"


def main():
    options = read_options()
    from runs_app.simulator.config import SimulatorConfig

    config = SimulatorConfig(latency_ms=options.latency_ms, latency_sigma=0.5, retry_after_s=0.05, seed=options.seed)
    accounts, notes = [], []
    selected = options.only or [*FAULTS, DISK, RAGE]
    with run_lab(config) as lab:
        logging.disable(logging.WARNING)  # A full disk and a stopped server cause expected warnings.
        faults = [FAULTS[name] for name in selected if name in FAULTS]
        accounts += [print_account(inject_fault(lab, options.strike_trials)) for inject_fault in faults]
        if RAGE in selected:
            account, notes = run_random_faults(lab, options)
            accounts.append(print_account(account))
    if DISK in selected and os.geteuid() == 0:
        accounts.append(print_account(fill_small_disk(config, options.strike_trials)))
    report = format_table(accounts) + "".join(f"\n- {note}" for note in notes) + "\n"
    print(report)
    if options.out:
        options.out.write_text(report)
    return int(not all(account.promises_kept for account in accounts))


def print_account(account):
    print(f"{account.fault}: {'kept' if account.promises_kept else 'BROKEN'}; {account.recovery}", flush=True)
    return account


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[*FAULTS, DISK, RAGE], help="instead of all")
    parser.add_argument("--out", type=Path, help="write the table into this file, too")
    parser.add_argument("--strike-trials", type=int, default=3000, help="of each run that is struck once")
    parser.add_argument("--trials", type=int, default=3000, help="of the run under random faults")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--error-rate", type=float, default=0.2)
    parser.add_argument("--latency-ms", type=float, default=250.0)
    parser.add_argument("--kill-every", type=float, default=15.0, help="seconds between kills of a worker, on average")
    parser.add_argument("--kill-server-every", type=float, default=45.0, help="and of PostgreSQL; 0 is never")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
