import datetime
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
import evalsite.lib.constraints
from django.db import migrations, models

from evalsite.lib.migration_operations import ModelCreation


class Migration(ModelCreation):
    initial = True

    dependencies = [
        ("auth", "__first__"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.CreateModel(
            name="Asset",
            fields=[
                ("sha256", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("format", models.CharField(choices=[("jpeg", "JPEG"), ("png", "PNG")], max_length=4)),
                ("width", models.PositiveIntegerField()),
                ("height", models.PositiveIntegerField()),
                ("size", models.PositiveIntegerField(help_text="Bytes")),
                ("original_name", models.CharField(blank=True, max_length=255)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="datasets_app_asset_numbers_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("format__in", ["jpeg", "png"])), name="datasets_app_asset_format_choices"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Dataset",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "slug",
                    models.CharField(
                        max_length=80,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9_-]*\\Z",
                                "Use small letters, digits, - and _, starting with a letter or digit.",
                            )
                        ],
                    ),
                ),
                ("version", models.PositiveIntegerField(default=1)),
                ("title", models.CharField(blank=True, max_length=200)),
                ("description", models.TextField(blank=True)),
                (
                    "status",
                    models.CharField(
                        choices=[("draft", "Draft"), ("approved", "Approved"), ("archived", "Archived")],
                        default="draft",
                        editable=False,
                        max_length=10,
                    ),
                ),
                ("source", models.TextField(blank=True, help_text="A citation or web address")),
                ("licence", models.CharField(blank=True, max_length=200)),
                ("source_name", models.CharField(blank=True, help_text="Name of the imported file", max_length=255)),
                ("source_sha256", models.CharField(blank=True, help_text="Hash of the imported file", max_length=64)),
                ("mapping", models.JSONField(blank=True, default=dict, help_text="The source column of each field")),
                (
                    "recipe",
                    models.JSONField(blank=True, default=dict, help_text="How a sample was drawn: strategy, n, seed"),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="children",
                        to="datasets_app.dataset",
                    ),
                ),
                (
                    "content_hash",
                    models.CharField(
                        blank=True, editable=False, help_text="Hash of the active items at approval", max_length=64
                    ),
                ),
                ("item_count", models.PositiveIntegerField(default=0, editable=False)),
                ("active_count", models.PositiveIntegerField(default=0, editable=False)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "starred_by",
                    models.ManyToManyField(
                        editable=False,
                        help_text="Favourite of",
                        related_name="starred_datasets",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("approved_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                "ordering": ["slug", "-version"],
                "permissions": [("approve_dataset", "Can approve and archive datasets")],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            approved_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="datasets_app_dataset_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("slug", "version"), name="dataset_slug_version"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "approved"), _negated=True),
                            models.Q(models.Q(("content_hash", ""), _negated=True), ("approved_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="datasets_app_dataset_approval_is_complete",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["approved", "archived", "draft"])),
                        name="datasets_app_dataset_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Item",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "dataset",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="items", to="datasets_app.dataset"
                    ),
                ),
                ("key", models.CharField(max_length=200)),
                ("position", models.PositiveIntegerField(default=0, help_text="Order of import, from 0")),
                ("input", models.TextField(blank=True)),
                (
                    "image",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="items",
                        to="datasets_app.asset",
                    ),
                ),
                ("target", models.TextField(blank=True)),
                ("choices", models.JSONField(blank=True, default=list)),
                ("grading_scheme", models.TextField(blank=True)),
                (
                    "category",
                    models.CharField(blank=True, db_index=True, help_text="Stratum for sampling", max_length=200),
                ),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("excluded", models.BooleanField(default=False)),
                ("note", models.TextField(blank=True, help_text="Why it is excluded")),
            ],
            options={
                "ordering": ["position", "pk"],
                "indexes": [
                    models.Index(fields=["dataset", "position", "id"], name="item_in_order"),
                    django.contrib.postgres.indexes.GinIndex(
                        django.contrib.postgres.search.SearchVector(
                            django.db.models.functions.text.Concat(
                                django.db.models.functions.text.Replace("key", models.Value("-"), models.Value(" ")),
                                models.Value(" "),
                                django.db.models.functions.text.Left("input", 4000),
                            ),
                            config="simple",
                        ),
                        name="item_words",
                    ),
                ],
                "constraints": [models.UniqueConstraint(fields=("dataset", "key"), name="item_key_in_dataset")],
            },
        ),
        migrations.CreateModel(
            name="Norm",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "item",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="norms", to="datasets_app.item"
                    ),
                ),
                ("dimension", models.CharField(max_length=80)),
                ("mean", models.FloatField()),
                ("sd", models.FloatField(blank=True, null=True)),
                ("n", models.PositiveIntegerField(blank=True, null=True)),
            ],
            options={
                "ordering": ["dimension"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            mean=(-1000000000000.0, 1000000000000.0), sd=(0, 1000000000000.0)
                        ),
                        name="datasets_app_norm_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("item", "dimension"), name="norm_item_dimension"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ParametricSpace",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "dataset",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="parametric_space",
                        to="datasets_app.dataset",
                    ),
                ),
                ("file", models.TextField(help_text="The space in YAML or JSON, unchanged")),
                (
                    "task_files",
                    models.JSONField(blank=True, default=dict, help_text="Task files that the space names, by name"),
                ),
                (
                    "definition",
                    models.TextField(
                        help_text="Points, seed and generator versions as JSON. It generates the same items again"
                    ),
                ),
                ("definition_hash", models.CharField(db_index=True, max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="datasets_app_parametricspace_numbers_in_range",
                    )
                ]
            },
        ),
        migrations.CreateModel(
            name='BackgroundJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject', models.CharField(help_text="What it is for: an upload, or an experiment's snapshot", max_length=80)),
                ('kind', models.CharField(help_text='What to do, such as import', max_length=20)),
                ('task', models.CharField(help_text='Dotted name of the task that performs it', max_length=100)),
                ('timeout_s', models.PositiveIntegerField(help_text='Time limit of the task')),
                ('parameters', models.JSONField(default=dict)),
                ('actor', models.CharField(help_text='Name of the requester at the time of the request', max_length=200)),
                ('requested_at', models.DateTimeField(auto_now_add=True)),
                ('started_at', models.DateTimeField(help_text='When a worker started it', null=True)),
                ('step', models.CharField(blank=True, max_length=20)),
                ('saving_since', models.DateTimeField(help_text='When a worker first began to save, also a lost one', null=True)),
                ('done', models.PositiveBigIntegerField(default=0, help_text='Rows, cases or bytes so far')),
                ('total', models.PositiveBigIntegerField(default=0, help_text='Rows, cases or bytes in all; 0 if unknown')),
                ('ended_at', models.DateTimeField(null=True)),
                ('problem', models.TextField(blank=True, help_text='Why it failed')),
                ('result', models.JSONField(default=dict, help_text='What it made, such as the name of a dataset')),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-pk'],
                'indexes': [models.Index(fields=['subject', '-id'], name='backgroundjob_of_subject')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('subject',), name='backgroundjob_one_open'), models.CheckConstraint(
                    condition=evalsite.lib.constraints.AllInRange(
                        ended_at=(
                            datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                            datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                        ),
                        requested_at=(
                            datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                            datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                        ),
                        saving_since=(
                            datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                            datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                        ),
                        started_at=(
                            datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                            datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                        ),
                    ),
                    name="datasets_app_backgroundjob_numbers_in_range",
                )],
            },
        ),
    ]
