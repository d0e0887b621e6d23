"""Importing every page loads no library that only workers and commands need."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys, django
django.setup()
from django.urls import get_resolver
get_resolver().url_patterns
heavy = ("litellm", "matplotlib", "pandas", "pyarrow", "scipy.linalg", "scipy.optimize", "scipy.stats", "statsmodels")
print([name for name in heavy if name in sys.modules])
"""


@pytest.mark.slow
def test_the_addresses_of_all_pages_load_no_heavy_library():
    """scipy.special is allowed: it is small, and pages need quantiles."""
    completed = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert completed.stdout.strip() == "[]"
