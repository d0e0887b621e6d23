"""Small files for uploads."""

import io
import os
import signal
import subprocess
import tempfile
import zipfile
from pathlib import Path

from django.core.management import call_command
from PIL import Image

RED, BLUE = (200, 30, 30), (30, 30, 200)


def build_upload(content: str | bytes, name: str = "items.csv") -> io.BytesIO:
    file = io.BytesIO(content.encode() if isinstance(content, str) else content)
    file.name = name
    return file


def build_picture(colour=RED, size=(40, 30), form="JPEG", **options) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, form, **options)
    return buffer.getvalue()


def build_archive(members: dict[str, bytes | str], name: str = "items.zip") -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for member, content in members.items():
            file.writestr(member, content)
    return build_upload(buffer.getvalue(), name)


def list_messages(remarks) -> list[str]:
    return [str(remark) for remark in remarks]


def stop_processes(monkeypatch):
    """Stop each process that is started from now on at its start, as a machine does that gives it no processor.

    Return a list of these processes.
    """
    processes, start = [], subprocess.Popen

    def start_and_stop(*args, **kwargs):
        processes.append(start(*args, **kwargs))
        os.kill(processes[-1].pid, signal.SIGSTOP)
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", start_and_stop)
    return processes


def run_in_this_process(arguments):
    """Yield the output of a command like `stream_command`, but within the transaction of the test."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        call_command(
            *(f"--out={out}" if argument == "--out=-" else argument for argument in arguments), stderr=io.StringIO()
        )
        yield out.read_bytes()
