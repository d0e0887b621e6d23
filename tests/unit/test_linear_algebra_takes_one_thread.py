"""A process of the site computes with matrices in one thread, because several processes share the processors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import os, django
django.setup()
import numpy
numpy.linalg.eigvals(numpy.random.default_rng(7).random((400, 400)))
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts the threads in /proc")
def test_the_eigenvalues_of_a_matrix_start_no_thread():
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", CODE]
    completed = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert completed.stdout.strip() == "1"
