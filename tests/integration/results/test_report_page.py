"""The written report: generated from rows, with the author's choices, frozen by a snapshot, in three formats."""

import contextlib
import io
import json
import re
import zipfile
import zlib
from collections import Counter
from html import unescape
from unittest.mock import patch

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse
from scipy.stats import ttest_rel

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from grading_app.models import CachedAggregate, ReportChoices
from grading_app.publish.export.snapshots import make_snapshot
from grading_app.publish.report import build, files
from grading_app.publish.report.build import build_document, compose
from grading_app.publish.report.document import SECTION_NAMES, Document, FigureBlock, Listing, Paragraph, TableBlock
from grading_app.publish.report.files import write_report
from grading_app.publish.report.sections import WRITERS
from grading_app.tasks import compute_aggregates
from runs_app.models import Trial
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings, make_scale_rubric
from tests.factories.studies import make_rated_study
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db

HOSTILE = '</title><script>alert(1)</script> #eval("1") $x$ \\input{/etc/passwd} & _a_ @cite <img src=x onerror=y>'


@shared_rows
def study():
    return make_rated_study()


@shared_rows
def document(study_of_file):
    """Return the report of the study, built once and without its figures for the tests that only read it."""
    with patch("grading_app.publish.report.report_source.draw_picture", return_value=("<svg></svg>", (560, 100))):
        return build_document(study_of_file)


@pytest.fixture
def owner(client, study):
    client.force_login(study.owner)
    return client


def build_address(slug="study", **query):
    return reverse("experiment_report", args=[slug], query=query)


def compute():
    compute_aggregates(list(CachedAggregate.objects.values_list("pk", flat=True)))


def join_texts(document, name):
    (section,) = [one for one in document.sections if one.name == name]
    return " ".join(span.text for block in section.blocks if isinstance(block, Paragraph) for span in block.spans)


def get_table(document, name):
    return next(block.table for block in document.list_blocks(TableBlock) if block.table.name == name)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((None, None), "The cost of 2 calls is unknown."),
        ((None, 0), "2 calls cost $0.00 in all. The cost of 1 call is unknown and not in these sums."),
        ((1, None), "2 calls cost $1.00 in all. The cost of 1 call is unknown and not in these sums."),
    ],
)
def test_a_report_does_not_say_that_calls_of_unknown_cost_were_free(costs, expected):
    experiment = factories.make_experiment("free", dataset=factories.make_dataset("two", items=2))
    (run,) = factories.make_runs(experiment)
    trials = factories.plan_trials(run, answer=lambda *_: {"answer": "x"})
    for trial, cost in zip(trials, costs, strict=True):
        factories.make_attempt(trial, cost_usd=cost)
    text = re.sub(" +", " ", join_texts(build_document(experiment), "costs"))
    assert text.removeprefix("The budget was $5.00. ") == expected


@pytest.mark.slow
def test_every_section_is_written_from_rows(study):
    document = build_document(study)
    assert [one.name for one in document.sections] == list(SECTION_NAMES) == list(WRITERS)
    assert not any("could not be written" in join_texts(document, name) for name in SECTION_NAMES)
    assert "8 items" in join_texts(document, "question")
    assert "32 trials" in join_texts(document, "question")
    assert "2 trials failed" in join_texts(document, "procedure")
    facts = {row["fact"]: row["value"] for row in get_table(document, "dataset").rows}
    assert (facts["Source"], facts["Licence"]) == ("Photographs of the lab", "CC0")
    assert facts["SHA-256 of the active items"] == study.dataset.content_hash
    (a, b) = get_table(document, "leaderboard-valence").rows
    rated = Trial.objects.filter(run__experiment=study, status="done", run__condition__model__name="a")
    assert a["valence"] == pytest.approx(sum(one.rating for one in rated) / len(rated))
    assert b["valence"] > a["valence"]
    assert get_table(document, "norm_agreement-valence").rows
    assert {"norms", "analysis-differences-valence"} <= {one.name for one in document.list_blocks(FigureBlock)}


def test_the_recipe_of_the_dataset_is_stated_in_words(plain_pictures):
    dataset = factories.make_dataset(recipe={"strategy": "parametric", "seed": 42, "stopping_rules": True})
    document = build_document(factories.make_experiment(dataset=dataset))
    facts = {row["fact"]: row["value"] for row in get_table(document, "dataset").rows}
    assert facts["Recipe"] == "seed 42, strategy parametric, stopping rules yes"


