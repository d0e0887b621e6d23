"""The life of a provider's batch: made of claims, submitted, looked after, collected or cancelled. Any worker goes on.

Every step ends in a commit and can be done again: what a step finds done, it leaves.
"""
