"""Strike after strike, and then many trials under random faults; a table as Markdown.

    python -m tests.system.faults.campaign                               # every fault once, and 3,000 trials under fire
    python -m tests.system.faults.campaign --only worker postgres        # these alone
    python -m tests.system.faults.campaign --only rage --trials 100000   # the long one

It starts a PostgreSQL and providers of its own and leaves nothing behind. Exit code 1 where a promise was broken.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from tests.system.faults.campaign.account import table_of
from tests.system.faults.campaign.lab import lab
from tests.system.faults.campaign.rage import rage
from tests.system.faults.campaign.strikes import STRIKES, disk_filled

DISK, RAGE = "disk", "rage"


def main():
    options = read_options()
    from runs_app.simulator.config import SimulatorConfig

    config = SimulatorConfig(latency_ms=options.latency_ms, latency_sigma=0.5, retry_after_s=0.05, seed=options.seed)
    accounts, notes = [], []
    wanted = options.only or [*STRIKES, DISK, RAGE]
    with lab(config) as place:
        logging.disable(logging.WARNING)  # Refusals of a full disk and of a server that is away are what it is about.
        strikes = [STRIKES[name] for name in wanted if name in STRIKES]
        accounts += [told(strike(place, options.strike_trials)) for strike in strikes]
        if RAGE in wanted:
            account, notes = rage(place, options)
            accounts.append(told(account))
    if DISK in wanted and os.geteuid() == 0:
        accounts.append(told(disk_filled(config, options.strike_trials)))
    report = table_of(accounts) + "".join(f"\n- {note}" for note in notes) + "\n"
    print(report)
    if options.out:
        options.out.write_text(report)
    return int(not all(account.promises_kept for account in accounts))


def told(account):
    print(f"{account.fault}: {'kept' if account.promises_kept else 'BROKEN'}; {account.recovery}", flush=True)
    return account


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[*STRIKES, DISK, RAGE], help="instead of all")
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