def test_each_statistic_of_the_report_has_its_reference(document):
    (section,) = [one for one in document.sections if one.name == "references"]
    references = ["".join(span.text for span in item) for block in section.blocks for item in block.items]
    for what in (
        "Holm (1979)",
        "Fisher (1921)",
        "Spearman (1910)",
        "Shrout",
        "Lin (1989)",
        "Liang",
        "Korn & Graubard (1998)",
    ):
        assert any(what in one for one in references), what
    assert not any("McNemar" in one for one in references), "ratings are neither right nor wrong"


def list_spans(section):
    """Return every span of a section's paragraphs and lists."""
    for block in section.blocks:
        if isinstance(block, Paragraph):
            yield from block.spans
        if isinstance(block, Listing):
            yield from (span for item in block.items for span in item)


WITHOUT_ROWS = {"references", "prompts"}
"""Sections whose digits are years, pages of journals and hashes."""


@pytest.mark.slow
def test_each_generated_sentence_links_to_its_rows(owner, study, plain_pictures):
    document = build_document(study)
    addresses = set()
    for section in document.sections:
        for span in list_spans(section):
            addresses.add(span.rows)
            counts = section.name not in WITHOUT_ROWS and re.search(r"\d", span.text)
            assert span.rows or not counts or span.text.startswith("Data were collected"), span
    addresses |= {block.rows for block in document.list_blocks(TableBlock)}
    addresses |= {block.spec for block in document.list_blocks(FigureBlock)}
    for build_address in sorted(filter(None, addresses)):
        assert owner.get(build_address.partition("#")[0]).status_code == 200, build_address
    assert reverse("trial_list") + "?experiment=study&status=failed" in addresses


def test_a_report_names_the_providers_of_the_models(study, plain_pictures):
    for trial in Trial.objects.filter(run__experiment=study, status="done", run__condition__model__name="a"):
        factories.make_attempt(trial, served_model="vendor/a-0301", served_provider="East")
    (a, _) = get_table(build_document(study), "models").records()
    assert (a["served_as"], a["served_by"]) == ("vendor/a-0301", "East")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", a["first"])


def test_tables_name_their_measure(document):
    titles = [block.table.title for block in document.list_blocks(TableBlock)]
    assert {"Scores by condition: Valence", "Valence: differences between conditions"} <= set(titles)
    assert len(titles) == len(set(titles)), "no two tables have the same title"


def test_tables_and_figures_are_numbered(document):
    check_numbers(write_report(document, "html").decode())


def check_numbers(text):
    assert "<caption>Table 1. " in text
    assert "<figcaption><b>Figure 1. " in text


def test_a_page_folds_details_and_files_show_them_with_the_same_numbers(owner, study, plain_pictures):
    owner.get(build_address())
    compute()
    page = owner.get(build_address())
    sections = page.context["sections"]
    assert {"data", "models", "procedure", "reproduction"} <= {one["name"] for one in sections if one["is_folded"]}
    in_view = [shown["block"] for section in sections if not section["is_folded"] for part in section["parts"]
               if not part["titles"] for shown in part["blocks"]]  # fmt: skip
    names = [block.table.name if isinstance(block, TableBlock) else block.name for block in in_view
             if isinstance(block, TableBlock | FigureBlock)]  # fmt: skip
    assert names == ["leaderboard-valence", "norms", "analysis-norm-differences-valence"]
    folded = [title for section in sections for part in section["parts"] for title in part["titles"]]
    assert [title for title in folded if re.match(r"Table .*differences between conditions", title)]
    content = page.content.decode()
    check_numbers(content)
    assert content.index('<details class="disclose report-appendix"') < content.index("<caption>Table 2. Dataset")
    document = page.context["document"]
    assert "<details" not in write_report(document, "html").decode()
    shown = [shown["label"] for section in page.context["sections"] for part in section["parts"]
             for shown in part["blocks"] if shown["label"]]  # fmt: skip
    assert shown == [label for _, labelled in document.label_sections() for label, _ in labelled if label]


def test_a_report_says_that_nothing_was_preregistered(document):
    assert "No plan was frozen" in join_texts(document, "preregistration")


@pytest.mark.parametrize("field", build.TEXTS_AND_SETTINGS)
def test_a_changed_text_or_setting_outdates_the_report(study, field):
    state = build.compute_fingerprint(study)
    value = getattr(study, field)
    changed = {bool: lambda: not value, int: lambda: value + 1, float: lambda: value + 1}
    setattr(study, field, changed.get(type(value), lambda: f"{value}1")())
    assert build.compute_fingerprint(study) != state


