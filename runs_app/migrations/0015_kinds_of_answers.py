"""Kinds of answers, counted in the ledger; what to do about empty ones; options of endpoints and of their models."""

from django.db import migrations, models
from django.db.models import Q

CHANNELS = ("empty", "truncated", "refused", "unparsed")
# Each column's part of one attempt `a`. Where the list price is not known, nothing is said to be saved.
PARTS = {
    "attempts": "1",
    "answered": "(a.outcome = 'ok')::int",
    "reused": "(a.outcome = 'cached')::int",
    "input_tokens": "coalesce(a.input_tokens, 0)",
    "output_tokens": "coalesce(a.output_tokens, 0)",
    "reasoning_tokens": "coalesce(a.reasoning_tokens, 0)",
    "cache_read_tokens": "coalesce(a.cache_read_tokens, 0)",
    "cache_write_tokens": "coalesce(a.cache_write_tokens, 0)",
    "list_usd": "CASE WHEN a.cost_usd IS NULL THEN 0 ELSE coalesce(a.list_usd, a.cost_usd) END",
    "paid_usd": "coalesce(a.cost_usd, 0)",
    "cache_saved_usd": "CASE WHEN a.outcome <> 'cached' AND NOT a.batched THEN coalesce(a.list_usd - a.cost_usd, 0)"
    " ELSE 0 END",
    "batch_saved_usd": "CASE WHEN a.outcome <> 'cached' AND a.batched THEN coalesce(a.list_usd - a.cost_usd, 0)"
    " ELSE 0 END",
    "reuse_saved_usd": "CASE WHEN a.outcome = 'cached' THEN coalesce(a.list_usd - a.cost_usd, 0) ELSE 0 END",
    "unpriced": "(a.cost_usd IS NULL)::int",
    "kept_usd": "coalesce(a.kept_usd, 0)",
    **{name: f"(a.outcome IN ('ok', 'cached') AND a.{name})::int" for name in CHANNELS},
}
ENTER = f"""
INSERT INTO runs_app_ledgerentry AS t (run_id, at, {", ".join(PARTS)})
SELECT a.run_id, date_bin('15 minutes', a.finished_at, 'epoch'),
    {", ".join(f"sum(a.sign * ({part}))" for part in PARTS.values())}
FROM {{rows}} a
GROUP BY 1, 2 ORDER BY 1, 2
ON CONFLICT (run_id, at) DO UPDATE SET {", ".join(f"{name} = t.{name} + excluded.{name}" for name in PARTS)}
"""  # noqa: S608 - built from the names above
CHANGED = "(SELECT 1 AS sign, added.* FROM added UNION ALL SELECT -1, removed.* FROM removed)"
FUNCTION = f"""
CREATE OR REPLACE FUNCTION runs_app_enter_attempts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        {ENTER.format(rows="(SELECT 1 AS sign, added.* FROM added)")};
    ELSE
        {ENTER.format(rows=CHANGED)};
    END IF;
    RETURN NULL;
END $$;
"""  # noqa: S608
# What was answered before is marked as its trial is; the ledger follows by its trigger.
MARK = """
UPDATE runs_app_attempt a SET empty = t.answer = '', truncated = t.truncated, refused = t.refused,
    unparsed = t.parse_error <> ''
FROM runs_app_trial t WHERE t.id = a.trial_id AND t.status = 'done' AND a.outcome IN ('ok', 'cached')
    AND (t.answer = '' OR t.truncated OR t.refused OR t.parse_error <> '')
"""

ODD = Q(status="done") & (Q(answer="") | Q(truncated=True) | Q(refused=True) | ~Q(parse_error=""))


def _flag(**options):
    return models.BooleanField(default=False, db_default=False, **options)


def _sum_of_answers(**options):
    return models.BigIntegerField(default=0, **options)


KEPT = "Of an answer that was kept, as the trial's"
ONE_OF_FOUR = "Of the answers kept; one may be several of these four"


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0014_graders")]

    operations = [
        migrations.AddField("attempt", "empty", _flag(help_text=KEPT)),
        migrations.AddField("attempt", "truncated", _flag()),
        migrations.AddField("attempt", "refused", _flag()),
        migrations.AddField("attempt", "unparsed", _flag()),
        migrations.AddField("attempt", "batched", _flag(help_text="At the price of a batch")),
        migrations.AddField("ledgerentry", "empty", _sum_of_answers(help_text=ONE_OF_FOUR)),
        migrations.AddField("ledgerentry", "truncated", _sum_of_answers()),
        migrations.AddField("ledgerentry", "refused", _sum_of_answers()),
        migrations.AddField("ledgerentry", "unparsed", _sum_of_answers()),
        migrations.AddField(
            "ledgerentry", "batch_saved_usd", models.DecimalField(decimal_places=8, default=0, max_digits=18)
        ),
        migrations.AddField(
            "experiment",
            "on_empty",
            models.CharField(
                choices=[
                    ("keep", "Keep it, as an answer like others"),
                    ("rerun", "Ask again, as after an error that passes"),
                    ("skip", "Keep it, and leave it out of grading"),
                ],
                db_default="keep",
                default="keep",
                help_text="What becomes of a trial whose answer is blank",
                max_length=10,
                verbose_name="empty answers",
            ),
        ),
        migrations.AddField(
            "endpoint",
            "provider_routes",
            models.JSONField(
                blank=True,
                default=list,
                help_text="Who serves its models there, by OpenRouter's names: each retry goes to the next of them",
            ),
        ),
        migrations.AddField(
            "endpoint",
            "local_server",
            models.CharField(
                blank=True,
                choices=[("ollama", "Ollama")],
                default="",
                help_text="A model that stalls there (three time-outs in a row) is taken out of its memory",
                max_length=10,
            ),
        ),
        migrations.AddField(
            "languagemodel",
            "cache_marks",
            models.BooleanField(
                default=False,
                help_text="The part of each request that all items share is marked (Anthropic's cache_control)",
                verbose_name="marks for the provider's cache",
            ),
        ),
        migrations.AddField(
            "languagemodel",
            "stalls",
            models.PositiveSmallIntegerField(default=0, editable=False, help_text="Time-outs in a row"),
        ),
        migrations.AddIndex("trial", models.Index(fields=["run", "id"], name="trial_odd", condition=ODD)),
        migrations.RunSQL(FUNCTION, migrations.RunSQL.noop),
        migrations.RunSQL(MARK, migrations.RunSQL.noop),
    ]
