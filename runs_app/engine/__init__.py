"""The life of a work unit, from its claim to its record: admit, ask, call, conclude, record, settle; sweep and rescue.

Nothing here knows of the web or of a provider's library. Locks are taken in one order: endpoints, experiments, runs,
then the units.
"""
