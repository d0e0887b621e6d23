"""The life of a trial from its claim to its record: admit, request, call, conclude, record, settle, sweep.

This package imports nothing of the web or of a provider's library. Every transaction takes its locks in one order:
endpoints, experiments, runs, then trials.
"""
