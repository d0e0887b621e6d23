"""The environment of child processes that need no key: a few named variables of this process and nothing else."""

from __future__ import annotations

import os

PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def build_child_environment(*names: str, **values: str) -> dict[str, str]:
    """Return the variables of `PASSED_ON` and `names` that are set, and `values`. `PG*` names all with this prefix.

    The environment of the site holds keys of providers and the password of the database. A child gets only what it
    needs.
    """
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    chosen = {*PASSED_ON, *names}
    inherited = {
        name: value for name, value in os.environ.items() if name in chosen or (prefixes and name.startswith(prefixes))
    }
    return inherited | values
