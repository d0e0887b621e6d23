import datetime
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import grading_app.models.rating
from django.conf import settings
import evalsite.lib.constraints
from django.db import migrations, models

from evalsite.lib.migration_operations import ModelCreation


class Migration(ModelCreation):
    initial = True

    dependencies = [
        ("auth", "__first__"),
        ("datasets_app", "0001_initial"),
        ("runs_app", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="CachedAggregate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="cached_aggregates",
                        to="runs_app.experiment",
                    ),
                ),
                ("name", models.CharField(help_text="The name of the aggregate", max_length=40)),
                ("key", models.CharField(help_text="A hash of the query", max_length=64)),
                ("query", models.JSONField(help_text="The parameters of the computation")),
                ("value", models.JSONField(null=True)),
                (
                    "fingerprint",
                    models.CharField(blank=True, help_text="The fingerprint of the source rows", max_length=64),
                ),
                ("computed_at", models.DateTimeField(help_text="When the source rows were read", null=True)),
                ("requested_at", models.DateTimeField(help_text="When the value was last requested", null=True)),
                ("ended_at", models.DateTimeField(help_text="When a worker last finished or failed", null=True)),
                ("duration_s", models.FloatField(default=0)),
                (
                    "step",
                    models.CharField(
                        blank=True, help_text="The worker's current step. Empty if no worker computes it", max_length=80
                    ),
                ),
                ("problem", models.TextField(blank=True)),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            computed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            duration_s=(-1000000000000.0, 1000000000000.0),
                            ended_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            requested_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="grading_app_cachedaggregate_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("experiment", "name", "key"), name="cachedaggregate_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReportChoices",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="report_choices",
                        to="runs_app.experiment",
                    ),
                ),
                ("left_out", models.JSONField(blank=True, default=list)),
                ("texts", models.JSONField(blank=True, default=dict)),
                ("changed_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            changed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="grading_app_reportchoices_numbers_in_range",
                    )
                ]
            },
        ),
        migrations.CreateModel(
            name="Rubric",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
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
                ("version", models.PositiveIntegerField(default=1, editable=False)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("draft", "Draft"),
                            ("used", "Used, not approved"),
                            ("imported", "Imported"),
                            ("approved", "Approved"),
                            ("archived", "Archived"),
                        ],
                        default="draft",
                        editable=False,
                        max_length=10,
                    ),
                ),
                ("content_hash", models.CharField(editable=False, max_length=64)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("approved_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("score", "Score on a scale"),
                            ("criteria", "Pass or fail per criterion"),
                            ("label", "One label from a list"),
                            ("pairwise", "Better of two answers"),
                            ("writer", "Rubric writer: one rubric per item"),
                        ],
                        default="score",
                        max_length=10,
                    ),
                ),
                (
                    "messages",
                    models.JSONField(
                        help_text='Turns: [{"role": "system", "content": "..."}, {"role": "user", "content": "{{answer}}"}]'
                    ),
                ),
                ("scale_min", models.FloatField(default=0, help_text="Lowest possible score")),
                ("scale_max", models.FloatField(default=1, help_text="Highest possible score")),
                (
                    "criteria",
                    models.JSONField(
                        blank=True, default=list, help_text='[{"name": "correct", "description": "...", "weight": 1}]'
                    ),
                ),
                (
                    "labels",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text='[{"name": "correct", "score": 1}, {"name": "wrong", "score": 0}]',
                    ),
                ),
            ],
            options={
                "ordering": ["name", "-version"],
                "permissions": [("approve_rubric", "Can approve and archive rubrics")],
                "abstract": False,
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
                            scale_max=(-1000000000000.0, 1000000000000.0),
                            scale_min=(-1000000000000.0, 1000000000000.0),
                        ),
                        name="grading_app_rubric_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("name", "version"), name="rubric_name_version"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "approved"), _negated=True),
                            models.Q(models.Q(("content_hash", ""), _negated=True), ("approved_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="grading_app_rubric_approval_is_complete",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("scale_min__lt", models.F("scale_max"))), name="rubric_scale_has_two_points"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["approved", "archived", "draft", "imported", "used"])),
                        name="grading_app_rubric_status_choices",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["criteria", "label", "pairwise", "score", "writer"])),
                        name="grading_app_rubric_kind_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RubricTest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "condition",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rubric_test",
                        to="runs_app.condition",
                    ),
                ),
                (
                    "rubric",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tests", to="grading_app.rubric"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Grader",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        max_length=80,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9_-]*\\Z",
                                "Use small letters, digits, - and _, starting with a letter or digit.",
                            )
                        ],
                    ),
                ),
                (
                    "language_model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="graders", to="runs_app.languagemodel"
                    ),
                ),
                (
                    "rubric",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="graders", to="grading_app.rubric"
                    ),
                ),
                (
                    "sampler",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="graders", to="runs_app.sampler"
                    ),
                ),
                (
                    "text_set",
                    models.ForeignKey(
                        blank=True,
                        help_text="The texts for {{item_rubric}} in the rubric",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="graders",
                        to="runs_app.textset",
                    ),
                ),
                (
                    "on_empty",
                    models.CharField(
                        choices=[
                            ("skip", "Do not judge empty answers"),
                            ("grade", "Judge empty answers"),
                            ("zero", "Lowest score without a call"),
                        ],
                        default="skip",
                        max_length=8,
                        verbose_name="empty answers",
                    ),
                ),
                (
                    "longest_answer",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Characters. Longer answers get the lowest score without a call. Empty: no limit",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("archived_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                "ordering": ["name"],
                "verbose_name": "judge",
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            archived_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="grading_app_grader_numbers_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("on_empty__in", ["grade", "skip", "zero"])),
                        name="grading_app_grader_on_empty_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Panel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        max_length=80,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9_-]*\\Z",
                                "Use small letters, digits, - and _, starting with a letter or digit.",
                            )
                        ],
                    ),
                ),
                (
                    "rule",
                    models.CharField(
                        choices=[("mean", "Mean"), ("median", "Median"), ("majority", "Majority")],
                        default="mean",
                        max_length=10,
                    ),
                ),
                (
                    "quorum",
                    models.PositiveSmallIntegerField(
                        blank=True,
                        help_text="Minimum number of members with a score. Empty: every member must have judged the answer, and unreadable verdicts have no vote",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "graders",
                    models.ManyToManyField(related_name="panels", to="grading_app.grader", verbose_name="judges"),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="grading_app_panel_numbers_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("rule__in", ["majority", "mean", "median"])),
                        name="grading_app_panel_rule_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RatingQueue",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        max_length=80,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9_-]*\\Z",
                                "Use small letters, digits, - and _, starting with a letter or digit.",
                            ),
                            grading_app.models.rating.validate_queue_name,
                        ],
                    ),
                ),
                ("title", models.CharField(help_text="Shown to raters", max_length=200)),
                ("instructions", models.TextField(help_text="Shown to raters before the start and on request")),
                (
                    "dataset",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rating_queues",
                        to="datasets_app.dataset",
                    ),
                ),
                (
                    "subject",
                    models.CharField(
                        choices=[
                            ("items", "The items of the dataset"),
                            ("answers", "The answers of an experiment, without their models"),
                        ],
                        default="items",
                        editable=False,
                        max_length=10,
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        blank=True,
                        help_text="The experiment whose answers are rated",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rating_queues",
                        to="runs_app.experiment",
                    ),
                ),
                (
                    "sample_items",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Number of random items, the same for all conditions. Empty: all items",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                        verbose_name="sample size",
                    ),
                ),
                (
                    "answers_each",
                    models.PositiveSmallIntegerField(
                        default=1,
                        help_text="Number of answers per item and condition",
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000),
                        ],
                        verbose_name="answers per condition",
                    ),
                ),
                (
                    "only_items",
                    models.JSONField(
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="Keys of the items to rate. Empty: all items",
                        verbose_name="items",
                    ),
                ),
                (
                    "sample_seed",
                    models.PositiveIntegerField(
                        default=1, help_text="The same seed draws the same answers", verbose_name="seed"
                    ),
                ),
                (
                    "rubric",
                    models.ForeignKey(
                        blank=True,
                        help_text="Replaces dimensions: raters grade answers by the same rubric as judges",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rating_queues",
                        to="grading_app.rubric",
                    ),
                ),
                (
                    "text_set",
                    models.ForeignKey(
                        blank=True,
                        help_text="The texts that raters see for {{item_rubric}}",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rating_queues",
                        to="runs_app.textset",
                        verbose_name="item rubrics",
                    ),
                ),
                (
                    "raters_wanted",
                    models.PositiveSmallIntegerField(
                        default=10,
                        help_text="Number of people who rate each item on each dimension",
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(10000),
                        ],
                        verbose_name="raters per item",
                    ),
                ),
                (
                    "items_per_rater",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Empty: all that still need ratings",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                    ),
                ),
                (
                    "one_dimension_per_rater",
                    models.BooleanField(default=False, help_text="Dimensions are assigned to raters in equal numbers"),
                ),
                (
                    "in_blocks",
                    models.BooleanField(
                        default=False,
                        help_text="Otherwise raters rate an item on all dimensions before the next item",
                        verbose_name="one dimension at a time",
                    ),
                ),
                (
                    "practice_items",
                    models.PositiveSmallIntegerField(
                        default=0,
                        help_text="Every rater starts with the first items of the dataset. These ratings are not counted",
                    ),
                ),
                ("attention_checks", models.JSONField(blank=True, default=dict)),
                (
                    "status",
                    models.CharField(
                        choices=[("draft", "Draft"), ("open", "Open"), ("closed", "Closed")],
                        default="draft",
                        editable=False,
                        max_length=10,
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rating_queues",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "conditions",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Empty: all conditions",
                        related_name="rating_queues",
                        to="runs_app.condition",
                    ),
                ),
                (
                    "dimensions",
                    models.ManyToManyField(blank=True, related_name="rating_queues", to="runs_app.dimension"),
                ),
            ],
            options={
                "ordering": ["-created_at", "name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="grading_app_ratingqueue_numbers_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("experiment", None), ("subject", "items")),
                            models.Q(("experiment__isnull", False), ("subject", "answers")),
                            _connector="OR",
                        ),
                        name="rating_queue_subject",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("raters_wanted__gte", 1)), name="rating_queue_wants_raters"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("rubric", None), ("subject", "answers"), _connector="OR"),
                        name="rating_queue_rubric_of_answers",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("subject__in", ["answers", "items"])),
                        name="grading_app_ratingqueue_subject_choices",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["closed", "draft", "open"])),
                        name="grading_app_ratingqueue_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RaterAssignment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "queue",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="assignments",
                        to="grading_app.ratingqueue",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rating_assignments",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                (
                    "by_link",
                    models.BooleanField(
                        default=False, help_text="The account was created by an invitation, for this queue only"
                    ),
                ),
                (
                    "alias",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The pseudonym of a rater who joined by link",
                        max_length=40,
                    ),
                ),
                (
                    "dimension",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs_app.dimension",
                    ),
                ),
                ("seed", models.BigIntegerField(help_text="The seed of this rater's order")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("excluded_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["number"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            excluded_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            finished_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            started_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="grading_app_raterassignment_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("queue", "user"), name="rater_once_a_queue"),
                    models.UniqueConstraint(fields=("queue", "number"), name="rater_number_in_queue"),
                ],
            },
        ),
        migrations.CreateModel(
            name="GradeCondition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grade_conditions",
                        to="runs_app.experiment",
                    ),
                ),
                ("grade_condition_id", models.CharField(max_length=255)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("rule", "Rule"),
                            ("judge", "Judge"),
                            ("panel", "Panel of judges"),
                            ("adjudicated", "Adjudication"),
                            ("person", "Rater with a rubric"),
                        ],
                        db_default="rule",
                        default="rule",
                        max_length=12,
                    ),
                ),
                ("scorer", models.CharField(blank=True, help_text="The scorer of a rule", max_length=40)),
                ("parameters", models.JSONField(blank=True, default=dict)),
                (
                    "grader",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="grade_conditions",
                        to="grading_app.grader",
                    ),
                ),
                (
                    "rubric",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="grade_conditions",
                        to="grading_app.rubric",
                    ),
                ),
                (
                    "panel",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="grade_conditions",
                        to="grading_app.panel",
                    ),
                ),
                (
                    "judge_condition",
                    models.OneToOneField(
                        help_text="The condition whose runs make the judge's calls",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grade_condition",
                        to="runs_app.condition",
                    ),
                ),
                (
                    "assignment",
                    models.OneToOneField(
                        help_text="The rater and the queue, for verdicts by a person",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="grade_condition",
                        to="grading_app.raterassignment",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "changes",
                    models.PositiveBigIntegerField(
                        db_default=0,
                        default=0,
                        editable=False,
                        help_text="Number of statements that wrote verdicts, counted by a trigger. A changed number makes cached totals stale",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="grading_app_gradecondition_numbers_in_range",
                    ),
                    models.UniqueConstraint(
                        fields=("experiment", "grade_condition_id"), name="grade_condition_in_experiment"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["adjudicated", "judge", "panel", "person", "rule"])),
                        name="grading_app_gradecondition_kind_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Adjudication",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "condition",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="adjudications",
                        to="grading_app.gradecondition",
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="adjudications",
                        to="runs_app.trial",
                    ),
                ),
                ("score", models.FloatField()),
                ("reason", models.TextField()),
                (
                    "by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            score=(-1000000000000.0, 1000000000000.0),
                        ),
                        name="grading_app_adjudication_numbers_in_range",
                    )
                ],
                "ordering": ["-pk"],
                "indexes": [models.Index(fields=["condition", "trial", "-id"], name="adjudication_last")],
            },
        ),
        migrations.CreateModel(
            name="Grading",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "trial",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="gradings", to="runs_app.trial"
                    ),
                ),
                (
                    "condition",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="gradings",
                        to="grading_app.gradecondition",
                    ),
                ),
                ("score", models.FloatField(null=True)),
                (
                    "score_raw",
                    models.TextField(
                        db_default="", default="", help_text="The text that the grader read from the answer"
                    ),
                ),
                ("parse_ok", models.BooleanField()),
                ("parse_error", models.CharField(db_default="", default="", max_length=40)),
                (
                    "reasoning",
                    models.TextField(db_default="", default="", help_text="The judge's reasoning, unchanged"),
                ),
                (
                    "detail",
                    models.JSONField(
                        help_text="The verdict on each criterion, or the score of each panel member", null=True
                    ),
                ),
                (
                    "judged_by",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        help_text="The judge's call",
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="runs_app.trial",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("judged_by__isnull", False)), fields=["judged_by"], name="grading_by_call"
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            score=(-1000000000000.0, 1000000000000.0),
                        ),
                        name="grading_app_grading_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("condition", "trial"), name="grading_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("parse_error", ""), ("parse_ok", True), ("score__isnull", False)),
                            models.Q(
                                ("parse_ok", False),
                                ("score__isnull", True),
                                models.Q(("parse_error", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="grading_parse_contract",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Preference",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "condition",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="preferences",
                        to="grading_app.gradecondition",
                    ),
                ),
                (
                    "judged_by",
                    models.OneToOneField(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="preference",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "trial_a",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="shown_first",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "trial_b",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="shown_second",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "winner",
                    models.CharField(
                        blank=True,
                        choices=[("a", "The first"), ("b", "The second"), ("tie", "Neither")],
                        help_text="Empty if the verdict is unreadable",
                        max_length=3,
                    ),
                ),
                ("parse_error", models.CharField(blank=True, default="", max_length=40)),
                ("reasoning", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="grading_app_preference_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("condition", "trial_a", "trial_b"), name="preference_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("winner", ""), models.Q(("parse_error", ""), _negated=True)),
                            models.Q(models.Q(("winner", ""), _negated=True), ("parse_error", "")),
                            _connector="OR",
                        ),
                        name="preference_parse_contract",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("winner__in", ["", "a", "b", "tie"])),
                        name="grading_app_preference_winner_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Rating",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "assignment",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ratings",
                        to="grading_app.raterassignment",
                    ),
                ),
                (
                    "item",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="ratings", to="datasets_app.item"
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        help_text="The trial whose answer is rated",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ratings",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "rival",
                    models.ForeignKey(
                        help_text="The answer shown second, for a pair",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "dimension",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ratings",
                        to="runs_app.dimension",
                    ),
                ),
                (
                    "criterion",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="A criterion of the queue's rubric",
                        max_length=80,
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("practice", "Practice"), ("item", "Item"), ("check", "Attention check")],
                        max_length=10,
                    ),
                ),
                ("position", models.PositiveIntegerField(help_text="The position in the rater's order, from 1")),
                ("value", models.FloatField(null=True)),
                ("seconds", models.FloatField(help_text="Seconds from showing the item to the rating", null=True)),
                (
                    "revisions",
                    models.PositiveSmallIntegerField(default=0, help_text="How often the rater undid it"),
                ),
                ("rated_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["assignment", "position"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            rated_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            seconds=(0, 1000000000000.0),
                            value=(-1000000000000.0, 1000000000000.0),
                        ),
                        name="grading_app_rating_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("assignment", "position"), name="rating_place"),
                    models.UniqueConstraint(
                        fields=("assignment", "item", "trial", "rival", "dimension", "criterion"),
                        name="rating_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("rated_at", None), ("seconds", None), ("value", None)),
                            models.Q(("rated_at__isnull", False), ("seconds__isnull", False), ("value__isnull", False)),
                            _connector="OR",
                        ),
                        name="rating_given_or_not",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["check", "item", "practice"])),
                        name="grading_app_rating_kind_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RaterInvitation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "queue",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="invitations",
                        to="grading_app.ratingqueue",
                    ),
                ),
                (
                    "assignment",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="invitations",
                        to="grading_app.raterassignment",
                    ),
                ),
                ("token_hash", models.CharField(max_length=64, unique=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            expires_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            used_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="grading_app_raterinvitation_numbers_in_range",
                    )
                ],
                "ordering": ["-created_at", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="RatedAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "queue",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="answers",
                        to="grading_app.ratingqueue",
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="rated_in", to="runs_app.trial"
                    ),
                ),
                (
                    "rival",
                    models.ForeignKey(
                        help_text="The second answer of a pair",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "item",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="datasets_app.item",
                    ),
                ),
                ("kind", models.CharField(max_length=10)),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("queue", "trial", "rival"), name="answer_once_a_queue", nulls_distinct=False
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ShareLink",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="share_links",
                        to="runs_app.experiment",
                    ),
                ),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("report", "The report"),
                            ("leaderboard", "The leaderboard"),
                            ("experiment", "The whole experiment: design, leaderboard, report and figures"),
                        ],
                        default="report",
                        max_length=12,
                    ),
                ),
                ("label", models.CharField(blank=True, help_text="The recipient of the link", max_length=80)),
                (
                    "shows_costs",
                    models.BooleanField(default=False, help_text="If off, its pages do not show the cost of calls"),
                ),
                ("token_hash", models.CharField(editable=False, max_length=64, unique=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["-pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            expires_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            revoked_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="grading_app_sharelink_numbers_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("scope__in", ["experiment", "leaderboard", "report"])),
                        name="grading_app_sharelink_scope_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="StoredRows",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="stored_rows",
                        to="runs_app.experiment",
                    ),
                ),
                ("digest", models.CharField(max_length=64)),
                ("size", models.BigIntegerField(help_text="Bytes")),
                ("counts", models.JSONField(help_text="The numbers in the study card")),
                ("counters", models.JSONField()),
                ("headline", models.JSONField(null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            size=(0, None),
                        ),
                        name="grading_app_storedrows_numbers_in_range",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Snapshot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="snapshots", to="runs_app.experiment"
                    ),
                ),
                ("label", models.CharField(blank=True, max_length=80)),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("digest", models.CharField(max_length=64)),
                ("counts", models.JSONField(help_text="The numbers in the study card")),
                ("size", models.BigIntegerField(help_text="Bytes")),
                (
                    "actor",
                    models.CharField(
                        help_text="The name of the author, or of the program, at that time", max_length=200
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            size=(0, None),
                        ),
                        name="grading_app_snapshot_numbers_in_range",
                    )
                ],
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="StoredDisagreement",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "aggregate", "unit", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "aggregate",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="disagreements",
                        to="grading_app.cachedaggregate",
                    ),
                ),
                ("unit", models.BigIntegerField(help_text="An answer or an item")),
                ("n", models.PositiveSmallIntegerField(help_text="Number of raters of the unit")),
                ("minus_range", models.FloatField()),
                ("minus_variance", models.FloatField()),
                (
                    "rank_by_range",
                    models.PositiveBigIntegerField(
                        help_text="Rank in the comparison, from 1. Stored because counting is slow"
                    ),
                ),
                ("rank_by_variance", models.PositiveBigIntegerField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            minus_range=(-1000000000000.0, 1000000000000.0), minus_variance=(-1e24, 1e24)
                        ),
                        name="grading_app_storeddisagreement_numbers_in_range",
                    )
                ],
                "indexes": [
                    models.Index(fields=["aggregate", "minus_range", "unit"], name="disagreement_by_range"),
                    models.Index(fields=["aggregate", "minus_variance", "unit"], name="disagreement_by_variance"),
                ],
            },
        ),
        migrations.CreateModel(
            name="SupersededVerdict",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "condition",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="superseded",
                        to="grading_app.gradecondition",
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="superseded",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "rival",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        help_text="The answer shown second, for a preference",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="runs_app.trial",
                    ),
                ),
                ("content", models.JSONField(help_text="All columns of the former row")),
                ("superseded_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("rival__isnull", False)), fields=["rival"], name="superseded_compared"
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            superseded_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="grading_app_supersededverdict_numbers_in_range",
                    )
                ],
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="BlindReading",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="blind_readings",
                        to="runs_app.experiment",
                    ),
                ),
                (
                    "reader",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("order", models.JSONField(help_text="Keys of the models in random order: A, B, C")),
                ("started_at", models.DateTimeField(auto_now_add=True)),
                ("revealed_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            revealed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            started_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="grading_app_blindreading_numbers_in_range",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("revealed_at", None)),
                        fields=("experiment", "reader"),
                        name="blindreading_one_at_a_time",
                    ),
                ],
            },
        ),
    ]
