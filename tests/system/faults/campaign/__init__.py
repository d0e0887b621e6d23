"""A campaign that injects faults into runs, one per run, and reports what each fault cost."""
