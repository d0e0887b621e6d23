"""Start: each mistake is named at its field and loses nothing, and the rules of keys, hosts and approvals hold."""

import html
import json
import re
import socket
from decimal import Decimal
from types import SimpleNamespace

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from datasets_app import upload_jobs
from datasets_app.models import BackgroundJob, Dataset, Norm
from datasets_app.upload_jobs import run_job
from evalsite.lib import permissions
from evalsite.lib.history import StatusChange
from runs_app import first_study, model_lists
from runs_app.engine import preflight
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.llm.keys import FILE_NAME, load_stored_keys
from runs_app.model_lists import ListedModel
from runs_app.models import Endpoint, Experiment, LanguageModel, Preflight, Prompt, Trial
from runs_app.planning.shipped_designs import create_shipped_designs
from tests import factories
from tests.factories.engine import build_reply
from tests.factories.spreadsheets import write_xlsx
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
KEY = "sk-lab-0123456789"
URL = "http://127.0.0.1:8001/v1"
LIST = [ListedModel("org/Big", {"input_price": Decimal(1), "output_price": Decimal(2)}), ListedModel("tiny", {})]


@shared_rows
def shipped_designs():
    create_shipped_designs()


@pytest.fixture(autouse=True)
def own_folder(settings, tmp_path, monkeypatch, shipped_designs):
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_, **__: None)
    return tmp_path


