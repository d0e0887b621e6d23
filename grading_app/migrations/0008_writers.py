"""A rubric may be the template by which a model writes the rubrics of items."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("grading_app", "0007_words_stay")]

    operations = [
        migrations.AlterField(
            model_name="rubric",
            name="kind",
            field=models.CharField(
                choices=[
                    ("score", "A score on a scale"),
                    ("criteria", "Pass or fail on each of several criteria"),
                    ("label", "One label out of a list"),
                    ("pairwise", "The better one of two answers"),
                    ("writer", "No verdict: it writes a rubric for each item"),
                ],
                default="score",
                max_length=10,
            ),
        ),
    ]
