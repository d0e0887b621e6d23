"""The six tabs of an experiment, and the pages of each."""

from dataclasses import dataclass

from django.template import Library
from django.urls import NoReverseMatch, reverse

from runs_app.models import Experiment

register = Library()

TABS: dict[str, tuple[tuple[str, str], ...]] = {
    "Overview": (("Design", "experiment_detail"), ("Progress", "experiment_progress")),
    "Answers": (("Matrix", "experiment_matrix"), ("Trials", "trial_list"), ("Notes", "experiment_annotations")),
    "Results": (
        ("Scores", "experiment_results"),
        ("Analysis", "experiment_analysis"),
        ("Waves", "experiment_waves"),
        ("Points", "experiment_points"),
        ("Explorer", "explorer"),
    ),
    "Judges": (
        ("Grading", "experiment_grading"),
        ("Agreement", "experiment_agreement"),
        ("Disagreements", "experiment_disagreements"),
        ("Answer length", "grading_length"),
    ),
    "Report": (("Text", "experiment_report"), ("Figures", "experiment_figures"), ("Files", "experiment_files")),
    "Costs": (("Costs", "experiment_ledger"),),
}
"""The pages of each tab, as pairs of a label and the name of the address."""


@dataclass(frozen=True, slots=True)
class TabPage:
    """A link. `current` is the value of aria-current: "page" on this very page, "true" below its address, or ""."""

    label: str
    address: str
    current: str


@dataclass(frozen=True, slots=True)
class Tab:
    """The pages of a tab. The tab itself links to the first one."""

    label: str
    pages: tuple[TabPage, ...]

    @property
    def current(self) -> str:
        return self.pages[0].current or ("true" if any(page.current for page in self.pages) else "")


@register.simple_tag
def build_experiment_tabs(experiment: Experiment, path: str) -> list[Tab]:
    """Return the tabs of an experiment with the pages that it has. `path` is that of the page they are shown on."""
    hidden = set()
    if not experiment.has_several_waves():
        hidden.add("experiment_waves")
    if not experiment.adaptive:
        hidden.add("experiment_points")
    if not experiment.dataset.is_parametric:
        hidden.add("explorer")
    tabs = []
    for label, pages in TABS.items():
        links = []
        for page_label, name in pages:
            if name in hidden:
                continue
            of_experiment = name != "trial_list"  # The list of trials is one page for all experiments.
            try:
                address = reverse(name, args=(experiment.slug,) if of_experiment else ())
            except NoReverseMatch:
                continue  # The site runs without the app that has this page.
            current = "page" if path == address else ""
            if not current and name != "experiment_detail" and path.startswith(address):  # All are below the design.
                current = "true"
            query = "" if of_experiment else f"?experiment={experiment.slug}"
            links.append(TabPage(page_label, address + query, current))
        if links:
            tabs.append(Tab(label, tuple(links)))
    return tabs
