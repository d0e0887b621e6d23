"""Batches at providers: made of claims, submitted, polled, then collected or cancelled. Any worker can continue one.

Every step ends in a commit and can be repeated: it skips what is already done.
"""
