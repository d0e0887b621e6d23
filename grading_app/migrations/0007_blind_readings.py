"""Blind readings, with the trigger that keeps their record."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from evalsite.lib.triggers import InstallTriggers


class Migration(migrations.Migration):

    dependencies = [
        ('grading_app', '0006_report_choices_and_share_links'),
        ('runs_app', '0006_languagemodel_groups'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='BlindReading',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('order', models.JSONField(help_text='Keys of the models, in a random order: A, B, C')),
                ('started_at', models.DateTimeField(auto_now_add=True)),
                ('revealed_at', models.DateTimeField(null=True)),
                ('experiment', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='blind_readings', to='runs_app.experiment')),
                ('reader', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['pk'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('revealed_at', None)), fields=('experiment', 'reader'), name='blindreading_one_at_a_time')],
            },
        ),
        InstallTriggers("grading_app", "1fb187bcd381"),
    ]
