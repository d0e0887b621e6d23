"""The life of a trial from its claim to its record: admit, request, call, conclude, record, settle, sweep.

Nothing here handles web requests or calls a provider's library. All transactions take their locks in one order, which
`runs_app.engine.counters` explains.
"""
