"""From what people write or choose to rows: specs and forms, versions, crossing, estimates, planning, manifests."""