def read_text(page):
    """Return the text of a page as a person reads it."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())


class SignedIn(Client):
    """A client that is signed in as `user`."""

    def __init__(self, user):
        super().__init__()
        self.user = user
        self.force_login(user)


def sign_in(name, role):
    return SignedIn(factories.make_user(name, role))


@pytest.fixture
def operator():
    client = sign_in("operator", permissions.OPERATOR)
    client.user.is_superuser = True
    client.user.save()
    return client


@pytest.fixture
def served(monkeypatch):
    """Let every server list two models. Return the endpoints that were asked."""
    asked = []

    def fetch(endpoint):
        asked.append(endpoint)
        return LIST

    monkeypatch.setattr(model_lists, "fetch_models", fetch)
    return asked


def fail(monkeypatch, failure):
    def fetch(endpoint):
        raise failure

    monkeypatch.setattr(model_lists, "fetch_models", fetch)


def connect(client, **fields):
    entered = {"do": "fetch", "provider": "openai", "base_url": URL, "key": "", "key_env": "", "model_id": ""}
    return client.post("/start/", entered | fields)


def make_draft(client, slug="capitals", items=3):
    return factories.make_dataset(slug, items, approved=False, created_by=client.user, item_count=3, active_count=3)


def ask(client, dataset, do, **fields):
    model = LanguageModel.objects.first() or factories.make_model("big")
    guess = first_study.guess_question(dataset)
    entered = {"do": do, "dataset": dataset.pk, "models": [model.pk], "prompt": guess.prompt, "scorer": guess.scorer}
    return client.post("/start/", entered | fields)


# Models


def test_a_pasted_key_is_stored_in_a_private_file_and_shown_nowhere(operator, served, own_folder):
    page = connect(operator, key=KEY).content.decode()
    assert "org/Big" in page
    assert "$1" in page
    assert "price unknown" in page
    assert KEY not in page
    endpoint = Endpoint.objects.get()
    assert endpoint.key_env == "EVALSITE_KEY_127_0_0_1_8001"
    assert json.loads((own_folder / FILE_NAME).read_text()) == {endpoint.key_env: KEY}
    assert KEY not in str(list(StatusChange.objects.values()))
    assert KEY not in operator.get("/endpoints/").content.decode()


def test_a_refused_key_is_named_at_its_field_and_the_address_is_kept(operator, monkeypatch):
    fail(monkeypatch, CallFailure(ErrorClass.UNAUTHORIZED, "Incorrect API key provided."))
    page = connect(operator, key=KEY).content.decode()
    assert '<a href="#id_key">API key</a>' in page
    assert "refused the key (Incorrect API key provided). Paste it again." in read_text(page)
    assert f'value="{URL}"' in page
    assert not Endpoint.objects.exists()


def test_a_refused_key_does_not_replace_one_that_works(operator, served, monkeypatch):
    connect(operator, key=KEY)
    fail(monkeypatch, CallFailure(ErrorClass.UNAUTHORIZED, "Incorrect API key provided."))
    connect(operator, key="sk-mistyped-1234")
    assert list(load_stored_keys().values()) == [KEY]
    connect(operator, key="sk-mistyped-1234", base_url="http://127.0.0.1:8002/v1")
    assert list(load_stored_keys().values()) == [KEY]


def test_a_key_that_the_environment_would_hide_is_refused(operator, served, monkeypatch):
    monkeypatch.setenv("EVALSITE_KEY_127_0_0_1_8001", "sk-of-the-environment")
    page = read_text(connect(operator, key=KEY).content.decode())
    assert "The environment sets EVALSITE_KEY_127_0_0_1_8001, and comes first." in page
    assert load_stored_keys() == {}


def test_a_cloud_without_a_list_asks_for_its_address_and_a_model(operator, served, own_folder):
    page = connect(operator, provider="bedrock", base_url="", key="AKIDEXAMPLE:a-long-secret").content.decode()
    assert "Enter the address of Amazon Bedrock." in read_text(page)
    assert "Amazon Bedrock has no list of models. Enter the ID of a model." in read_text(page)
    assert served == []
    address = "https://bedrock-runtime.eu-central-1.amazonaws.com"
    entered = {"provider": "bedrock", "base_url": address, "key": "AKIDEXAMPLE:a-long-secret"}
    connect(operator, **entered, model_id="amazon.nova-lite-v1:0")
    model = LanguageModel.objects.get(model="amazon.nova-lite-v1:0")
    assert (model.endpoint.provider, model.endpoint.base_url) == ("bedrock", address)
    assert load_stored_keys()[model.endpoint.key_env] == "AKIDEXAMPLE:a-long-secret"


def test_a_server_that_does_not_answer_is_named_at_its_address(operator, monkeypatch):
    fail(monkeypatch, CallFailure(ErrorClass.CONNECTION, "ClientConnectorError: no route"))
    assert '<a href="#id_base_url">Base URL</a>' in connect(operator).content.decode()


def test_a_variable_that_is_not_set_is_named_before_any_call(operator, served, monkeypatch):
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    page = connect(operator, key_env="GROQ_API_KEY").content.decode()
    assert "GROQ_API_KEY is not set in the environment of this site" in page
    assert served == []
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    page = connect(operator, key_env="GROQ_API_KEY").content.decode()
    assert "org/Big" in page
    assert load_stored_keys() == {}


def test_a_public_host_is_allowed_by_one_press_and_the_history_names_the_person(operator, served, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("93.184.216.34", 443))])
    fields = {"base_url": "https://models.example.org/v1", "key": KEY}
    page = connect(operator, **fields).content.decode()
    assert "models.example.org is not on the list of allowed hosts" in page
    assert "Allow models.example.org and fetch models" in page
    assert served == []
    assert "org/Big" in connect(operator, **fields, do="allow").content.decode()
    endpoint = Endpoint.objects.get()
    assert endpoint.allowed_host == "models.example.org"
    history = operator.get(f"/endpoints/{endpoint.pk}/edit/").content.decode()
    assert "the operator allowed the host models.example.org" in history
    assert "operator" in history
    assert "org/Big" in connect(operator, **fields).content.decode(), "it is allowed from now on"


def test_a_host_of_a_private_network_is_refused_even_if_the_press_is_forged(operator, served):
    page = connect(operator, base_url="http://10.0.0.5:8000/v1", do="allow").content.decode()
    assert "add 10.0.0.5:8000 to EVALSITE_LLM_ALLOWED_HOSTS" in page
    assert "Allow 10.0.0.5" not in page
    assert not Endpoint.objects.exists()


def test_the_page_promises_to_keep_only_what_it_stores(operator, served):
    """A fetched list is not stored: who opens the page again fetches it again."""
    assert "serves 2 models" in read_text(connect(operator).content.decode())
    text = read_text(operator.get("/start/").content.decode())
    assert "serves 2 models" not in text
    assert "it continues with the models that you added and the data that you imported." in text


def test_chosen_models_are_added_with_their_prices_and_tested(operator, served):
    connect(operator, key=KEY)
    endpoint = Endpoint.objects.get()
    fields = {"do": "models", "endpoint": endpoint.pk}
    assert "Choose at least one model" in operator.post("/start/", fields).content.decode()
    assert operator.post("/start/", fields | {"model": ["org/Big"]}).status_code == 302
    model = LanguageModel.objects.get()
    assert (model.model, model.output_price) == ("org/Big", 2)
    assert Preflight.objects.get().model == model


def test_only_operators_connect_servers(served):
    researcher = sign_in("rita", permissions.RESEARCHER)
    assert connect(researcher).status_code == 404
    assert connect(researcher, do="allow").status_code == 404
    assert researcher.post("/start/", {"do": "models", "endpoint": 1}).status_code == 404
    page = researcher.get("/start/").content.decode()
    assert "An operator of this site connects the models" in page
    assert 'name="key"' not in page


# Data


def test_neither_a_file_nor_rows_is_named_at_the_field(operator):
    page = operator.post("/start/", {"do": "read"}).content.decode()
    assert "Choose a file, paste rows, or name a dataset of the hub, one of the three." in page


def test_pasted_rows_of_a_spreadsheet_become_an_upload(operator):
    response = operator.post("/start/", {"do": "read", "pasted": "question\tanswer\nWhat?\tThat\n"})
    assert response.status_code == 302
    page = operator.get(response.url.partition("#")[0]).content.decode()
    assert "Reading pasted.tsv" in page


def test_an_upload_belongs_to_its_owner(operator):
    response = operator.post("/start/", {"do": "sample"})
    address = response.url.partition("#")[0]
    assert "Reading sample-questions.jsonl" in operator.get(address).content.decode()
    other = sign_in("rita", permissions.RESEARCHER)
    assert "sample-questions.jsonl" not in other.get(address).content.decode()
    assert other.post("/start/", {"do": "import", "upload": address.partition("=")[2]}).status_code == 404


def read_in_a_worker(client, response):
    """Perform the job of an upload, and return the page that a poll then loads."""
    address = response.url.partition("#")[0]
    run_job(BackgroundJob.objects.order_by("-pk").first().pk)
    return client.get(address).content.decode()


def test_another_sheet_of_a_spreadsheet_can_be_read(operator):
    header = ["id", "question", "answer"]
    content = write_xlsx({"Notes": [header, ["n", "Which note?", "none"]], "Data": [header, ["d", "Which?", "that"]]})
    response = operator.post("/start/", {"do": "read", "file": SimpleUploadedFile("study.xlsx", content)})
    page = read_in_a_worker(operator, response)
    assert "Which note?" in page
    assert "Read this sheet" in page
    token = response.url.partition("upload=")[2].partition("#")[0]
    page = read_in_a_worker(operator, operator.post("/start/", {"do": "sheet", "upload": token, "sheet": "Data"}))
    assert "Which?" in page
    assert "<option selected>Data</option>" in page
    operator.post("/start/", {"do": "import", "upload": token})
    run_job(BackgroundJob.objects.order_by("-pk").first().pk)
    assert [item.key for item in Dataset.objects.get(slug="study").items.all()] == ["d"]


def test_an_import_that_ends_while_the_page_is_made_is_not_offered_again(operator, monkeypatch):
    response = operator.post("/start/", {"do": "sample"})
    address = response.url.partition("#")[0]
    assert "Import the" in read_in_a_worker(operator, response)
    operator.post("/start/", {"do": "import", "upload": address.partition("=")[2]})
    list_models = first_study.list_usable_models

    def end_the_import(user):
        run_job(BackgroundJob.objects.order_by("-pk").first().pk)
        return list_models(user)

    monkeypatch.setattr(first_study, "list_usable_models", end_the_import)
    page = operator.get(address).content.decode()
    assert "Importing sample-questions.jsonl" in page
    assert "Import the" not in page
    assert "hx-trigger" in page  # It asks again, and then opens the next step.
    assert "dataset=" in operator.get(address).url


def test_a_dataset_of_the_hub_is_downloaded_and_then_read(operator, monkeypatch, tmp_path):
    file = tmp_path / "train.jsonl"
    file.write_text('{"question": "What is 2 plus 2?", "answer": "4"}\n')
    found = SimpleNamespace(path=file, name="quiz@1-train.jsonl")
    split = SimpleNamespace(source="the hub", licence="mit", recipe={}, file=found)
    asked = []
    monkeypatch.setattr(upload_jobs, "download_split", lambda **request: asked.append(request) or split)
    page = operator.post("/start/", {"do": "read", "repository": "https://hub.example/lab/quiz"}).content.decode()
    assert "Write OWNER/NAME" in page
    response = operator.post("/start/", {"do": "read", "repository": "lab/quiz"})
    assert "Reading quiz@1-train.jsonl" in read_in_a_worker(operator, response), "the columns are found, items follow"
    assert asked[0]["repository"] == "lab/quiz"
    assert not asked[0]["uses_token"]
    assert "What is 2 plus 2?" in read_in_a_worker(operator, response)


# The question


def make_rated_draft(client):
    rows = [{"key": f"p{n}", "input": f"Scene {n}"} for n in range(3)]
    dataset = factories.make_dataset(
        "scenes", rows, approved=False, created_by=client.user, item_count=3, active_count=3
    )
    for item in dataset.items.all():
        Norm.objects.create(item=item, dimension="valence", mean=7.5)
    return dataset


def rate(client, dataset, do, low="1", high="9"):
    fields = {"instructions": "How pleasant is it?", "scale_min": low, "scale_max": high}
    return ask(client, dataset, do, **fields)


def test_items_with_human_norms_are_rated(operator):
    dataset = make_rated_draft(operator)
    guess = first_study.guess_question(dataset)
    assert (guess.dimension, guess.scale, guess.scorer) == ("valence", (1, 9), "")
    rate(operator, dataset, "try")
    call = Preflight.objects.get()
    assert "How pleasant is it?" in str(call.messages)
    assert preflight.make_preflight(call.pk, lambda request: build_reply("Rating: 8")) == "ok"
    page = read_text(operator.get(f"/start/tries/{call.pk}/?scorer=1:9").content.decode())
    assert "8, score 8" in page
    assert operator.get(f"/start/tries/{call.pk}/?scorer=9:1").status_code == 200
    assert rate(operator, dataset, "run").url.endswith("/progress/")
    experiment = Experiment.objects.get()
    dimension = experiment.dimensions.get()
    assert (dimension.name, dimension.instructions, dimension.scale) == ("valence", "How pleasant is it?", (1, 9))
    assert experiment.prompts.get().answer_format == "rating"


def test_a_scale_that_ends_below_its_start_is_refused(operator):
    dataset = make_rated_draft(operator)
    assert "must be above its start" in rate(operator, dataset, "run", "9", "1").content.decode()
    assert not Experiment.objects.exists()


@pytest.mark.parametrize(
    ("rows", "scorer"),
    [
        ([{"key": "a", "input": "2 + 2?", "target": "4"}, {"key": "b", "input": "?", "target": "-1,000.5"}], "numeric"),
        ([{"key": "a", "input": "Capital?", "target": "Rome"}], "exact_match"),
        ([{"key": "a", "input": "Which?", "target": "Rome", "choices": ["Rome", "Oslo"]}], "multiple_choice"),
        ([{"key": "a", "input": "Write a poem."}], ""),
    ],
)
def test_prompt_and_scorer_are_guessed_from_the_columns(rows, scorer):
    dataset = factories.make_dataset("guessed", rows)
    guess = first_study.guess_question(dataset)
    assert guess.scorer == scorer
    assert first_study.render_question(guess.prompt, dataset.items.first())


def test_a_wrong_variable_is_named_and_nothing_is_lost_or_launched(operator):
    dataset = make_draft(operator)
    text = "Answer this: {{question}}"
    for do in ("try", "run"):
        page = ask(operator, dataset, do, prompt=text).content.decode()
        assert '<a href="#id_prompt">Prompt</a>' in page
        assert "unknown variable {{question}}" in page
        assert text in page
    page = ask(operator, dataset, "run", prompt="{{input}} {{meta.hint}}").content.decode()
    assert "{{meta.hint}} has no value for this item. The items have {{input}}" in page
    dataset.refresh_from_db()
    assert dataset.is_draft
    assert not Experiment.objects.exists()
    assert not Preflight.objects.exists()


def test_run_approves_the_own_draft_with_a_reason_and_launches_twenty(operator):
    dataset = make_draft(operator, items=30)
    response = ask(operator, dataset, "run")
    assert response.url == "/experiments/capitals-first/progress/"
    dataset.refresh_from_db()
    assert dataset.status == "approved"
    assert dataset.history.filter(reason=first_study.REASON, by=operator.user).exists()
    experiment = Experiment.objects.get()
    assert (experiment.owner, experiment.scorers) == (operator.user, ["numeric"])
    assert Trial.objects.filter(run__experiment=experiment).count() == first_study.PILOT
    assert experiment.prompts.get() == Prompt.objects.get(name="answer-line")
    assert experiment.manifests.count() == 1


def test_a_researcher_cannot_approve_by_running(operator):
    researcher = sign_in("rita", permissions.RESEARCHER)
    dataset = make_draft(researcher)
    factories.make_model("big")
    page = researcher.get("/start/").content.decode()
    assert "A curator must approve it before it runs" in page
    assert 'value="run"' not in page
    assert "Ask a curator to approve it" in ask(researcher, dataset, "run").content.decode()
    dataset.refresh_from_db()
    assert dataset.is_draft
    assert not Experiment.objects.exists()


def test_a_curator_does_not_approve_the_draft_of_another_person_by_running(operator):
    dataset = make_draft(sign_in("rita", permissions.RESEARCHER))
    assert "Ask a curator to approve it" in ask(operator, dataset, "run").content.decode()
    dataset.refresh_from_db()
    assert dataset.is_draft


def test_a_researcher_runs_an_approved_dataset_with_a_shipped_prompt_only(operator):
    researcher = sign_in("rita", permissions.RESEARCHER)
    dataset = factories.make_dataset("capitals", 3)
    page = ask(researcher, dataset, "run", prompt="My own: {{input}}").content.decode()
    assert "must approve it" in page or "may not add" in page
    assert not Experiment.objects.exists()
    assert ask(researcher, dataset, "run").url == "/experiments/capitals-first/progress/"


def test_a_budget_with_an_unknown_price_is_refused_and_nothing_changes(operator):
    dataset = make_draft(operator)
    factories.make_model("big", input_price=None, output_price=None, price_source="", price_date=None)
    page = ask(operator, dataset, "run", max_usd="1").content.decode()
    assert "model big has no price" in page
    dataset.refresh_from_db()
    assert dataset.is_draft
    assert not Experiment.objects.exists()


def test_a_try_sends_one_call_and_reads_the_answer_as_the_scorer_does(operator):
    dataset = make_draft(operator)
    item = dataset.items.order_by("position").first()
    assert "Waiting for the answer" in ask(operator, dataset, "try").content.decode()
    call = Preflight.objects.get()
    sent = []

    def answer(request):
        sent.append(request)
        return build_reply(f"Let me think.\nANSWER: {item.target}")

    assert preflight.make_preflight(call.pk, answer) == "ok"
    (message,) = sent[0].messages
    assert item.input in message["content"]
    assert sent[0].parameters == {"max_tokens": 2048}
    address = f"/start/tries/{call.pk}/?scorer=numeric"
    page = read_text(operator.get(address).content.decode())
    assert f"{item.target}, score 1" in page
    dataset.refresh_from_db()
    assert dataset.is_draft
    assert sign_in("rita", permissions.RESEARCHER).get(address).status_code == 404


def test_the_preview_shows_the_request_and_the_cost_of_the_run(operator):
    dataset = make_draft(operator)
    model = factories.make_model("big")
    fields = {"dataset": dataset.pk, "models": [model.pk], "prompt": "Say: {{input}}"}
    page = read_text(operator.post("/start/preview/", fields).content.decode())
    assert f"Say: {dataset.items.order_by('position').first().input}" in page
    assert "Costs at most $" in page
    page = read_text(operator.post("/start/preview/", fields | {"prompt": "{{target}}"}).content.decode())
    assert "would show the model the right answer" in page


def test_home_leads_to_start_until_a_first_experiment_exists(operator):
    assert 'href="/start/"' in operator.get("/").content.decode()


def test_the_question_is_done_for_the_data_that_was_answered_only(operator):
    first = make_draft(operator)
    assert ask(operator, first, "run").status_code == 302
    other = make_draft(operator, "rivers")

    def read_state(**query):
        page = operator.get("/start/", query).content.decode()
        return read_text(re.search(r"</span> Question</h2>(.*?)</div>", page, re.DOTALL)[1])

    assert read_state(dataset=first.pk) == "To do"
    Experiment.objects.get().runs.update(n_done=20)
    assert read_state(dataset=first.pk) == "Done"
    assert read_state(dataset=other.pk) == "To do"
    assert read_state(other=1) == "To do"
    assert "You have a first result" in operator.get("/start/", {"other": 1}).content.decode()
