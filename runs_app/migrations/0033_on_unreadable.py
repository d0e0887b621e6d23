"""A design says what becomes of an answer in which no rating can be read."""

from django.db import migrations, models

from runs_app.models.bounded import RangeConstraint


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0032_paused_by_budget")]

    operations = [
        migrations.AddField(
            model_name="experiment",
            name="on_unreadable",
            field=models.CharField(
                choices=[
                    ("keep", "Keep it, as an answer without a rating"),
                    ("rerun", "Ask again, as after an error that passes"),
                ],
                db_default="keep",
                default="keep",
                help_text="What becomes of a trial in whose answer no rating can be read",
                max_length=10,
                verbose_name="unreadable answers",
            ),
        ),
        migrations.AddConstraint(
            model_name="experiment",
            constraint=RangeConstraint(
                condition=models.Q(on_unreadable__in=["keep", "rerun"]), name="experiment_on_unreadable_is_known"
            ),
        ),
    ]
