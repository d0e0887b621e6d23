"""The first hour: from `up` on an empty database to a first result, in few clicks and without a terminal."""

import csv
import io
import json
import random
import re
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from evalsite.lib.ops.installation import ROOT
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import SimulatorProcess, simulator_process
from tests.system.browser.conftest import PATIENCE_MS
from tests.system.browser.page_checks import LAPTOP, collect_complaints, find_all_faults, wait_for_images
from tests.system.up.conftest import Site, run_site, spaced_folder, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.processes]

KEY = "sk-lab-key-0123456789"
PASSWORD = "correct horse battery staple"
QUESTIONS = 50


@dataclass
class Counts:
    """What a person does: clicks, pages that load, pages whose form is sent, typed fields."""

    clicks: int = 0
    loads: int = 0
    forms: set[str] = field(default_factory=set)
    fields: int = 0

    def __str__(self) -> str:
        forms = ", ".join(sorted(self.forms))
        return f"{self.clicks} clicks, {self.loads} page loads, {len(self.forms)} forms ({forms}), {self.fields} fields"


@dataclass
class Newcomer:
    """A person in a browser whose actions are counted."""

    page: Page
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.page.on("load", lambda _: self._count_load())
        self.page.on("request", self._count_form)

    def _count_load(self) -> None:
        self.counts.loads += 1

    def _count_form(self, request) -> None:
        path = urlsplit(request.url).path
        if request.method == "POST" and path != "/start/preview/":
            self.counts.forms.add(path)

    def click(self, target: Locator) -> None:
        self.page.wait_for_load_state("load")
        self.counts.clicks += 1
        target.click()

    def press(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name, exact=True))

    def type(self, label: str, text: str) -> None:
        self.page.wait_for_load_state("load")
        self.counts.fields += 1
        self.page.get_by_label(re.compile(rf"^\s*{label}")).fill(text)

    def select(self, label: str, option: str) -> None:
        self.counts.fields += 1
        self.page.get_by_label(label).select_option(label=option)

    def choose_file(self, path: Path) -> None:
        self.page.wait_for_load_state("load")
        self.counts.clicks += 1
        self.page.get_by_label("File", exact=False).first.set_input_files(path)


@pytest.fixture
def provider(tmp_path) -> Iterator[SimulatorProcess]:
    """Two simulated models behind a key, which know the answers with different skill."""
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"text": row[1], "target": row[2]}) + "\n" for row in build_rows() if row[1]))
    config = SimulatorConfig(
        skills={"big": 0.95, "tiny": 0.4}, answers=(answers,), key_env="SIMULATED_KEY", latency_ms=150
    )
    with simulator_process(config, environment={"SIMULATED_KEY": KEY}) as running:
        yield running


def build_rows() -> list[list[str]]:
    numbers = random.Random(7)
    pairs = [(numbers.randrange(10, 90), numbers.randrange(10, 90)) for _ in range(QUESTIONS)]
    rows = [[f"q{n:02}", f"What is {a} plus {b}?", str(a + b), "sums"] for n, (a, b) in enumerate(pairs)]
    rows[11][1] = ""  # A row without a question,
    rows[30][0] = "q00"  # and one with the key of another row.
    return rows


def write_table(folder: Path) -> Path:
    path = folder / "capital sums.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "question", "answer", "topic"], *build_rows()])
    return path


