"""References, and appendices: prompts, dimensions and rubrics in full, the settings of the runs, and how to reproduce.

Each statistic that the sections before use has a source, found by the words of their tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from evalsite.lib.text.number_format import format_count, format_score
from grading_app.models import Rubric, Snapshot
from grading_app.publish.report.document import (
    Block,
    Code,
    FigureBlock,
    Heading,
    Listing,
    Paragraph,
    ReportSection,
    Span,
    TableBlock,
    count_noun,
    join_words,
    make_paragraph,
    make_sentence,
    make_table_block,
)
from grading_app.publish.report.report_source import ReportSource
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.measures import MEASURE_DESCRIPTIONS
from runs_app.experiment_files.adaptive_spec import CATEGORY, POINT, RATING, AdaptiveSpec
from runs_app.models import Experiment

SHROUT_AND_FLEISS = (
    "P. E. Shrout & J. L. Fleiss (1979), Intraclass correlations: uses in assessing rater reliability, Psychological "
    "Bulletin 86, 420–428"
)
REFERENCES: tuple[tuple[str, str, str], ...] = (
    ("Wilson", "Wilson's interval of a share", "E. B. Wilson (1927), Probable inference, the law of succession, and "
     "statistical inference, Journal of the American Statistical Association 22, 209–212; L. D. Brown, T. T. Cai & A. "
     "DasGupta (2001), Interval estimation for a binomial proportion, Statistical Science 16, 101–133"),
    ("effective n", "The effective number of answers", "E. L. Korn & B. I. Graubard (1998), Confidence intervals for "
     "proportions with small expected number of positive counts estimated from survey data, Survey Methodology 24, "
     "193–201"),
    ("score interval", "The score interval of a mean on a scale", "Wilson's interval (1927) of the mean's share of the "
     "scale, at the effective number of answers of Korn & Graubard (1998), and an item added at each end of the scale"),
    ("gaffke", "Gaffke's bounded interval", "N. Gaffke (2005), Three test statistics for a nonparametric one-sided "
     "hypothesis on the mean of a nonnegative variable, Mathematical Methods of Statistics 14, 451–467; E. "
     "Learned-Miller & P. S. Thomas (2019), A new confidence interval for the mean of a bounded random variable, "
     "arXiv:1905.06208"),
    ("cluster", "Standard errors clustered by item", "K.-Y. Liang & S. L. Zeger (1986), Longitudinal data analysis "
     "using generalized linear models, Biometrika 73, 13–22"),
    ("holm", "Holm's correction", "S. Holm (1979), A simple sequentially rejective multiple test procedure, "
     "Scandinavian Journal of Statistics 6, 65–70"),
    ("benjamini", "The false discovery rate", "Y. Benjamini & Y. Hochberg (1995), Controlling the false discovery "
     "rate: a practical and powerful approach to multiple testing, Journal of the Royal Statistical Society B 57, "
     "289–300"),
    ("student's t", "Student's t", "Student (1908), The probable error of a mean, Biometrika 6, 1–25"),
    ("paired t", "Student's t", "Student (1908), The probable error of a mean, Biometrika 6, 1–25"),
    ("wilcoxon", "Wilcoxon's signed-rank test", "F. Wilcoxon (1945), Individual comparisons by ranking methods, "
     "Biometrics Bulletin 1, 80–83"),
    ("permutation", "Permutation tests", "R. A. Fisher (1935), The Design of Experiments"),
    ("sign-flip", "The sign-flip test", "R. A. Fisher (1935), The Design of Experiments; J. A. Hartigan (1969), Using "
     "subsample values as typical values, Journal of the American Statistical Association 64, 1303–1317"),
    ("mcnemar", "McNemar's test", "Q. McNemar (1947), Note on the sampling error of the difference between correlated "
     "proportions or percentages, Psychometrika 12, 153–157"),
    ("tango", "Tango's score interval", "T. Tango (1998), Equivalence test and confidence interval for the difference "
     "in proportions for the paired-sample design, Statistics in Medicine 17, 891–908"),
    ("welch", "Welch's test", "B. L. Welch (1947), The generalization of 'Student's' problem when several different "
     "population variances are involved, Biometrika 34, 28–35"),
    ("cohen's d", "Cohen's d", "J. Cohen (1988), Statistical Power Analysis for the Behavioral Sciences, 2nd edition"),
    ("fisher's and the jackknife's for r", "Fisher's interval of a correlation", "R. A. Fisher (1921), On the "
     "'probable error' of a coefficient of correlation deduced from a small sample, Metron 1, 3–32"),
    ("jackknife", "The jackknife", "R. G. Miller (1974), The jackknife: a review, Biometrika 61, 1–15"),
    ("bonett and wright", "The interval of Spearman's rho", "D. G. Bonett & T. A. Wright (2000), Sample size "
     "requirements for estimating Pearson, Kendall and Spearman correlations, Psychometrika 65, 23–28"),
    ("spearman's rho", "Spearman's rho", "C. Spearman (1904), The proof and measurement of association between two "
     "things, American Journal of Psychology 15, 72–101"),
    ("lin's", "Lin's concordance coefficient", "L. I.-K. Lin (1989), A concordance correlation coefficient to evaluate "
     "reproducibility, Biometrics 45, 255–268"),
    ("icc(", "Intraclass correlations", SHROUT_AND_FLEISS),
    ("intraclass", "Intraclass correlations", SHROUT_AND_FLEISS),
    ("spearman and brown", "Spearman and Brown's formula", "C. Spearman (1910), Correlation calculated from faulty "
     "data, British Journal of Psychology 3, 271–295; W. Brown (1910), Some experimental results in the correlation of "
     "mental abilities, British Journal of Psychology 3, 296–322"),
    ("bland", "Limits of agreement", "J. M. Bland & D. G. Altman (1986), Statistical methods for assessing agreement "
     "between two methods of clinical measurement, The Lancet 327, 307–310"),
    ("calibration", "Expected calibration error", "M. P. Naeini, G. F. Cooper & M. Hauskrecht (2015), Obtaining well "
     "calibrated probabilities using Bayesian binning, Proceedings of AAAI 29, 2901–2907"),
)  # fmt: skip
"""For a word in the texts of the report, in lower case: the statistic that it stands for, and its source."""


FULL = (
    "J. Cohen (1960), A coefficient of agreement for nominal scales, Educational and Psychological Measurement 20, "
    "37–46",
    "J. Cohen (1968), Weighted kappa: nominal scale agreement with provision for scaled disagreement or partial "
    "credit, Psychological Bulletin 70, 213–220",
    "J. L. Fleiss (1971), Measuring nominal scale agreement among many raters, Psychological Bulletin 76, 378–382",
    "K. O. McGraw & S. P. Wong (1996), Forming inferences about some intraclass correlation coefficients, "
    "Psychological Methods 1, 30–46",
    "K. L. Gwet (2014), Handbook of Inter-Rater Reliability, 4th edition",
    "M. G. Kendall (1948), Rank Correlation Methods",
    *(reference for _, _, references in REFERENCES for reference in references.split("; ")),
)
"""The works that this module and the measures of agreement cite, with their titles."""
PROVIDER_DEFAULT = "provider's default"
NAMED = ("temperature", "top_p", "max_tokens", "seed", "reasoning_effort")


def write_references(source: ReportSource) -> list[Block | None]:
    words = "\n".join(text for section in source.sections for text in _list_texts(section))
    lower_words = words.lower()
    citations = [(statistic, reference) for word, statistic, reference in REFERENCES if word.lower() in lower_words]
    citations += [(name, description.citation) for name, description in MEASURE_DESCRIPTIONS.items() if name in words]
    if not citations:
        return [make_paragraph("The report uses no statistic that needs a reference.", tone="note")]
    titles = {_identify(reference): reference for reference in FULL}
    by_work: dict[str, list[str]] = {}
    for statistic, references in dict.fromkeys(citations):
        for reference in references.split("; "):
            by_work.setdefault(titles.get(_identify(reference), reference), []).append(statistic)
    entries = [(join_words(list(dict.fromkeys(names))), reference) for reference, names in by_work.items()]
    return [Listing([[Span(f"{statistic}: ", strong=True), Span(f"{reference}.")] for statistic, reference in entries])]


def _identify(reference: str) -> str:
    """Return the authors and the year of a reference."""
    return reference.partition(")")[0]


def _list_texts(section: ReportSection) -> Iterator[str]:
    """Yield the texts that name statistics: those of sentences, of tables and of captions. Names of rows are among
    them only where a table lists measures or tests."""
    for block in section.blocks:
        if isinstance(block, Paragraph) and section.name != "question":
            yield from (span.text for span in block.spans)
        if isinstance(block, FigureBlock):
            yield f"{block.title}. {block.caption}"
        if isinstance(block, TableBlock) and section.name in ("results", "agreement"):
            table = block.shown_table
            yield " ".join((table.formula, table.test, table.correction, *table.notes))
            yield from (column.label for column in table.columns)
            yield from (str(row[name]) for row in block.table.rows for name in ("test", "measure") if row.get(name))


def write_prompts(source: ReportSource) -> Iterator[Block]:
    """Yield each prompt once, as the conditions froze it."""
    prompts: dict[tuple[str, str], Any] = {}
    for condition in source.generation_conditions:
        if condition.prompt is not None:
            prompts.setdefault((str(condition.prompt), condition.prompt.content_hash), condition.content["prompt"])
    for (name, content_hash), content in prompts.items():
        yield Heading(f"Prompt {name}")
        yield Paragraph([Span(f"SHA-256 {content_hash}. Answer format: {content['answer_format']}.")], "note")
        yield from _write_turns(content["messages"])


def _write_turns(messages: list[dict[str, Any]]) -> Iterator[Block]:
    """Yield the text of each message; parts that are images appear as such."""
    for turn in messages:
        content = turn.get("content")
        parts = content if isinstance(content, list) else [content]
        texts = [str(part.get("text", "[image]")) if isinstance(part, dict) else str(part) for part in parts]
        yield Code("\n".join(texts), f"{turn.get('role', '')} message")


def write_instructions(source: ReportSource) -> Iterator[Block]:
    for dimension in source.experiment.dimensions.order_by("pk"):
        yield Heading(f"Instructions of the dimension {dimension}")
        yield Code(dimension.instructions, f"SHA-256 {dimension.content_hash}")


def write_rubrics(source: ReportSource) -> Iterator[Block]:
    rubrics: dict[int, Rubric] = {grader.rubric.pk: grader.rubric for grader in source.graders if grader.rubric}
    for rubric in rubrics.values():
        yield Heading(f"Rubric {rubric}")
        yield Paragraph([Span(f"SHA-256 {rubric.content_hash}. {rubric.get_kind_display()}.")], "note")
        yield from _write_turns(rubric.messages)


def write_samplers(source: ReportSource) -> Block:
    rows = {}
    for condition in [*source.generation_conditions, *source.judge_conditions]:
        content = condition.content.get("sampler", condition.sampler.content)
        extra = {name: value for name, value in content.items() if name not in NAMED}
        rows[condition.sampler_id] = {
            "sampler": str(condition.sampler),
            **{name: str(content.get(name, PROVIDER_DEFAULT)) for name in NAMED},
            "other": json.dumps(extra, sort_keys=True, ensure_ascii=False) if extra else "",
            "hash": condition.sampler.content_hash,
        }
    columns = [
        ResultColumn("sampler", "Sampler"),
        ResultColumn("temperature", "Temperature"),
        ResultColumn("top_p", "Top p"),
        ResultColumn("max_tokens", "Max. tokens"),
        ResultColumn("seed", "Seed"),
        ResultColumn("reasoning_effort", "Reasoning effort"),
        ResultColumn("other", "Other"),
        ResultColumn("hash", "SHA-256"),
    ]
    column_names = [column.name for column in columns if column.name not in ("hash", "other")]
    column_names += ["other"] if any(row["other"] for row in rows.values()) else []
    notes = ["Seed: of the first repetition; each further one adds 1."]
    table = ResultTable("samplers", "Samplers", columns, list(rows.values()), notes=notes)
    return make_table_block(table, column_names, source.get_url("experiment_detail"))


def write_settings(source: ReportSource) -> Block:
    experiment = source.experiment
    stopping_rule = describe_stopping_rule(experiment) or "none: every cell was asked"
    facts = [*experiment.describe_options(reported=True), ("Stopping rule", stopping_rule)]
    rows = [{"setting": name, "value": value} for name, value in facts]
    columns = [ResultColumn("setting", "Setting"), ResultColumn("value", "Value")]
    return make_table_block(
        ResultTable("run_settings", "Settings of the runs", columns, rows), rows=source.get_url("experiment_detail")
    )


def describe_stopping_rule(experiment: Experiment) -> str:
    """Return the rule that decided how many cases of a point were asked, as a sentence; "" without one."""
    if not experiment.adaptive:
        return ""
    defaults = {name: AdaptiveSpec.model_fields[name].default for name in ("round", "max", "confidence")}
    rule = defaults | experiment.adaptive
    by, is_rating = rule["by"], rule["scorer"] == RATING
    points = {CATEGORY: "category", POINT: "point of the parametric space"}
    point = points[by] if isinstance(by, str) else f"combination of {join_words(by)}"
    text = f"Each condition was asked the cases of each {point} in rounds of {rule['round']}"
    if rule.get("targetci") is not None:
        width = format_score(rule["targetci"]) if is_rating else f"{100 * rule['targetci']:g} percentage points"
        quantity = "mean rating" if is_rating else "accuracy"
        text += f", until the {100 * rule['confidence']:g} % interval of the {quantity} had a half-width of {width}"
    text += f", with at most {format_count(rule['max'])} cases."
    if rule.get("abortht") is not None:
        text += f" A {point} was given up if more than {100 * rule['abortht']:g} % of its answers were truncated."
    if rule.get("tasks"):
        text += f" Other limits applied to {join_words(sorted(rule['tasks']))}."
    return text


def write_summary(source: ReportSource) -> Block | None:
    launches = source.experiment.manifests.count()
    if not launches:
        return None
    manifests = "a manifest" if launches == 1 else "one manifest each"
    return make_paragraph(
        make_sentence(
            f"{count_noun(launches, 'launch', 'launches')} wrote {manifests} with design, hashes, prices and versions.",
            source.get_url("experiment_detail"),
        )
    )


def write_hashes(source: ReportSource) -> Block:
    rows = [{"what": f"Dataset {source.experiment.dataset}", "hash": source.experiment.dataset.content_hash}]
    rows += [
        {"what": f"Dimension {dimension}", "hash": dimension.content_hash}
        for dimension in source.experiment.dimensions.order_by("pk")
    ]
    for condition in source.generation_conditions:
        rows.append(
            {
                "what": f"Condition {condition.condition_id.rpartition('--')[0]}",
                "hash": condition.condition_id.rpartition("--")[2],
            }
        )
    prompts = {
        str(condition.prompt): condition.prompt.content_hash
        for condition in source.generation_conditions
        if condition.prompt
    }
    samplers = {str(condition.sampler): condition.sampler.content_hash for condition in source.conditions}
    rubrics = {str(grader.rubric): grader.rubric.content_hash for grader in source.graders if grader.rubric}
    for kind, hashes in (("Prompt", prompts), ("Sampler", samplers), ("Rubric", rubrics)):
        rows += [{"what": f"{kind} {name}", "hash": value} for name, value in hashes.items()]
    columns = [ResultColumn("what", "Content"), ResultColumn("hash", "SHA-256")]
    notes = ["Conditions: the first 12 digits of the hash, as in the condition ids."]
    return make_table_block(
        ResultTable("hashes", "Hashes", columns, rows, notes=notes), rows=source.get_url("experiment_detail")
    )


def write_launches(source: ReportSource) -> Block | None:
    rows = []
    for manifest in source.experiment.manifests.order_by("pk"):
        software = manifest.content.get("evalsite") or {}
        launch = "a pilot" if manifest.launch.get("pilot") else "all trials"
        version, commit = software.get("version", ""), str(software.get("commit") or "")[:12]
        rows.append(
            {"at": f"{manifest.created_at:%Y-%m-%d %H:%M} UTC", "launch": launch, "version": version, "commit": commit}
        )
    if not rows:
        return None
    columns = [
        ResultColumn("at", "Launched"),
        ResultColumn("launch", "What"),
        ResultColumn("version", "Evalsite"),
        ResultColumn("commit", "Commit"),
    ]
    return make_table_block(
        ResultTable("launches", "Launches", columns, rows), rows=source.get_url("experiment_detail")
    )


def write_snapshots(source: ReportSource) -> Block | None:
    snapshots = list(Snapshot.objects.filter(experiment=source.experiment).order_by("pk"))
    if not snapshots:
        return None
    rows = [
        {"at": f"{snapshot.created_at:%Y-%m-%d %H:%M} UTC", "label": snapshot.label, "digest": snapshot.digest}
        for snapshot in snapshots
    ]
    columns = [ResultColumn("at", "Made"), ResultColumn("label", "Label"), ResultColumn("digest", "Digest (SHA-256)")]
    return make_table_block(
        ResultTable("snapshots", "Snapshots", columns, rows), rows=source.get_url("experiment_results")
    )


def write_software(source: ReportSource) -> Block:
    manifest = source.manifest
    software = manifest["evalsite"]
    versions = {"evalsite": software["version"], "commit of evalsite": software["commit"] or "unknown"}
    versions |= {"python": manifest["python"], **manifest["packages"]}
    rows = [{"package": name, "version": version} for name, version in versions.items()]
    columns = [ResultColumn("package", "Software"), ResultColumn("version", "Version")]
    return make_table_block(ResultTable("software", "Software of this report", columns, rows))


def write_commands(source: ReportSource) -> Block:
    slug = source.experiment.slug
    lines = [f"manage.py report {slug} --out {slug}.pdf", f"manage.py analyse {slug}"]
    lines += [f"manage.py export {slug} --table trials --format parquet --out trials.parquet"]
    lines += [f"manage.py snapshot {slug} --out {slug}.zip", f"manage.py verify_snapshot {slug}.zip"]
    return Code("\n".join(lines), "Commands that produce this report, its tables and its data again")
