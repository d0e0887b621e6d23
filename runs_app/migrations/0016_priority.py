"""Experiments that share an endpoint have an order."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs_app", "0015_kinds_of_answers"),
    ]

    operations = [
        migrations.AddField(
            model_name="experiment",
            name="priority",
            field=models.SmallIntegerField(
                db_default=0,
                default=0,
                help_text="Where experiments share an endpoint, a higher one goes first: -9 to 9",
                validators=[
                    django.core.validators.MinValueValidator(-9),
                    django.core.validators.MaxValueValidator(9),
                ],
            ),
        ),
    ]
