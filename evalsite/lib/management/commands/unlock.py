"""The `manage.py unlock` command: lets people sign in again before their waiting time ends."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from evalsite.lib.ops.commands import OutputCommand, refuse_input
from evalsite.lib.web.sign_in import clear_failures, hash_account, hash_address


class Command(OutputCommand):
    help = "Forget failed sign-ins, so that people need not wait."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="user name of the account")
        parser.add_argument("--address", metavar="ADDRESS", help="network address of the attempts")
        parser.add_argument("--all", action="store_true", help="all accounts and addresses")

    def handle(self, *args: Any, name: str | None, address: str | None, all: bool, **options: Any) -> None:
        if not (name or address or all):
            refuse_input("name: name the failed sign-ins to delete: an account, --address ADDRESS or --all")
        keys = [key for key in (name and hash_account(name), address and hash_address(address)) if key]
        n = clear_failures(None if all else keys)
        self.write(f"{n} failed sign-in{'' if n == 1 else 's'} forgotten")
