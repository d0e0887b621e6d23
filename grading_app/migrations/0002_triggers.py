"""The triggers and the view of grading_app, declared in grading_app/triggers.sql."""

from django.db import migrations, models

from evalsite.lib.migration_operations import InstallTriggers


ANSWER_SCORE = migrations.CreateModel(
    name="AnswerScore",
    fields=[
        (
            "pk",
            models.CompositePrimaryKey(
                "trial_id", "grader_kind", "grader_id", blank=True, editable=False, primary_key=True, serialize=False
            ),
        ),
        ("grader_kind", models.CharField(max_length=12)),
        ("grader_id", models.BigIntegerField()),
        ("score", models.FloatField(null=True)),
        ("score_raw", models.TextField(help_text="The text that the grader read from the answer", null=True)),
        (
            "is_graded",
            models.BooleanField(help_text="The grader has seen the answer, whether a score could be read or not"),
        ),
        ("missing", models.CharField(help_text="Why there is no score; empty with a score", max_length=20)),
        ("category", models.CharField(help_text="Of the item", max_length=120)),
        ("sample_idx", models.IntegerField(help_text="Repetition, from 0")),
        ("status", models.CharField(help_text="Of the answer", max_length=10)),
    ],
    options={"db_table": "grading_app_answerscore", "managed": False},
)


class Migration(migrations.Migration):
    # The view reads the view of runs_app, which its triggers.sql declares.
    dependencies = [("grading_app", "0001_initial"), ("runs_app", "0002_triggers"), ("lib", "0001_initial")]
    operations = [InstallTriggers("grading_app", "04f878c2cf04"), ANSWER_SCORE]