def test_a_document_survives_storage(document):
    content = document.dump()
    assert Document.load(json.loads(json.dumps(content))).dump() == content


@pytest.mark.slow
def test_a_worker_builds_the_report_and_the_page_shows_it(owner):
    waiting = owner.get(build_address())
    assert "A worker is calculating" in waiting.content.decode()
    compute()
    page = owner.get(build_address())
    for title in SECTION_NAMES.values():
        assert f">{title}</h2>" in page.content.decode()
    assert "Rows behind this sentence" in page.content.decode()
    figure = re.search(r'src="([^"]+/report/figures/norms\.svg)', page.content.decode())[1]
    assert owner.get(figure)["Content-Type"] == "image/svg+xml"
    narrow = re.search(r'srcset="([^"]+/report/figures/norms\.svg\?width=narrow)"', page.content.decode())[1]
    wide_picture, narrow_picture = owner.get(figure).content.decode(), owner.get(narrow).content.decode()
    assert narrow_picture != wide_picture, "a phone gets a picture that is drawn for it"


@pytest.mark.slow
def test_the_number_of_queries_does_not_depend_on_the_study(client, plain_pictures, django_assert_max_num_queries):
    for slug, dimensions in (("small", ("valence",)), ("large", ("arousal", "dominance"))):
        experiment = make_rated_study(slug, dimensions=dimensions)
        client.force_login(experiment.owner)
        client.get(build_address(experiment.slug))
        compute()
        with django_assert_max_num_queries(40):
            client.get(build_address(experiment.slug))


@pytest.mark.slow
def test_the_same_file_is_created_only_once(owner, study, plain_pictures, monkeypatch):
    owner.get(build_address())
    compute()
    documents = []
    monkeypatch.setitem(files._WRITERS, "pdf", lambda document: documents.append(document) or b"%PDF")
    file = reverse("report_file", args=["study", "pdf"])
    assert [owner.get(file).content for _ in range(3)] == [b"%PDF"] * 3
    assert len(documents) == 1
    ReportChoices.load(study).change(left_out=["costs"], texts={}, by=study.owner)
    owner.get(file)
    assert len(documents) == 2


@pytest.mark.slow
def test_a_request_gets_503_while_another_file_is_typeset(owner, study, plain_pictures, monkeypatch):
    owner.get(build_address())
    compute()
    monkeypatch.setattr(files, "WAIT_S", 0.01)
    with files._typesetting_lock:
        response = owner.get(reverse("report_file", args=["study", "pdf"]))
    assert response.status_code == 503
    assert "another report is being typeset" in response.content.decode()


@pytest.mark.slow
def test_a_changed_row_outdates_the_report(owner, study, plain_pictures):
    owner.get(build_address())
    compute()
    state = build.compute_fingerprint(study)
    assert owner.get(build_address()).context["cached"].is_fresh
    factories.make_attempt(run := Trial.objects.filter(run__experiment=study).first())
    run.run.experiment.title = "Another title"
    run.run.experiment.save()
    study.refresh_from_db()
    assert build.compute_fingerprint(study) != state
    assert not owner.get(build_address()).context["cached"].is_fresh


@pytest.mark.slow
def test_the_author_can_omit_sections_and_add_text(owner, study, plain_pictures):
    owner.get(build_address())
    compute()
    edit = reverse("report_edit", args=["study"])
    form = owner.get(edit).context["form"]
    data = {f"with_{name}": "on" for name in SECTION_NAMES if name != "costs"}
    data |= {"text_results": "# Note\n\nSee **this** <script>x</script>"}
    assert set(data) <= set(form.fields)
    assert owner.post(edit, data).status_code == 302
    page = owner.get(build_address()).content.decode()
    assert "<strong>this</strong>" in page
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    assert ">Costs</h2>" not in page
    (change,) = study.history.filter(aspect="report")
    assert (change.to_value, change.by) == ("1 sections left out, 1 texts", study.owner)
    owner.post(edit, data)
    assert study.history.filter(aspect="report").count() == 1, "nothing changed"


def test_a_text_that_is_too_long_is_refused_and_kept(owner):
    address = reverse("report_edit", args=["study"])
    assert "maxlength" not in owner.get(address).content.decode(), "browsers cut a longer text without a word"
    page = owner.post(address, {"text_data": "x" * 20_001})
    assert "at most 20000 characters (it has 20001)" in page_text(page)
    assert "x" * 20_001 in page.content.decode()
    assert not ReportChoices.objects.exists()


