"""A site started with `manage.py up`, with a real worker, a simulated provider and users who sign in by form."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from evalsite.lib.ops.postgres import Embedded
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import SimulatorProcess, simulator_process
from tests.prepared_database import build_environment
from tests.system.browser.conftest import PATIENCE_MS
from tests.system.browser.page_checks import LAPTOP, collect_complaints
from tests.system.postgres.conftest import ROOT, query
from tests.system.up.conftest import Site, find_processes, run_site, spaced_folder

PASSWORD = "correct horse battery staple"
ITEMS = 118
SEED = f"""
from evalsite.lib import permissions
from tests import factories
for name in ("researcher", "operator", "viewer", "curator"):
    user = factories.make_user(name, name.capitalize())
    user.set_password({PASSWORD!r})
    user.save()
factories.make_dataset("questions", {ITEMS})
factories.make_model("small", endpoint=factories.make_endpoint("lab", base_url="{{url}}"))
factories.make_prompt("brief", system="Answer briefly.")
factories.make_sampler("short", max_tokens=100)
"""
DESIGN = """
experiment: {name}
dataset: questions@1
models: [small]
prompts: [brief@1]
samplers: [short@1]
cache: false
backoff_s: 0.1
max_backoff_s: 0.2
lease_s: 8
{more}
"""


@dataclass
class LiveSite:
    """The site, its provider, and a browser in which each person has a separate page."""

    site: Site
    provider: SimulatorProcess
    browser: Browser
    complaints: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.site.port}"

    @contextmanager
    def visit(self, person: str, **options: Any) -> Iterator[Page]:
        """Sign in as this person, and collect the errors and warnings of the browser's console."""
        options = {"viewport": LAPTOP, "reduced_motion": "reduce", **options}
        context = self.browser.new_context(base_url=self.url, **options)
        page = context.new_page()
        page.set_default_timeout(4 * PATIENCE_MS)
        collect_complaints(page, self.complaints)
        try:
            page.goto("/accounts/login/")
            sign_in(page, person)
            expect(page.get_by_role("heading", name="Home")).to_be_visible()
            yield page
        finally:
            context.close()

    def answer(self, **faults: Any) -> None:
        """Let the provider answer immediately and without faults, except for these."""
        self.provider.set_faults(**{"errors": {}, "error_rate": 0, "latency_ms": 0, **faults})

    def create_experiment(self, name: str, more: str = "", *, launch: bool = True) -> None:
        file = self.site.place / f"{name}.yaml"
        file.write_text(DESIGN.format(name=name, more=more))
        self.site.manage("experiment", "create", str(file), "--user", "researcher")
        if launch:
            self.site.manage("experiment", "launch", name, "--yes")

    def run(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a line of a shell in which `manage` is the site's command. Its output is as a terminal shows it."""
        line = f'manage() {{ "{sys.executable}" "{ROOT / "manage.py"}" "$@"; }}; set -o pipefail; {command}'
        return subprocess.run(
            ["/bin/bash", "-c", line],
            env=build_environment(self.site.place),
            capture_output=True,
            text=True,
            timeout=300,
        )


def sign_in(page: Page, person: str) -> None:
    page.get_by_label("Username").fill(person)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


@contextmanager
def run_live_site(prepared: Path, browser: Browser) -> Iterator[LiveSite]:
    config = SimulatorConfig(skills={"small": 0.9})
    with (
        simulator_process(config) as provider,
        spaced_folder(prepared) as place,
        run_site(place) as site,
    ):
        yield LiveSite(site, provider, browser)
        site.stop()


def add_users_and_designs(live_site: LiveSite) -> None:
    live_site.site.manage("shell", "--no-imports", "-c", SEED.replace("{url}", live_site.provider.url))


def kill_workers(site: Site) -> None:
    """Kill the processes that hold calls, as the kernel of a machine without free memory does."""
    rows = query(
        Embedded(site.place / "data" / "postgres"),
        "SELECT string_agg(pid::text, ' ') FROM runs_app_worker WHERE stopped_at IS NULL",
    )
    site_pids = find_processes(site.place)
    for pid in map(int, str(rows).split()):
        assert pid in site_pids
        os.kill(pid, signal.SIGKILL)
