"""Calls of `manage.py import_study`."""

import pytest
from django.core.management import CommandError, call_command

from runs_app.models import Experiment


def import_study(path, *options):
    """Import the study; return its experiment."""
    call_command("import_study", str(path), *options)
    return Experiment.objects.get()


def import_refused_study(path, *options):
    """Check that the import is refused and creates no experiment; return the message."""
    with pytest.raises(CommandError) as caught:
        call_command("import_study", str(path), *options)
    assert caught.value.returncode == 2
    assert not Experiment.objects.exists()
    return str(caught.value)
