"""The installed client, outside the checkout, against a site over real HTTP."""

import json

import pytest

from grading_app.publish.export.file_formats import export_chunks
from runs_app.models import Experiment, Trial

pytestmark = pytest.mark.processes


def test_the_client_needs_nothing_but_the_standard_library(run_program):
    code = """
import sys
from evalsite_client import Lab
print([one.name for one in Lab().experiments()], len(list(Lab().experiment("pilot").trials())))
print([name for name in ("django", "requests", "httpx", "pandas") if name in sys.modules])
"""
    n_trials = Trial.objects.filter(run__experiment__slug="pilot").count()
    assert run_program(code).splitlines() == [f"['pilot', 'draft'] {n_trials}", "[]"]


def test_frames_have_the_rows_and_columns_of_the_export(run_program):
    code = """
import json
from evalsite_client import Lab
pilot = Lab().experiment("pilot")
frame = pilot.trials().to_pandas()
exact = pilot.trials().to_pandas(exact=True)
arrow = pilot.gradings(condition=frame["condition_id"][0]).to_arrow()
print(json.dumps([list(frame.columns), frame["item_key"].tolist(), str(frame["cost_usd"].dtype),
    type(exact["cost_usd"][0]).__name__, arrow.num_rows]))
"""
    pilot = Experiment.objects.get(slug="pilot")
    rows = [json.loads(line) for line in b"".join(export_chunks(pilot, "trials", "jsonl")).splitlines()]
    columns, keys, kind, exact, gradings = json.loads(run_program(code, packages=True))
    assert columns == list(rows[0])
    assert len(rows) == 8
    assert keys == [row["item_key"] for row in rows]
    assert kind == "float64"
    assert exact in ("Decimal", "NoneType")
    assert gradings == len(rows) // 2


def test_polars_frames_equal_the_pandas_frames(run_program):
    code = """
import json
import polars
from evalsite_client import Lab
pilot = Lab().experiment("pilot")
for table in (pilot.trials(), pilot.gradings(), pilot.results()):
    frame, other = table.to_polars(), table.to_pandas()
    assert isinstance(frame, polars.DataFrame)
    print(json.dumps([frame.columns == list(other.columns), frame.height == len(other) > 0]))
trials = pilot.trials().to_polars()
print(trials["item_key"].to_list() == pilot.trials().to_pandas()["item_key"].tolist())
print(trials.schema["cost_usd"], trials.schema["completed_at"])
"""
    *tables, keys, types = run_program(code, packages=True).splitlines()
    assert tables == ["[true, true]"] * 3
    assert keys == "True"
    assert types == "Decimal(precision=18, scale=8) Datetime(time_unit='us', time_zone='UTC')"


def test_results_and_their_table_in_a_notebook(run_program):
    code = """
from evalsite_client import Lab
results = Lab().experiment("pilot").results()
print(len(results), results[0]["n"], results.to_pandas().shape[0])
print(repr(results).splitlines()[0])
print(results._repr_html_().count("<tr>"), Lab().experiment("pilot")._repr_html_().count("<td>"))
"""
    sizes, first, tables = run_program(code, packages=True).splitlines()
    assert sizes == "2 4 2"
    assert "n 4 of 4" in first
    assert tables == "3 7"


def test_a_figure_is_saved_with_its_numbers(run_program):
    code = """
from evalsite_client import Lab
pilot = Lab().experiment("pilot")
names = [one["name"] for one in pilot.figures()]
print(pilot.save_figure(names[0], "figure.svg").read_text()[:5])
print(len(pilot.save_figure(names[0], "figure.csv").read_text().splitlines()) > 1)
"""
    assert run_program(code).splitlines() == ["<?xml", "True"]


def test_a_launch_within_its_limit(run_program):
    code = """
from evalsite_client import ApiError, Lab
draft = Lab().experiment("draft")
estimate = draft.estimate()
try:
    draft.launch(max_usd="0")
except ApiError as error:
    print(error.status, list(error.errors))
print(draft.launch(max_usd=5)["trials_added"] == estimate["to_do"], draft.refresh().facts["state"])
print(draft.pause("lunch"), draft.wait(progress=True).facts["state"])
"""
    refused, launched, paused = run_program(code).splitlines()
    assert refused == "409 ['max_usd']"
    assert launched == "True running"
    assert paused == "1 paused"


def test_a_design_travels_as_mapping_and_as_file(run_program):
    code = """
from evalsite_client import ApiError, Lab
lab = Lab()
design = lab.experiment("pilot").design()
print(lab.create(design | {"experiment": "again"}))
try:
    lab.create("experiment: x")
except ApiError as error:
    print(error.status, "dataset" in error.errors)
"""
    created, refused = run_program(code).splitlines()
    assert created == "<Experiment again: draft, 0 of 0 trials>"
    assert refused == "422 True"


def test_errors_are_exceptions_that_name_the_cause(run_program):
    code = """
from evalsite_client import ApiError, Lab
for attempt in (lambda: Lab().experiment("absent"), lambda: Lab(token="evs_wrong").experiments(),
        lambda: Lab().experiment("pilot").trials(colour="blue").save("x.csv")):
    try:
        attempt()
    except ApiError as error:
        print(error.status)
"""
    assert run_program(code).split() == ["404", "401", "422"]


def test_a_frame_without_its_package_says_what_to_install(run_program):
    code = """
from evalsite_client import Lab
pilot = Lab().experiment("pilot")
for attempt in (pilot.trials().to_pandas, pilot.trials().to_arrow, pilot.trials().to_polars, pilot.results().to_pandas):
    try:
        attempt()
    except ImportError as error:
        print(error)
"""
    needed = (("pandas", "pandas"), ("pyarrow", "arrow"), ("polars", "polars"), ("pandas", "pandas"))
    assert run_program(code).splitlines() == [
        f"this needs {package}: pip install 'evalsite-client[{extra}]'" for package, extra in needed
    ]


def test_mistakes_name_the_row_or_the_site_and_never_the_token(run_program):
    code = """
import os
import evalsite_client.connection
from evalsite_client import ApiError, Lab
evalsite_client.connection.ATTEMPTS = 1
token = os.environ["EVALSITE_TOKEN"]
print(len(Lab(token=token + "\\n").experiments()))
for attempt in (lambda: Lab().experiment("absent"), lambda: Lab().experiment("pilot").save_figure("none", "x.pdf"),
        lambda: Lab(token=token[:9] + "\\n" + token[9:]).experiments(), lambda: Lab("http://127.0.0.1:9").experiments()):
    try:
        attempt()
    except (ApiError, ValueError, ConnectionError) as error:
        assert token[9:] not in str(error)
        print(error)
"""
    count, experiment, figure, token, site = run_program(code).splitlines()
    assert count == "2"
    assert experiment.endswith("may not see it. The request was for /experiments/absent")
    assert figure.endswith("The request was for /experiments/pilot/figures/none.pdf")
    assert token == "the token contains characters that no token has; copy it again"
    assert site == "the site http://127.0.0.1:9 cannot be reached: [Errno 111] Connection refused"
