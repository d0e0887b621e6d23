"""What people see of experiments while they run and after: totals, rates, money, and where each part stands."""