def test_only_editors_can_change_the_report(client, study):
    study.share("group", by=study.owner)
    client.force_login(factories.make_user("reader", permissions.RESEARCHER))
    assert client.get(build_address()).status_code == 200
    assert client.post(reverse("report_edit", args=["study"]), {}).status_code == 404
    assert not ReportChoices.objects.exists()
    client.force_login(factories.make_user("visitor", permissions.VIEWER))
    assert "Edit sections" not in client.get(build_address()).content.decode()


@pytest.mark.parametrize("name", ["report_file", "report_figure"])
def test_other_users_get_neither_files_nor_figures(client, study, name):
    client.force_login(factories.make_user("visitor", permissions.VIEWER))
    args = ["study", "html"] if name == "report_file" else ["study", "norms"]
    assert client.get(reverse(name, args=args)).status_code == 404


def test_a_snapshot_freezes_the_report(owner, study, plain_pictures):
    ReportChoices.load(study).change(left_out=["costs"], texts={"end": "The end."}, by=study.owner)
    snapshot = make_snapshot(study, by=study.owner)
    study.title = "Changed afterwards"
    study.save()
    page = owner.get(build_address(snapshot=snapshot.digest))
    assert "froze" in page_text(page)
    assert "Changed afterwards" not in str(page.context["document"])
    assert [one.name for one in page.context["document"].sections][-1] == "text-end"
    assert "costs" not in [one.name for one in page.context["document"].sections]
    out = io.StringIO()
    call_command("verify_snapshot", str(snapshot.path), stdout=out)
    assert out.getvalue().startswith(snapshot.digest)
    assert owner.get(build_address(snapshot="0" * 64)).status_code == 404


@pytest.mark.slow
def test_files_of_a_hostile_study_contain_no_active_markup(tmp_path):
    study = make_rated_study("hostile", title=HOSTILE, description=HOSTILE)
    condition = study.conditions.first()
    type(condition.model).objects.filter(pk=condition.model_id).update(name=HOSTILE[:80])
    ReportChoices.load(study).change(left_out=[], texts={"end": f"{HOSTILE} [x](javascript:alert(1))"}, by=study.owner)
    document = compose(build_document(study), ReportChoices.load(study))
    html = write_report(document, "html").decode()
    assert "<script" not in html
    assert "onerror" not in re.sub(r"&lt;img.*?&gt;", "", html)
    assert not re.search(r'(src|href)="(?!data:|#|https?://|mailto:)', html)
    assert "javascript:" not in re.findall(r'href="([^"]*)"', html)
    pdf = write_report(document, "pdf")
    assert pdf.startswith(b"%PDF")
    assert write_report(document, "pdf") == pdf, "the same document gives the same bytes"
    with zipfile.ZipFile(io.BytesIO(write_report(document, "zip"))) as archive:
        names = archive.namelist()
        tex = archive.read("tables/leaderboard-valence.tex").decode()
    assert {"report.html", "report.pdf", "figures/norms.svg", "figures/norms.pdf", "figures/norms.png"} <= set(names)
    assert {"figures/norms.csv", "tables/dataset.csv", "tables/dataset.tex"} <= set(names)
    assert r"\input" not in tex
    assert r"\textbackslash{}input" in tex


def inflate_streams(pdf):
    """Return the bytes of a PDF with its compressed streams in plain form after them."""
    streams = []
    for start in re.finditer(rb"stream\r?\n", pdf):
        with contextlib.suppress(zlib.error):
            streams.append(zlib.decompressobj().decompress(pdf[start.end() :]))
    return pdf + b"".join(streams)


@pytest.mark.slow
def test_the_pdf_is_tagged_as_pdf_ua_requires(study):
    """PDF/UA-1 (ISO 14289-1): marked content, a title and a language, heads of tables, and texts for figures."""
    written = build_document(study)
    texts = {written.sections[0].name: "# A heading before all sections"}
    ReportChoices.load(study).change(left_out=[], texts=texts, by=study.owner)
    document = compose(written, ReportChoices.load(study))
    content = inflate_streams(write_report(document, "pdf"))
    assert b"<pdfuaid:part>1</pdfuaid:part>" in content
    assert re.search(rb"/MarkInfo\s*<<\s*/Marked true", content)
    assert b"/DisplayDocTitle true" in content
    assert b"/Lang(en)" in content
    tags = Counter(re.findall(rb"/S\s*/([A-Z]\w*)", content))
    figures, tables = list(document.list_blocks(FigureBlock)), list(document.list_blocks(TableBlock))
    assert figures
    assert tables
    assert (tags[b"Figure"], tags[b"Table"], tags[b"Title"]) == (len(figures), len(tables), 1)
    assert tags[b"H1"] == sum(bool(section.title) for section in document.sections) + 1
    assert tags[b"TH"] == sum(len(block.shown_table.columns) for block in tables)
    assert len(re.findall(rb"/Alt\s*[(<]", content)) >= len(figures)


