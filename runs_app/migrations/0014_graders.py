"""A design names the judges of its answers."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs_app", "0013_points"),
    ]

    operations = [
        migrations.AddField(
            model_name="experiment",
            name="graders",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="Names of graders: judge models that grade the answers once they are in",
            ),
        ),
    ]
