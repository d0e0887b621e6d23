"""Store the choices of a report's author, and links that share a part of an experiment."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('grading_app', '0005_queue_items'),
        ('runs_app', '0005_annotation_triggers'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ReportChoices',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('left_out', models.JSONField(blank=True, default=list)),
                ('texts', models.JSONField(blank=True, default=dict)),
                ('changed_at', models.DateTimeField(auto_now=True)),
                ('experiment', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='report_choices', to='runs_app.experiment')),
            ],
        ),
        migrations.CreateModel(
            name='ShareLink',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(choices=[('report', 'The report'), ('leaderboard', 'The leaderboard'), ('experiment', 'The whole experiment: design, leaderboard, report and figures')], default='report', max_length=12)),
                ('label', models.CharField(blank=True, help_text='For whom it is', max_length=80)),
                ('token_hash', models.CharField(editable=False, max_length=64, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField()),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('experiment', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='share_links', to='runs_app.experiment')),
            ],
            options={
                'ordering': ['-pk'],
                'constraints': [models.CheckConstraint(condition=models.Q(('scope__in', ['experiment', 'leaderboard', 'report'])), name='grading_app_sharelink_scope_choices')],
            },
        ),
    ]
