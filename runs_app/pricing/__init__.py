"""What calls cost: how many tokens a request has, what a token costs, and where both are known from."""
