"""A process that compiles typst: it reads a job from its standard input and writes files to its standard output. Pure.

It runs apart from the site, with limits of time and memory, because a document may be large. The template is fixed and
every text of a report is data, so no text of others is compiled.
"""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evalsite.lib.ops.environment import build_child_environment
from evalsite.lib.ops.installation import ROOT, build_module_command

SECONDS = 60
MEMORY = 3 * 2**30
PNG_PPI = 300
MOMENT = 0
"""The time that every file states, in seconds since 1970: the same document gives the same bytes."""
FIGURE = b'#set page(width: auto, height: auto, margin: 0pt)\n#image("figure.svg")\n'
STANDARD: Final = "ua-1"
"""PDF/UA-1: typst refuses a document without tags, a title, a language or an alternative text of a figure."""
Files = Mapping[str, str]


class TypesettingError(RuntimeError):
    """A document that could not be typeset. The message says why."""


def typeset(template: Path, data: Mapping[str, Any], figures: Files, *, is_plain: bool) -> bytes:
    """Return the PDF of a report. figures: SVG by file name. is_plain: False if its texts need fonts of the system."""
    return _run_job(
        {"do": "report", "template": template.read_text(), "data": data, "figures": figures, "plain": is_plain}
    )


def convert_figures(figures: Files) -> dict[str, bytes]:
    """Return each SVG as PDF and as PNG of 300 dots per inch, by name with the suffix."""
    if not figures:
        return {}
    with zipfile.ZipFile(io.BytesIO(_run_job({"do": "figures", "figures": figures}))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _run_job(job: Mapping[str, Any]) -> bytes:
    command = build_module_command("grading_app.publish.report.typst_process")
    try:
        result = subprocess.run(
            command,
            input=json.dumps(job).encode(),
            capture_output=True,
            timeout=SECONDS,
            cwd=ROOT,
            env=build_child_environment("HOME", "XDG_DATA_HOME"),  # Fonts of the account are below these folders.
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TypesettingError(f"typesetting took longer than {SECONDS} s") from None
    if result.returncode:
        raise TypesettingError(
            result.stderr.decode(errors="replace").strip()[-500:] or f"it ended with {result.returncode}"
        )
    return result.stdout


def _run_from_stdin() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    job = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        output = (
            _compile_report(Path(folder), job)
            if job["do"] == "report"
            else _compile_figures(Path(folder), job["figures"])
        )
    sys.stdout.buffer.write(output)


def _compile_report(folder: Path, job: dict[str, Any]) -> bytes:
    import typst

    (folder / "report.typ").write_text(job["template"])
    (folder / "report.json").write_text(json.dumps(job["data"]))
    for name, svg in job["figures"].items():
        (folder / name).write_text(svg)
    content: bytes = typst.compile(
        folder / "report.typ",
        root=folder,
        format="pdf",
        timestamp=MOMENT,
        ignore_system_fonts=job["plain"],
        pdf_standards=STANDARD,
    )
    return content


def _compile_figures(folder: Path, figures: Files) -> bytes:
    import typst

    (folder / "figure.typ").write_bytes(FIGURE)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, svg in figures.items():
            (folder / "figure.svg").write_text(svg)
            kinds: Any = (("pdf", {"timestamp": MOMENT}), ("png", {"ppi": PNG_PPI}))
            for suffix, options in kinds:
                content = typst.compile(
                    folder / "figure.typ", root=folder, format=suffix, ignore_system_fonts=True, **options
                )
                archive.writestr(f"{name}.{suffix}", content)
    return buffer.getvalue()


if __name__ == "__main__":
    _run_from_stdin()
