"""The command `manage.py sweep_stale_claims`: the immediate release of expired claims."""

from typing import Any

from django.core.management.base import BaseCommand

from runs_app.engine.leases import sweep_expired


class Command(BaseCommand):
    help = "Release every trial whose lease has expired."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"{sweep_expired()} expired claims released")
