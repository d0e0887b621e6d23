"""The dashboard for Grafana asks for metrics that the site has, and shows each of them."""

import json
import re

from evalsite.lib.ops.installation import ROOT

METRIC = re.compile(r"evalsite_[a-z_]+")


def test_the_dashboard_shows_every_documented_metric_and_no_other():
    dashboard = json.loads((ROOT / "docs/deploy/grafana-dashboard.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = set(METRIC.findall(" ".join(queries)))
    document = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
    section = re.search(r"^## Metrics\n(.*?)^## ", document, re.MULTILINE | re.DOTALL)[1]
    assert asked == set(METRIC.findall("\n".join(line for line in section.splitlines() if line.startswith("|"))))
    code = (ROOT / "evalsite/api/metrics.py").read_text(encoding="utf-8")
    assert {name.removesuffix("_total") for name in asked} == set(re.findall(r'"(evalsite_[a-z_]+)"', code))
