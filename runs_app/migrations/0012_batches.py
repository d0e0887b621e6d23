import uuid
from decimal import Decimal

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs_app", "0011_worker_pace"),
    ]

    operations = [
        migrations.AddField(
            model_name="endpoint",
            name="batch_api",
            field=models.CharField(
                choices=[
                    ("none", "None"),
                    ("openai", "OpenAI's files and batches"),
                    ("anthropic", "Anthropic's message batches"),
                ],
                default="none",
                help_text="For experiments that may wait",
                max_length=10,
                verbose_name="batch API",
            ),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="batch_max_open",
            field=models.PositiveIntegerField(
                default=4,
                help_text="At most, over all runs",
                validators=[django.core.validators.MinValueValidator(1)],
                verbose_name="open batches",
            ),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="batch_max_requests",
            field=models.PositiveIntegerField(
                default=5000,
                help_text="At most, in one batch",
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(50000),
                ],
                verbose_name="calls a batch",
            ),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="in_batches",
            field=models.IntegerField(default=0, editable=False, help_text="Trials that batches hold, not in flight"),
        ),
        migrations.AddField(
            model_name="experiment",
            name="batch",
            field=models.BooleanField(
                default=False,
                help_text="Hand calls over in batches where the endpoint takes them: at half the price, within a day",
            ),
        ),
        migrations.AddField(
            model_name="languagemodel",
            name="batch_discount",
            field=models.DecimalField(
                decimal_places=3,
                default=Decimal("0.5"),
                help_text="Share of these prices that a call in a batch saves",
                max_digits=4,
                validators=[
                    django.core.validators.MinValueValidator(Decimal("0")),
                    django.core.validators.MaxValueValidator(Decimal("1")),
                ],
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="is_batched",
            field=models.BooleanField(default=False, editable=False, help_text="Its trials go out in batches"),
        ),
        migrations.CreateModel(
            name="ProviderBatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("preparing", "Preparing"),
                            ("submitting", "Submitting"),
                            ("submitted", "Submitted"),
                            ("collecting", "Collecting"),
                            ("cancelling", "Cancelling"),
                            ("collected", "Collected"),
                            ("cancelled", "Cancelled"),
                            ("failed", "Failed"),
                            ("expired", "Expired"),
                        ],
                        default="preparing",
                        editable=False,
                        max_length=10,
                    ),
                ),
                (
                    "n_requests",
                    models.IntegerField(default=0, help_text="Trials it was made of; then calls it was sent with"),
                ),
                ("n_answered", models.IntegerField(default=0)),
                ("n_failed", models.IntegerField(default=0, help_text="Calls that ended with an error")),
                (
                    "reserved_usd",
                    models.DecimalField(
                        decimal_places=8, default=0, help_text="For all of it, when made", max_digits=16
                    ),
                ),
                ("spent_usd", models.DecimalField(decimal_places=8, default=0, max_digits=16)),
                (
                    "discount",
                    models.DecimalField(
                        decimal_places=3, default=0, help_text="Share of the price it saves", max_digits=4
                    ),
                ),
                (
                    "input_file",
                    models.CharField(blank=True, help_text="The provider's id of what was uploaded", max_length=200),
                ),
                (
                    "provider_id",
                    models.CharField(blank=True, help_text="The provider's id of the batch", max_length=200),
                ),
                (
                    "provider_status",
                    models.CharField(blank=True, help_text="The provider's word for it", max_length=40),
                ),
                (
                    "provider_counts",
                    models.JSONField(default=dict, help_text="Calls as the provider counts them"),
                ),
                (
                    "output_files",
                    models.JSONField(default=list, help_text="The provider's ids of what is to be collected"),
                ),
                (
                    "gone_by",
                    models.DateTimeField(
                        help_text="A submission whose answer was lost was not made if it cannot be found after this",
                        null=True,
                    ),
                ),
                ("claim", models.UUIDField(editable=False, help_text="Of the worker that is at it", null=True)),
                ("lease_until", models.DateTimeField(editable=False, null=True)),
                (
                    "tries",
                    models.SmallIntegerField(default=0, help_text="Failures in a row of what is to be done next"),
                ),
                ("error", models.TextField(blank=True, help_text="Of the last of them")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("submitted_at", models.DateTimeField(null=True)),
                ("last_polled_at", models.DateTimeField(null=True)),
                (
                    "next_poll_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, help_text="When there is something to do or to ask"
                    ),
                ),
                ("expires_at", models.DateTimeField(help_text="The provider answers no more after this", null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "endpoint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="batches", to="runs_app.endpoint"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="batches", to="runs_app.run"
                    ),
                ),
                (
                    "worker",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="runs_app.worker",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "provider batches",
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            ("status__in", ["preparing", "submitting", "submitted", "collecting", "cancelling"])
                        ),
                        fields=["next_poll_at"],
                        name="batch_due",
                    )
                ],
            },
        ),
    ]
