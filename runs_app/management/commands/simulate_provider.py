"""The command `manage.py simulate_provider`: an OpenAI-compatible server for demos, tests and load tests."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from runs_app.simulator.config import ConfigError, add_options, build_config
from runs_app.simulator.server import run


class Command(BaseCommand):
    help = "Serve an OpenAI-compatible API whose answers, faults and latencies are simulated or replayed."
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_options(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            run(build_config(options))
        except (ConfigError, OSError) as error:
            raise CommandError(str(error), returncode=2) from None
