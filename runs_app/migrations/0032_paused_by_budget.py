"""A run that the budget paused is marked: once there is room again, its reason is no longer true."""

from django.db import migrations, models

MARK = """
UPDATE runs_app_run SET paused_by_budget = true WHERE status = 'paused' AND stop_reason LIKE 'The budget of %';
SET CONSTRAINTS ALL IMMEDIATE;
"""


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0031_sources_and_routes")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="paused_by_budget",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="It was paused since the budget had no room",
            ),
        ),
        migrations.RunSQL(MARK, migrations.RunSQL.noop),
    ]
