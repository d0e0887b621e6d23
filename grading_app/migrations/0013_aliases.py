"""Raters who come by a link go by an alias."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('grading_app', '0012_batches_in_the_admin'),
    ]

    operations = [
        migrations.AddField(
            model_name='raterassignment',
            name='alias',
            field=models.CharField(blank=True, db_default='', default='', help_text='What a rater who came by a link goes by', max_length=40),
        ),
    ]
