"""Files of the site are readable by its own account only, even under a permissive umask."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalsite.lib.ops.data_folder import make_data_folder, restrict_folder
from tests.prepared_database import build_environment, copy_folder
from tests.system.postgres.conftest import ROOT, open_folder

# One process, because each start takes seconds. manage.py sets the umask of all commands.
SETUP_CODE = """
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import call_command

User.objects.create_superuser('rita', password='x')
about = {'title': 'T', 'source': 'shipped', 'licence': 'CC0'}
call_command('dataset', 'import', 'samples/photographs.csv', images='samples/photographs', name='photographs', **about)
call_command('dataset', 'import', 'samples/questions.jsonl', name='questions', **about)
call_command('dataset', 'approve', 'questions@1', reason='checked')
call_command('endpoint', 'set', 'rehearsal', provider='openai', base_url='http://127.0.0.1:9/v1')
call_command('experiment', 'create', 'samples/questions-pilot.yaml', user='rita')
call_command('export', 'questions-pilot', table='trials', format='csv', out=OUT + '/trials.csv')
call_command('snapshot', 'questions-pilot', out=OUT + '/snapshot.zip')
call_command('backup', OUT + '/backups')
default_storage.save('stored/by-django.txt', ContentFile(b'text'))
"""


def get_bits_for_others(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode) & 0o077


@pytest.fixture(scope="module")
def site_folder(prepared: Path) -> Iterator[Path]:
    with open_folder() as folder:
        copy_folder(prepared, folder / "data")
        out = folder / "out"
        out.mkdir()
        command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", f"OUT = {str(out)!r}\n{SETUP_CODE}"]
        subprocess.run(command, cwd=ROOT, env=build_environment(folder), check=True, umask=0o022)
        yield folder


@pytest.mark.processes
def test_other_accounts_cannot_read_media_exports_snapshots_or_backups(site_folder: Path) -> None:
    paths = [path for path in (site_folder / "data" / "media").rglob("*")] + [
        path for path in (site_folder / "out").rglob("*")
    ]
    names = {path.suffix for path in paths if path.is_file()}
    assert {".csv", ".zip", ".dump", ".txt"} < names
    assert any("assets" in path.parts and path.is_file() for path in paths)
    assert [path for path in paths if get_bits_for_others(path)] == []
    assert get_bits_for_others(site_folder / "data" / "media") == 0


@pytest.mark.processes
def test_other_accounts_cannot_read_the_rest_of_the_data_folder(site_folder: Path) -> None:
    folder = site_folder / "data"
    open_to_others = {path.name for path in folder.iterdir() if get_bits_for_others(path)}
    assert open_to_others <= {"postgres"}, "root's server, of another account, has to reach its own folder"


def test_a_data_folder_is_private_but_traversable_if_root_creates_it(tmp_path: Path) -> None:
    make_data_folder(tmp_path / "var" / "data")
    mode = 0o711 if os.geteuid() == 0 else 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "var", tmp_path / "var" / "data")] == [mode] * 2


def test_permissions_of_a_folder_of_an_earlier_version_are_tightened(tmp_path: Path) -> None:
    for name, mode in (("media", 0o755), ("closed", 0o500)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
        restrict_folder(tmp_path / name)
    restrict_folder(tmp_path / "missing")
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("media", "closed")] == [0o700, 0o500]
