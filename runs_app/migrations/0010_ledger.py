"""The ledger, kept by triggers on the attempts: whoever writes an attempt, by whatever code, enters it here."""

import django.db.models.deletion
from django.db import migrations, models

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
    "cache_saved_usd": "CASE WHEN a.outcome <> 'cached' THEN coalesce(a.list_usd - a.cost_usd, 0) ELSE 0 END",
    "reuse_saved_usd": "CASE WHEN a.outcome = 'cached' THEN coalesce(a.list_usd - a.cost_usd, 0) ELSE 0 END",
    "unpriced": "(a.cost_usd IS NULL)::int",
    "kept_usd": "coalesce(a.kept_usd, 0)",
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
TRIGGERS = f"""
CREATE FUNCTION runs_app_enter_attempts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        {ENTER.format(rows="(SELECT 1 AS sign, added.* FROM added)")};
    ELSE
        {ENTER.format(rows=CHANGED)};
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_of_new AFTER INSERT ON runs_app_attempt
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_attempts();
CREATE TRIGGER ledger_of_changed AFTER UPDATE ON runs_app_attempt
REFERENCING NEW TABLE AS added OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_attempts();
"""  # noqa: S608
UNDO = """
DROP TRIGGER ledger_of_new ON runs_app_attempt;
DROP TRIGGER ledger_of_changed ON runs_app_attempt;
DROP FUNCTION runs_app_enter_attempts();
"""
FILL = ENTER.format(rows="(SELECT 1 AS sign, added.* FROM runs_app_attempt added)")


def _sum_of_calls(**options):
    return models.BigIntegerField(default=0, **options)


def _sum_of_money():
    return models.DecimalField(decimal_places=8, default=0, max_digits=18)


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0009_stages")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="list_usd",
            field=models.DecimalField(
                decimal_places=8,
                help_text="Its cost at list price: without the provider's cache, or what reuse spared",
                max_digits=14,
                null=True,
            ),
        ),
        migrations.CreateModel(
            name="LedgerEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "at",
                    models.DateTimeField(help_text="Start of the quarter of an hour in which the calls ended"),
                ),
                ("attempts", _sum_of_calls()),
                ("answered", _sum_of_calls()),
                ("reused", _sum_of_calls(help_text="Answered from the response cache, without a call")),
                ("input_tokens", _sum_of_calls()),
                ("output_tokens", _sum_of_calls()),
                ("reasoning_tokens", _sum_of_calls()),
                ("cache_read_tokens", _sum_of_calls()),
                ("cache_write_tokens", _sum_of_calls()),
                ("list_usd", _sum_of_money()),
                ("paid_usd", _sum_of_money()),
                ("cache_saved_usd", _sum_of_money()),
                ("reuse_saved_usd", _sum_of_money()),
                ("unpriced", _sum_of_calls()),
                ("kept_usd", _sum_of_money()),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ledger",
                        to="runs_app.run",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["at"], name="ledger_at")],
                "constraints": [models.UniqueConstraint(fields=("run", "at"), name="ledger_run_at")],
            },
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RunSQL(TRIGGERS, UNDO),
    ]
