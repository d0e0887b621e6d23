"""Test calls become rows: preflights, which triggers enter into the ledger as they do attempts."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

# Each column's part of one preflight `p` that was made. What a model said to one is no result, so it is of no kind.
PARTS = {
    "attempts": "1",
    "answered": "(p.status = 'ok')::int",
    "input_tokens": "coalesce(p.input_tokens, 0)",
    "output_tokens": "coalesce(p.output_tokens, 0)",
    "reasoning_tokens": "coalesce(p.reasoning_tokens, 0)",
    "cache_read_tokens": "coalesce(p.cache_read_tokens, 0)",
    "cache_write_tokens": "coalesce(p.cache_write_tokens, 0)",
    "list_usd": "CASE WHEN p.cost_usd IS NULL THEN 0 ELSE coalesce(p.list_usd, p.cost_usd) END",
    "paid_usd": "coalesce(p.cost_usd, 0)",
    "cache_saved_usd": "coalesce(p.list_usd - p.cost_usd, 0)",
    "unpriced": "(p.cost_usd IS NULL)::int",
    "kept_usd": "coalesce(p.kept_usd, 0)",
}
OTHERS = ("reused", "batch_saved_usd", "reuse_saved_usd", "empty", "truncated", "refused", "unparsed")
ENTER = f"""
INSERT INTO runs_app_ledgerentry AS t (experiment_id, model_id, at, {", ".join([*PARTS, *OTHERS])})
SELECT p.experiment_id, p.model_id, date_bin('15 minutes', p.finished_at, 'epoch'),
    {", ".join([f"sum(p.sign * ({part}))" for part in PARTS.values()] + ["0"] * len(OTHERS))}
FROM {{rows}} p
WHERE p.started_at IS NOT NULL AND p.finished_at IS NOT NULL
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
ON CONFLICT (experiment_id, model_id, at) WHERE run_id IS NULL
DO UPDATE SET {", ".join(f"{name} = t.{name} + excluded.{name}" for name in PARTS)}
"""  # noqa: S608 - built from the names above
TRIGGERS = f"""
CREATE FUNCTION runs_app_enter_preflights() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        {ENTER.format(rows="(SELECT 1 AS sign, added.* FROM added)")};
    ELSE
        {ENTER.format(rows="(SELECT 1 AS sign, added.* FROM added UNION ALL SELECT -1, removed.* FROM removed)")};
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_of_new AFTER INSERT ON runs_app_preflight
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_preflights();
CREATE TRIGGER ledger_of_changed AFTER UPDATE ON runs_app_preflight
REFERENCING NEW TABLE AS added OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_enter_preflights();
"""  # noqa: S608
UNDO = """
DROP TRIGGER ledger_of_new ON runs_app_preflight;
DROP TRIGGER ledger_of_changed ON runs_app_preflight;
DROP FUNCTION runs_app_enter_preflights();
"""
# What was known of a model's last test call. Its cost was not kept, so it is shown and is no part of the ledger.
REMEMBER = """
INSERT INTO runs_app_preflight (model_id, status, actor, error, asked_at, finished_at, reserved_usd, error_class,
    finish_reason, response_id, served_model, served_provider, trace_id)
SELECT id, check_status, 'unknown', check_detail, checked_at, checked_at, 0, '', '', '', '', '', ''
FROM runs_app_languagemodel WHERE check_status IN ('ok', 'dead', 'unverified') AND checked_at IS NOT NULL;
SET CONSTRAINTS ALL IMMEDIATE;
SET CONSTRAINTS ALL DEFERRED;
"""


def _usd(**options):
    return models.DecimalField(decimal_places=8, max_digits=14, **options)


def _key(to, on_delete, **options):
    return models.ForeignKey(on_delete=getattr(django.db.models.deletion, on_delete), to=to, **options)


class Migration(migrations.Migration):
    dependencies = [
        ("runs_app", "0021_models_keep_their_id"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Preflight",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("error_class", models.CharField(default="", max_length=40)),
                ("error", models.TextField(default="")),
                ("http_status", models.SmallIntegerField(null=True)),
                ("finish_reason", models.CharField(default="", max_length=40)),
                ("response_id", models.CharField(default="", max_length=200)),
                ("served_model", models.CharField(default="", max_length=200)),
                ("served_provider", models.CharField(default="", max_length=80)),
                ("input_tokens", models.IntegerField(null=True)),
                ("output_tokens", models.IntegerField(null=True)),
                ("reasoning_tokens", models.IntegerField(null=True)),
                ("cache_read_tokens", models.IntegerField(null=True)),
                ("cache_write_tokens", models.IntegerField(null=True)),
                ("cost_usd", _usd(null=True)),
                (
                    "list_usd",
                    _usd(
                        null=True,
                        help_text="Its cost at list price: without the provider's cache, or what reuse spared",
                    ),
                ),
                ("kept_usd", _usd(null=True, help_text="Still reserved, since what it cost is unknown")),
                ("latency_ms", models.IntegerField(null=True)),
                ("trace_id", models.CharField(default="", max_length=64)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("ok", "Ok"),
                            ("dead", "Dead"),
                            ("unverified", "Unverified"),
                        ],
                        default="waiting",
                        editable=False,
                        max_length=10,
                    ),
                ),
                ("actor", models.CharField(help_text="Who asked for it, by the name at the time", max_length=200)),
                ("reserved_usd", _usd(default=0)),
                ("lease_until", models.DateTimeField(null=True)),
                ("asked_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("by", _key(settings.AUTH_USER_MODEL, "SET_NULL", null=True, related_name="+")),
                (
                    "endpoint",
                    _key("runs_app.endpoint", "PROTECT", null=True, related_name="+", help_text="Whose slot it took"),
                ),
                (
                    "experiment",
                    _key(
                        "runs_app.experiment",
                        "CASCADE",
                        null=True,
                        related_name="preflights",
                        help_text="Whose budget pays; else nobody's",
                    ),
                ),
                ("model", _key("runs_app.languagemodel", "PROTECT", db_index=False, related_name="preflights")),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(fields=["model", "-id"], name="preflight_latest"),
                    models.Index(
                        fields=["lease_until"],
                        name="preflight_leases",
                        condition=Q(status__in=["waiting", "running"]),
                    ),
                ],
            },
        ),
        migrations.AddField(
            "ledgerentry",
            "experiment",
            _key("runs_app.experiment", "CASCADE", null=True, db_index=False, related_name="+"),
        ),
        migrations.AddField(
            "ledgerentry",
            "model",
            _key("runs_app.languagemodel", "PROTECT", null=True, db_index=False, related_name="+"),
        ),
        migrations.AlterField(
            "ledgerentry", "run", _key("runs_app.run", "CASCADE", null=True, db_index=False, related_name="ledger")
        ),
        migrations.AddConstraint(
            "ledgerentry",
            models.UniqueConstraint(
                condition=Q(run__isnull=True),
                fields=("experiment", "model", "at"),
                name="ledger_preflight_at",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            "ledgerentry",
            models.CheckConstraint(
                condition=Q(run__isnull=False, model__isnull=True, experiment__isnull=True)
                | Q(run__isnull=True, model__isnull=False),
                name="ledger_of_run_or_model",
            ),
        ),
        migrations.RunSQL(REMEMBER, migrations.RunSQL.noop),
        migrations.RunSQL(TRIGGERS, UNDO),
        migrations.RemoveField("languagemodel", "check_detail"),
        migrations.RemoveField("languagemodel", "check_status"),
        migrations.RemoveField("languagemodel", "checked_at"),
    ]
