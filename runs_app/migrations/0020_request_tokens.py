"""What is set aside for a call can be worked out anew when a price changes: from the tokens of the largest request."""

from django.db import migrations, models

# Of runs that were planned before: what was expected of a call, which is its largest request and a usual answer.
BOUND = "UPDATE runs_app_run SET request_tokens = reserve_tokens"


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0019_points_of_ratings")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="request_tokens",
            field=models.PositiveIntegerField(
                db_default=0, default=0, editable=False, help_text="Of its largest request, at most"
            ),
        ),
        migrations.RunSQL(BOUND, migrations.RunSQL.noop),
    ]
