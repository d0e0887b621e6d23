"""What failed before a run was started again does not stop it once more."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs_app', '0016_priority'),
    ]

    operations = [
        migrations.AddField(
            model_name='run',
            name='attempts_before',
            field=models.IntegerField(db_default=0, default=0, editable=False, help_text='Attempts when it was last started: those count no more ...'),
        ),
        migrations.AddField(
            model_name='run',
            name='permanent_before',
            field=models.IntegerField(db_default=0, default=0, editable=False, help_text='... towards stopping itself, nor do those that failed'),
        ),
    ]
