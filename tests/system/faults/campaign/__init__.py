"""A campaign of faults: each strikes a run in the middle, and an account says what it cost."""
