"""The `manage.py sign_in_link` command: prints a one-time link for the first account, or for an existing one."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from evalsite.lib.ops.commands import OutputCommand, find_user, refuse_input
from evalsite.lib.ops.data_folder import read_address
from evalsite.lib.web.sign_in import build_link


class Command(OutputCommand):
    help = "Print a link that signs in once, within an hour. On a site without accounts it makes the first operator."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="user name of the account; not on a site without accounts")

    def handle(self, *args: Any, name: str | None, **options: Any) -> None:
        if name is None and User.objects.exists():
            refuse_input("name: name the account, because this site has accounts")
        self.write(build_link(read_address(settings.DATA_DIR), find_user(name) if name else None))
