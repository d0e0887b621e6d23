"""Planning: specs and forms, versions, designs, estimates, conditions, runs and trials, and manifests."""
