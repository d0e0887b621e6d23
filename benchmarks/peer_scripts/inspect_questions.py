"""The questions for inspect_ai: arguments NUMBER IN_FLIGHT FOLDER.

It runs with inspect_ai's Python, not the project's.
"""

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

n, in_flight, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
samples = [Sample(input=f"What is {number} plus 1?", target=str(number + 1)) for number in range(n)]
(log,) = eval(
    Task(dataset=samples, solver=generate(), scorer=includes()),
    model="openai-api/sim/sim-a",
    max_connections=in_flight,
    max_samples=in_flight,
    max_tokens=64,
    log_dir=f"{folder}/logs",
    display="none",
)
if log.status != "success" or len(log.samples) != n:
    sys.exit(f"{log.status}: {len(log.samples or [])} of {n} answers; {log.error.message if log.error else ''}")
