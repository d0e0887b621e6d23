"""The engine: a trial's life from its claim to its record.

Nothing here handles web requests or calls a provider's library. All transactions take their locks in one order, which
`runs_app.engine.counters` explains.
"""
