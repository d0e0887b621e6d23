"""Each split knows its place: to count those before it takes long among many. What is kept is worked out again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("grading_app", "0014_snapshots")]

    operations = [
        migrations.RunSQL("DELETE FROM grading_app_split; DELETE FROM grading_app_comparison", migrations.RunSQL.noop),
        migrations.AddField(
            "split",
            "place_by_range",
            models.PositiveBigIntegerField(help_text="Among all of the comparison, from 1: too many to count"),
            preserve_default=False,
        ),
        migrations.AddField("split", "place_by_variance", models.PositiveBigIntegerField(), preserve_default=False),
    ]
