"""The command `manage.py up`: the whole site on this machine, in the foreground."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from evalsite.lib.ops.commands import BAD_INPUT, WORK_FAILED
from evalsite.lib.ops.data_folder import SiteInUse, hold_site
from evalsite.lib.ops.supervisor import StartFailed
from evalsite.lib.web.sign_in import build_link, get_public_url
from runs_app.processes.site_processes import (
    LOOPBACK,
    AddressError,
    add_address_options,
    migrate,
    open_listener,
    serve,
)

ROOT_WARNING = (
    "Warning: the site runs as root, which it does not need. Its web server and workers can then do anything on this"
    " machine, and an embedded PostgreSQL runs as the user nobody. Use a dedicated account (docs/operating.md)."
)


class Command(BaseCommand):
    help = "Start the database if it is embedded, migrate, and serve the site with its workers until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_address_options(parser)
        parser.add_argument("--workers", type=int, default=settings.DRAINS, metavar="N", help="number of drains")

    def handle(self, *args: Any, host: str, port: int, workers: int, **options: Any) -> None:
        if workers < 1:
            raise CommandError("--workers: must be at least 1", returncode=BAD_INPUT)
        if host not in LOOPBACK and not os.environ.get("EVALSITE_ALLOWED_HOSTS"):
            self.stderr.write(
                "Set EVALSITE_ALLOWED_HOSTS to the host names of this site. Requests to other names are refused."
            )
        try:
            with hold_site(settings.DATA_DIR) as store_address, open_listener(host, port) as listener:
                if os.geteuid() == 0:
                    self.stderr.write(ROOT_WARNING, self.style.WARNING)
                migrate()
                serve(listener, drains=workers, on_ready=lambda url: self._announce(url, store_address))
        except (AddressError, SiteInUse) as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from None
        except StartFailed as error:
            raise CommandError(str(error), returncode=WORK_FAILED) from None

    def _announce(self, url: str, store_address: Callable[[str], None]) -> None:
        store_address(url)
        address = f"{get_public_url(url)} for a proxy that passes requests on to {url}" if settings.HTTPS else url
        self.stdout.write(f"Evalsite is at {address} (Ctrl-C stops it)")
        if not User.objects.exists():
            self.stdout.write(f"Create the first account at {build_link(url)} (valid once, for an hour)")
        connection.close()  # This process runs on without the database.
        self.stdout.flush()
