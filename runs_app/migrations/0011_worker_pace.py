from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0010_ledger")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="per_minute",
            field=models.FloatField(default=0, help_text="Results written, over the last minute"),
        ),
    ]
