"""The triggers and the view of runs_app, declared in runs_app/triggers.sql, and constraints on the tables of the task queue."""

import django.db.models.deletion
from django.db import migrations, models

from evalsite.lib.migration_operations import InstallTriggers

# The queue's scheduler is off, and no hook is called. Rows of these tables are not signed: anybody who can write to the
# database could name code in them that the queue would run.
QUEUE_RUNS_ONLY_TASKS = """
ALTER TABLE django_q_schedule ADD CONSTRAINT django_q_schedule_stays_empty CHECK (false);
ALTER TABLE django_q_task ADD CONSTRAINT django_q_task_has_no_hook CHECK (hook IS NULL);
"""
QUEUE_RUNS_ANYTHING = """
ALTER TABLE django_q_task DROP CONSTRAINT django_q_task_has_no_hook;
ALTER TABLE django_q_schedule DROP CONSTRAINT django_q_schedule_stays_empty;
"""


ANSWER = migrations.CreateModel(
    name="Answer",
    fields=[
        (
            "trial",
            models.OneToOneField(
                on_delete=django.db.models.deletion.DO_NOTHING,
                primary_key=True,
                related_name="+",
                serialize=False,
                to="runs_app.trial",
            ),
        ),
        ("category", models.CharField(help_text="Of the item", max_length=120)),
        ("excluded", models.BooleanField(help_text="The item is excluded from its dataset")),
        ("sample_idx", models.IntegerField(help_text="Repetition, from 0")),
        ("status", models.CharField(max_length=10)),
        ("error_class", models.CharField(max_length=40)),
        ("attempts", models.SmallIntegerField()),
        ("from_cache", models.BooleanField()),
        ("answer", models.TextField()),
        ("reasoning", models.TextField()),
        ("parse_error", models.CharField(max_length=40)),
        ("rating", models.IntegerField(null=True)),
        ("truncated", models.BooleanField()),
        ("refused", models.BooleanField()),
        ("served_model", models.CharField(max_length=200)),
        ("served_provider", models.CharField(max_length=80)),
        ("input_tokens", models.IntegerField(null=True)),
        ("output_tokens", models.IntegerField(null=True)),
        ("cost_usd", models.DecimalField(decimal_places=8, max_digits=14, null=True)),
        ("latency_ms", models.IntegerField(null=True)),
    ],
    options={"db_table": "runs_app_answer", "managed": False},
)


class Migration(migrations.Migration):
    dependencies = [
        ("runs_app", "0001_initial"),
        ("lib", "0001_initial"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]
    operations = [
        InstallTriggers("runs_app", "af07995acc30"),
        ANSWER,
        migrations.RunSQL(QUEUE_RUNS_ONLY_TASKS, QUEUE_RUNS_ANYTHING),
    ]
