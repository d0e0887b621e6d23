"""Provider batches: claimed, submitted, polled, then collected or cancelled. Any worker can continue a batch.

Every step ends in a commit and is idempotent.
"""