@contextmanager
def visit_new_site(prepared: Path, chromium: Browser, **options) -> Iterator[tuple[Newcomer, Site]]:
    with spaced_folder(prepared) as place, run_site(place) as site:
        wait_until(lambda: "/welcome/#" in site.read_log())
        context = chromium.new_context(viewport=LAPTOP, reduced_motion="reduce", **options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        complaints: list[str] = []
        collect_complaints(page, complaints)
        try:
            yield Newcomer(page), site
            assert complaints == []
        finally:
            context.close()
            site.stop()


def read_link(site: Site) -> str:
    return re.search(r"http://\S+/welcome/#\S+", site.read_log())[0]


def make_account(person, site):
    person.page.goto(read_link(site))
    person.type("Name", "ada")
    person.type("Password", PASSWORD)
    person.press("Create account")
    expect(person.page.get_by_role("heading", name="Start")).to_be_visible()


def add_models(person, provider, *names):
    """Add the models, each of which gets one test call without a retry."""
    for name in names:
        person.click(person.page.get_by_label(name))
    provider.reset()
    began = time.monotonic()
    person.press("Add and test")
    expect(person.page.locator("#models .start-list .status.tone-good")).to_have_count(len(names))
    print(f"test calls of {len(names)} models, until the page shows them: {time.monotonic() - began:.1f} s")
    assert count_calls(provider) == len(names)


def count_calls(provider):
    """Return the number of calls since the counters were reset. None may have failed or been repeated."""
    counters = provider.counters()
    assert set(counters["statuses"]) <= {"200"}
    assert counters["repeated_bodies"] == 0
    return counters["answers"]


def assert_within(counts, clicks, loads, forms, fields):
    print(counts)
    assert counts.clicks <= clicks
    assert counts.loads <= loads
    assert len(counts.forms) <= forms
    assert counts.fields <= fields


def assert_private(site, key):
    """Assert that the key is in its private file alone: in no log, and in no other file outside the database."""
    folder = site.place / "data"
    assert key not in site.read_log()
    paths = [path for path in folder.rglob("*") if path.is_file() and "postgres" not in path.relative_to(folder).parts]
    (stored,) = [path for path in paths if key.encode() in path.read_bytes()]
    assert stored.name == "provider_keys.json"
    assert oct(stored.stat().st_mode & 0o777) == "0o600"


@pytest.fixture
def shown(checked_in_all_views, picture):
    """Return `shown(page, name)`: the page is right in all views, axe finds nothing, and it becomes a picture."""

    def check(page, name):
        checked_in_all_views(page, name.replace("/", "-"))
        assert find_all_faults(page) == []
        picture(page, name)

    return check


def test_from_up_to_the_first_result(prepared, chromium, provider, tmp_path, shown):
    with visit_new_site(prepared, chromium) as (person, site):
        page = person.page
        page.goto(read_link(site))
        expect(page.get_by_label("Code")).to_be_hidden()
        assert "#" not in page.url, "the code is gone from the address"
        shown(page, "first-study/welcome")
        person.type("Name", "ada")
        person.type("Password", PASSWORD)
        person.press("Create account")
        expect(page.get_by_role("heading", name="Start")).to_be_visible()
        shown(page, "first-study/models")

        person.type("Base URL", provider.url)
        person.type("API key", KEY)
        person.press("Fetch models")
        expect(page.get_by_text("serves 2 models")).to_be_visible()
        shown(page, "first-study/list")
        add_models(person, provider, "big", "tiny")

        person.choose_file(write_table(tmp_path))
        expect(page.get_by_role("button", name="Import the 48 valid rows")).to_be_visible()
        shown(page, "first-study/items")
        person.press("Import the 48 valid rows")
        expect(page.get_by_label("Graded by")).to_have_value("numeric")
        shown(page, "first-study/question")
        person.press("Try one")
        expect(page.locator("#start-try")).to_contain_text("score")
        shown(page, "first-study/tried")
        person.press("Run 20")
        expect(page.locator("#live")).to_contain_text(re.compile(r"Done\. 20\s+answers:\s+big\s+\d+ %,\s+tiny\s+\d+ %"))
        shown(page, "first-study/done")
        person.click(page.get_by_role("link", name="See results"))
        page.wait_for_url("**/experiments/capital-sums-first/results/")
        expect(page.locator("main")).to_contain_text("Number within tolerance: ")
        expect(page.locator("main")).to_contain_text("10 items, 20 of 20 answers")  # Both models on the same items.
        shown(page, "first-study/results")
        assert_private(site, KEY)
        assert_within(person.counts, clicks=10, loads=10, forms=2, fields=8)


def write_images(folder: Path) -> Path:
    """Write a zip with photographs and a table of human norms, as a group that studies emotions has it."""
    samples = ROOT / "samples"
    with (samples / "norms.csv").open(newline="") as file:
        norms = list(csv.DictReader(file))
    path = folder / "photographs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        rows = [["id", "image", "Valence_mean", "Valence_SD", "Valence_N"]]
        for norm in norms:
            name = f"{norm['Theme']}.jpg"
            if (samples / "photographs" / name).is_file():
                archive.write(samples / "photographs" / name, f"images/{name}")
                rows.append([norm["Theme"], name, norm["Valence_mean"], norm["Valence_SD"], norm["Valence_N"]])
        table = io.StringIO()
        csv.writer(table).writerows(rows)
        archive.writestr("norms.csv", table.getvalue())
    return path


def test_images_with_norms_from_up_to_the_first_result(prepared, chromium, provider, tmp_path, shown):
    with visit_new_site(prepared, chromium) as (person, site):
        page = person.page
        make_account(person, site)
        person.type("Base URL", provider.url)
        person.type("API key", KEY)
        person.press("Fetch models")
        add_models(person, provider, "big", "tiny")
        person.choose_file(write_images(tmp_path))
        expect(page.get_by_role("button", name=re.compile(r"Import the \d+ valid rows"))).to_be_visible()
        expect(page.locator("#data")).to_contain_text("valence 5.9")
        expect(page.locator("#data tbody img")).to_have_count(5)
        wait_for_images(page)
        shown(page, "images-and-norms/items")
        person.click(page.get_by_role("button", name=re.compile(r"Import the \d+ valid rows")))
        expect(page.get_by_label("Rating question")).to_have_value("How would you rate the valence of this?")
        person.type("Rating question", "How negative or positive does this photograph make you feel?")
        person.press("Try one")
        expect(page.locator("#start-try")).to_contain_text("score")
        shown(page, "images-and-norms/question")
        person.press("Run 20")
        expect(page.locator("#live")).to_contain_text(re.compile(r"Done\. 20\s+answers"))
        shown(page, "images-and-norms/done")
        person.click(page.get_by_role("link", name="See results"))
        page.wait_for_url("**/experiments/photographs-first/results/")
        expect(page.locator("main")).to_contain_text("valence")
        shown(page, "images-and-norms/results")
        assert_within(person.counts, clicks=10, loads=10, forms=2, fields=8)


def test_a_stranger_makes_every_mistake_once_and_loses_nothing(prepared, chromium, provider, tmp_path):
    with visit_new_site(prepared, chromium) as (person, site):
        person.page.goto(f"http://127.0.0.1:{site.port}/")
        expect(person.page.get_by_text("This site has no accounts yet")).to_be_visible()
        make_account(person, site)
        connect_with_mistakes(person, provider)
        map_unknown_columns(person, tmp_path)
        person.page.goto(f"http://127.0.0.1:{site.port}/")
        person.click(person.page.get_by_role("link", name=re.compile("Start: three steps")))
        ask_with_a_wrong_variable(person)
        expect(person.page.get_by_role("link", name="See results")).to_be_visible()
        assert_private(site, KEY)
        assert_within(person.counts, clicks=14, loads=20, forms=3, fields=11)


def connect_with_mistakes(person, provider):
    page = person.page
    person.type("Base URL", "http://10.0.0.5:8000/v1")
    person.type("API key", KEY)
    person.press("Fetch models")
    expect(page.locator(".error-summary")).to_contain_text("10.0.0.5:8000 to EVALSITE_LLM_ALLOWED_HOSTS")
    expect(page.get_by_label(re.compile("Base URL"))).to_have_value("http://10.0.0.5:8000/v1")
    person.type("Base URL", provider.url)
    person.type("API key", "sk-a-wrong-key-123")
    person.press("Fetch models")
    expect(page.locator(".error-summary")).to_contain_text("Incorrect API key provided")
    expect(page.get_by_label(re.compile("Base URL"))).to_have_value(provider.url)
    person.type("API key", KEY)
    person.press("Fetch models")
    person.press("Add and test")
    expect(page.get_by_text("Choose at least one model.")).to_be_visible()
    add_models(person, provider, "big")


def map_unknown_columns(person, folder):
    page = person.page
    unknown = folder / "unknown.csv"
    unknown.write_text("nr,frage,antwort\n1,Was ist 2 plus 3?,5\n2,Was ist 4 plus 4?,8\n")
    person.choose_file(unknown)
    expect(page.get_by_role("alert")).to_contain_text("choose a column; the file has nr, frage, antwort")
    person.click(page.get_by_role("link", name="Map columns"))
    person.select("Input: column", "frage")
    person.select("Target: column", "antwort")
    person.press("Import items")
    page.wait_for_url("**/datasets/unknown/1/**")


def ask_with_a_wrong_variable(person):
    page = person.page
    expect(page.locator("#data")).to_contain_text("unknown@1")
    person.type("Prompt", "Frage: {{question}}")
    expect(page.locator("#start-preview")).to_contain_text("unknown variable {{question}}")
    person.press("Run 20")
    expect(page.locator(".error-summary")).to_contain_text("unknown variable {{question}}")
    expect(page.get_by_label(re.compile("^Prompt"))).to_have_value("Frage: {{question}}")
    person.type("Prompt", "Frage: {{input}}")
    person.press("Run 20")


@dataclass
class KeyboardUser:
    """A person who has no mouse: targets are reached with Tab and pressed with Enter or Space."""

    page: Page
    keys: int = 0

    def press(self, key: str) -> None:
        self.keys += 1
        self.page.keyboard.press(key)

    def reach(self, target: Locator) -> None:
        """Press Tab until the target has the focus, and assert that the focus is shown."""
        expect(target).to_be_visible()
        self.page.wait_for_load_state("load")
        for _ in range(120):
            if target.evaluate("one => one === document.activeElement"):
                assert target.evaluate("one => one.matches(':focus-visible')")
                return
            self.press("Tab")
        raise AssertionError(f"Tab does not reach {target}")

    def type(self, label: str, text: str) -> None:
        self.reach(self.page.get_by_label(re.compile(rf"^\s*{label}")))
        self.page.keyboard.type(text)

    def enter(self, role: str, name: str) -> None:
        self.reach(self.page.get_by_role(role, name=name, exact=True))
        self.press("Enter")


def test_by_keyboard_alone_from_the_first_page_to_the_first_result(prepared, chromium, provider, tmp_path):
    with visit_new_site(prepared, chromium) as (person, site):
        page, user = person.page, KeyboardUser(person.page)
        # Chromium reports choosers only some time after the first listener came, and opens those before on its own.
        page.on("filechooser", lambda _: None)
        page.goto(read_link(site))
        user.type("Name", "ada")
        user.type("Password", PASSWORD)
        user.press("Enter")
        expect(page.get_by_role("heading", name="Start")).to_be_visible()
        user.type("Base URL", provider.url)
        user.type("API key", KEY)
        user.press("Enter")
        expect(page.get_by_text("serves 2 models")).to_be_visible()
        for name in ("big", "tiny"):
            user.reach(page.get_by_label(name))
            user.press("Space")
        user.enter("button", "Add and test")
        expect(page.locator("#models .start-list .status.tone-good")).to_have_count(2)
        user.reach(page.get_by_label("File", exact=False).first)
        with page.expect_file_chooser() as opened:
            user.press("Enter")
        opened.value.set_files(write_table(tmp_path))
        user.enter("button", "Import the 48 valid rows")
        expect(page.get_by_label("Graded by")).to_have_value("numeric")
        user.enter("button", "Try one")
        expect(page.locator("#start-try")).to_contain_text("score")
        user.enter("button", "Run 20")
        expect(page.locator("#live")).to_contain_text(re.compile(r"Done\. 20\s+answers"))
        user.enter("link", "See results")
        page.wait_for_url("**/experiments/capital-sums-first/results/")
        expect(page.locator("main")).to_contain_text("tiny")
        print(f"{user.keys} keys besides the typed texts")
