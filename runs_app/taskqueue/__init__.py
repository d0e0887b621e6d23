"""The task queue (django-q2): its broker, and functions that enqueue tasks by name.

A lost task loses no work: the trials table is the queue of calls, and tasks only start workers and computations.
"""