def test_an_error_in_one_section_does_not_affect_the_others(study, monkeypatch, caplog, plain_pictures):
    def fail(source):
        raise ZeroDivisionError

    monkeypatch.setitem(WRITERS, "costs", [fail])
    document = build_document(study)
    assert "could not be written" in join_texts(document, "costs")
    assert "32 trials" in join_texts(document, "methods")
    assert "costs of the report was not written" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.fixture
def broken_costs(monkeypatch):
    def fail(source):
        raise ZeroDivisionError

    monkeypatch.setitem(WRITERS, "costs", [fail])


def test_an_incomplete_report_says_so_at_its_top_in_every_format(study, broken_costs, plain_pictures):
    document = compose(build_document(study), ReportChoices.load(study))
    assert (document.failed, document.sections[0].name) == (["Costs"], "incomplete")
    html = write_report(document, "html").decode()
    assert 0 < html.index("These sections could not be written: Costs.") < html.index('id="question"')
    assert b"%PDF" in write_report(document, "pdf")[:8]
    without = compose(build_document(study), ReportChoices(experiment=study, left_out=["costs"]))
    assert (without.failed, without.sections[0].name) == ([], "abstract")


def test_the_command_writes_an_incomplete_report_and_fails(study, broken_costs, plain_pictures, tmp_path):
    out = tmp_path / "report.html"
    with pytest.raises(CommandError, match="could not be written: Costs") as failed:
        call_command("report", "study", "--out", str(out))
    assert failed.value.returncode == 1
    assert "This report is incomplete" in out.read_text()


def test_a_snapshot_with_an_incomplete_report_says_so(owner, study, broken_costs, plain_pictures, tmp_path):
    expected = io.StringIO()
    call_command("snapshot", "study", "--out", str(tmp_path / "made.zip"), stderr=expected)
    assert "the report in the snapshot is incomplete: these sections could not be written: Costs" in expected.getvalue()
    digest = study.snapshots.get().digest
    assert "This report is incomplete" in page_text(owner.get(build_address(snapshot=digest)))
    with pytest.raises(CommandError, match="could not be written: Costs"):
        call_command("report", "study", "--out", str(tmp_path / "report.html"), "--snapshot", digest[:12])


def test_the_command_writes_each_format(study, tmp_path, plain_pictures):
    out = tmp_path / "report.html"
    call_command("report", "study", "--out", str(out))
    assert "Methods paragraph" in out.read_text()
    for arguments, problem in (
        (["nobody", "--out", str(out)], "there is no experiment"),
        (["study", "--out", str(tmp_path / "report.doc")], "--out"),
        (["study", "--out", str(out), "--snapshot", "abc"], "--snapshot"),
    ):
        with pytest.raises(CommandError, match=problem) as response:
            call_command("report", *arguments)
        assert response.value.returncode == 2


@pytest.mark.slow
def test_limitations_follow_from_the_rows(study, plain_pictures):
    expected = str(build_document(study).sections[list(SECTION_NAMES).index("limitations")])
    assert "only 8 items" in expected
    assert "2 of 16" not in expected
    assert "1 of 16 trials failed" in expected
    assert "family" not in expected
    for trial in Trial.objects.filter(run__experiment=study, status="done", run__condition__model__name="a"):
        factories.make_attempt(trial, served_model=f"vendor/a-{trial.sample_idx}", served_provider="East")
    expected = str(build_document(study).sections[list(SECTION_NAMES).index("limitations")])
    assert "a was served as several versions: vendor/a-0 and vendor/a-1" in expected
    assert "several providers" not in expected


@pytest.fixture
def judged(plain_pictures):
    experiment = make_answered_experiment("judged", items=64, models=("a", "b"))
    rubric = make_scale_rubric(low=0, high=10)
    make_gradings(experiment, "judge", score_by_model, rubric=rubric)
    return experiment


