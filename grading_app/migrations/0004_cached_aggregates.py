"""Keep the results of background work in one table. Former results are dropped; pages request them again."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("grading_app", "0003_roles"),
        ("runs_app", "0002_triggers"),
    ]

    operations = [
        migrations.DeleteModel("Split"),
        migrations.DeleteModel("Comparison"),
        migrations.DeleteModel("Sums"),
        migrations.CreateModel(
            name='CachedAggregate',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='Of the aggregate', max_length=40)),
                ('key', models.CharField(help_text='A hash of the query', max_length=64)),
                ('query', models.JSONField(help_text='From which a worker reads what to compute')),
                ('value', models.JSONField(null=True)),
                ('fingerprint', models.CharField(blank=True, help_text='Of the rows behind the value', max_length=64)),
                ('computed_at', models.DateTimeField(help_text='When the rows behind the value were read', null=True)),
                ('asked_at', models.DateTimeField(help_text='When a worker was last asked for it', null=True)),
                ('ended_at', models.DateTimeField(help_text='When a worker last computed it, or failed', null=True)),
                ('took_s', models.FloatField(default=0)),
                ('step', models.CharField(blank=True, help_text='The present step of a worker; empty without one', max_length=80)),
                ('problem', models.TextField(blank=True)),
                ('experiment', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='cached_aggregates', to='runs_app.experiment')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='Split',
            fields=[
                ('pk', models.CompositePrimaryKey('aggregate', 'unit', blank=True, editable=False, primary_key=True, serialize=False)),
                ('unit', models.BigIntegerField(help_text='An answer or an item')),
                ('n', models.PositiveSmallIntegerField(help_text='How many rated it')),
                ('minus_range', models.FloatField()),
                ('minus_variance', models.FloatField()),
                ('place_by_range', models.PositiveBigIntegerField(help_text='Among all of the comparison, from 1: too many to count')),
                ('place_by_variance', models.PositiveBigIntegerField()),
                ('aggregate', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='splits', to='grading_app.cachedaggregate')),
            ],
        ),
        migrations.AddConstraint(
            model_name='cachedaggregate',
            constraint=models.UniqueConstraint(fields=('experiment', 'name', 'key'), name='cachedaggregate_once'),
        ),
        migrations.AddIndex(
            model_name='split',
            index=models.Index(fields=['aggregate', 'minus_range', 'unit'], name='split_by_range'),
        ),
        migrations.AddIndex(
            model_name='split',
            index=models.Index(fields=['aggregate', 'minus_variance', 'unit'], name='split_by_variance'),
        ),
    ]
