"""What deleted runs cost stays part of their experiment."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs_app', '0033_on_unreadable'),
    ]

    operations = [
        migrations.CreateModel(
            name='DeletedRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.BigIntegerField(help_text='Key that the run had')),
                ('label', models.CharField(help_text='Its condition and wave', max_length=400)),
                ('trials', models.IntegerField()),
                ('attempts', models.IntegerField()),
                ('spent_usd', models.DecimalField(decimal_places=8, max_digits=16)),
                ('kept_usd', models.DecimalField(decimal_places=8, help_text='Still reserved for its calls of unknown cost, which may be billed', max_digits=16)),
                ('deleted_at', models.DateTimeField(auto_now_add=True)),
                ('experiment', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deleted_runs', to='runs_app.experiment')),
            ],
            options={
                'ordering': ['pk'],
                'constraints': [models.UniqueConstraint(fields=('number',), name='deletedrun_number'), models.CheckConstraint(condition=models.Q(('attempts__gte', 0), ('kept_usd__gte', 0), ('spent_usd__gte', 0), ('trials__gte', 0)), name='deletedrun_counts_nothing_below_zero')],
            },
        ),
    ]
