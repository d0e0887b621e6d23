"""Snapshots of experiments, whose rows never change."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


FREEZE = """
CREATE TRIGGER frozen BEFORE UPDATE ON grading_app_snapshot
FOR EACH ROW EXECUTE FUNCTION runs_app_guard_frozen('created_by_id');
"""
THAW = "DROP TRIGGER frozen ON grading_app_snapshot;"


class Migration(migrations.Migration):
    dependencies = [
        ("grading_app", "0013_aliases"),
        ("runs_app", "0020_request_tokens"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Snapshot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("label", models.CharField(blank=True, max_length=80)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("digest", models.CharField(max_length=64)),
                ("counts", models.JSONField(help_text="The numbers of its study card")),
                ("size", models.BigIntegerField(help_text="Bytes")),
                (
                    "actor",
                    models.CharField(help_text="The author's name at the time, or the program's", max_length=200),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="snapshots", to="runs_app.experiment"
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.RunSQL(FREEZE, THAW),
    ]