def score_by_model(trial):
    position, is_b = trial.item.position, trial.run.condition.model.name == "b"
    return float(3 + position % 3 + (position * 7 % 5 if is_b else 0))


def test_the_abstract_has_five_sentences_with_the_effect_of_the_model_and_its_test(judged):
    document = build_document(judged)
    (section,) = [one for one in document.sections if one.name == "abstract"]
    (paragraph,) = section.blocks
    assert len(paragraph.spans) == 5
    a, b = ([score_by_model(trial) for trial in list_trials(judged, name)] for name in "ab")
    test = ttest_rel(b, a)
    low, high = test.confidence_interval(0.95)
    for name in ("abstract", "results_paragraph"):
        text = join_texts(document, name)
        assert f"b scores {np.mean(b) - np.mean(a):.2f} points higher than a" in text
        assert f"{np.mean(b):.2f} against {np.mean(a):.2f}; 95 % interval {low:.2f} to {high:.2f}" in text
        assert f"t({len(a) - 1}) = {test.statistic:.2f}" in text
        assert "(" not in re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "", text), "no bracket is left open"
    assert "64 items" in join_texts(document, "abstract")
    assert "128 of 128 planned answers" in " ".join(join_texts(document, "abstract").split())


def test_the_paragraphs_name_the_items_behind_a_difference(plain_pictures):
    """The means in the sentence are those of these items, and differ from the means of the conditions."""
    experiment = make_answered_experiment("judged", items=64, models=("a", "b"))
    make_gradings(
        experiment,
        "judge",
        lambda trial: (
            None if trial.item.position < 4 and trial.run.condition.model.name == "a" else score_by_model(trial)
        ),
        rubric=make_scale_rubric(low=0, high=10),
    )
    document = build_document(experiment)
    for name in ("abstract", "results_paragraph"):
        assert "; 60 common items of 64)." in join_texts(document, name)


def test_one_correlation_with_people_is_reported_once(plain_pictures):
    items = [{"key": f"photo-{at}", "norms": {"valence": 1 + at % 7}} for at in range(24)]
    experiment = factories.make_experiment(
        "photos",
        dataset=factories.make_dataset("photographs", items),
        models=[factories.make_model("only")],
        dimensions=[factories.make_dimension("valence")],
    )
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda item, *_: {"rating": min(7, 1 + item.position % 7 + item.position % 2)})
    text = join_texts(build_document(experiment), "results_paragraph")
    assert "; 24 items)." in text
    assert text.count("r = ") == 1


def list_trials(experiment, model):
    return Trial.objects.filter(run__experiment=experiment, run__condition__model__name=model).order_by(
        "item__position"
    )


def test_the_copied_text_is_the_paragraph_without_links_to_rows(client, judged):
    client.force_login(judged.owner)
    client.get(build_address("judged"))
    compute()
    page = client.get(build_address("judged"))
    html = page.content.decode()
    for name in ("abstract", "methods", "results_paragraph"):
        (copied,) = re.findall(rf'<p hidden id="text-{name}">([^<]+)</p>', html)
        assert unescape(copied) == join_texts(page.context["document"], name).replace("  ", " ").strip()
        assert f'data-copy="#text-{name}"' in html
    shown = html[html.index('id="abstract"') : html.index('id="question"')]
    assert 'class="rows-link"' in shown, "the page itself leads to the rows"


def test_settings_and_hashes_stand_in_the_appendix(judged):
    names = [one.name for one in build_document(judged).sections]
    assert names[0] == "abstract"
    assert names[-3:] == ["prompts", "settings", "reproduction"]
    assert "SHA-256" not in join_texts(build_document(judged), "methods")


def test_the_agreement_begins_with_a_sentence_for_each_judge(plain_pictures):
    experiment = make_answered_experiment("graded", scorers=["exact_match"])
    grade(experiment, by="a test")
    rubric = make_scale_rubric("strict", low=0, high=1)
    make_gradings(experiment, "judge", lambda trial: float(trial.item.position == 0), rubric=rubric)
    (section,) = [one for one in build_document(experiment).sections if one.name == "agreement"]
    text = "".join(span.text for span in section.blocks[0].spans)
    assert re.match(
        r"judge\S* agrees with Exact match on 11 of 12 \(91\.7 %, .*\): 0 too strict, 1 too lenient", text
    ), text
    assert all(block.is_detail for block in section.blocks if isinstance(block, TableBlock | FigureBlock))
