"""The state of experiments for people: totals, rates, costs and status, during and after a run."""
