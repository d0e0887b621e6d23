"""A new web process prepares its pages by itself: imports, templates and the map of addresses."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from evalsite.wsgi import application
application.warm_up()
from django.template import engines
from django.urls import get_resolver
loader, = engines["django"].engine.template_loaders
compiled = str(sorted(loader.get_template_cache))
print(get_resolver()._populated, "scipy.special" in sys.modules, "runs_app/trial_list.html" in compiled)
print([name for name in ("litellm", "matplotlib", "scipy.stats") if name in sys.modules])
"""


def test_after_the_warm_up_a_visit_compiles_no_template_and_builds_no_addresses():
    root = Path(__file__).parents[3]
    completed = subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines() == ["True True True", "[]"]
