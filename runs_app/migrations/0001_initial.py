import datetime
import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.text
import django.db.models.lookups
import django.utils.timezone
import evalsite.lib.constraints
import runs_app.models.bounded
import runs_app.models.endpoints
import runs_app.models.notifications
import uuid
from decimal import Decimal
from django.conf import settings
from django.db import migrations, models

from evalsite.lib.migration_operations import ModelCreation


class Migration(ModelCreation):
    initial = True

    dependencies = [
        ("auth", "__first__"),
        ("datasets_app", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(help_text="host:pid:start", max_length=200, unique=True)),
                ("host", models.CharField(max_length=120)),
                ("pid", models.IntegerField()),
                ("version", models.CharField(blank=True, max_length=40)),
                ("in_flight", models.IntegerField(default=0)),
                ("recorded", models.BigIntegerField(default=0, help_text="Results recorded since the worker started")),
                ("per_minute", models.FloatField(default=0, help_text="Results recorded in the last minute")),
                (
                    "trouble",
                    models.CharField(blank=True, help_text="Why the database records no results now", max_length=200),
                ),
                (
                    "is_gateway",
                    models.BooleanField(
                        default=False, help_text="Records the calls of programs, and claims no trials"
                    ),
                ),
                ("started_at", models.DateTimeField(auto_now_add=True)),
                ("seen_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("stopped_at", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            in_flight=(0, None),
                            per_minute=(-1000000000000.0, 1000000000000.0),
                            pid=(0, None),
                            recorded=(0, None),
                            seen_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            started_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            stopped_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="runs_app_worker_numbers_in_range",
                    )
                ],
                "ordering": ["-seen_at"],
            },
        ),
        migrations.CreateModel(
            name="Dimension",
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
                ("title", models.CharField(blank=True, max_length=120)),
                ("instructions", models.TextField()),
                (
                    "scale_min",
                    models.IntegerField(
                        default=1, validators=[runs_app.models.bounded.InRange("dimension", "scale_min")]
                    ),
                ),
                (
                    "scale_max",
                    models.IntegerField(
                        default=7, validators=[runs_app.models.bounded.InRange("dimension", "scale_max")]
                    ),
                ),
                (
                    "labels",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text='A label for each point: {"1": "Very low", "7": "Very high"}',
                    ),
                ),
            ],
            options={
                "ordering": ["name", "-version"],
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
                        ),
                        name="runs_app_dimension_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("name", "version"), name="dimension_name_version"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "approved"), _negated=True),
                            models.Q(models.Q(("content_hash", ""), _negated=True), ("approved_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="runs_app_dimension_approval_is_complete",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("scale_min__lt", models.F("scale_max"))),
                        name="dimension_scale_has_two_points",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("scale_min__gte", -1000000), ("scale_min__lte", 1000000)),
                        name="dimension_scale_min_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("scale_max__gte", -1000000), ("scale_max__lte", 1000000)),
                        name="dimension_scale_max_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["approved", "archived", "draft", "imported", "used"])),
                        name="runs_app_dimension_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Endpoint",
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
                    "provider",
                    models.CharField(
                        choices=[
                            ("openai", "OpenAI, or a server that speaks its API"),
                            ("bedrock", "Amazon Bedrock"),
                            ("anthropic", "Anthropic"),
                            ("azure", "Azure OpenAI"),
                            ("deepseek", "DeepSeek"),
                            ("fireworks_ai", "Fireworks"),
                            ("gemini", "Google Gemini"),
                            ("vertex_ai", "Google Vertex AI"),
                            ("groq", "Groq"),
                            ("mistral", "Mistral"),
                            ("ollama_chat", "Ollama"),
                            ("openrouter", "OpenRouter"),
                            ("together_ai", "Together"),
                            ("hosted_vllm", "vLLM"),
                            ("xai", "xAI"),
                        ],
                        default="openai",
                        max_length=80,
                    ),
                ),
                (
                    "base_url",
                    models.CharField(
                        blank=True,
                        help_text="Empty: the provider's default address",
                        max_length=500,
                        verbose_name="base URL",
                    ),
                ),
                (
                    "key_env",
                    models.CharField(
                        blank=True,
                        help_text="Environment variable that holds the API key: OPENAI_API_KEY, or EVALSITE_KEY_ and a name",
                        max_length=80,
                        validators=[runs_app.models.endpoints.validate_key_name],
                        verbose_name="key variable",
                    ),
                ),
                (
                    "max_concurrency",
                    models.PositiveIntegerField(
                        default=16,
                        help_text="Calls in flight over all workers",
                        validators=[runs_app.models.bounded.InRange("endpoint", "max_concurrency")],
                    ),
                ),
                (
                    "is_free",
                    models.BooleanField(
                        default=False,
                        help_text="Calls cost nothing, for example on your own server",
                        verbose_name="free",
                    ),
                ),
                ("is_active", models.BooleanField(default=True, verbose_name="active")),
                (
                    "requests_per_minute",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[runs_app.models.bounded.InRange("endpoint", "requests_per_minute")],
                    ),
                ),
                (
                    "tokens_per_minute",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[runs_app.models.bounded.InRange("endpoint", "tokens_per_minute")],
                    ),
                ),
                (
                    "requests_per_day",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        validators=[runs_app.models.bounded.InRange("endpoint", "requests_per_day")],
                    ),
                ),
                (
                    "day_zone",
                    models.CharField(
                        default="UTC",
                        help_text="Time zone in which a day starts",
                        max_length=40,
                        validators=[runs_app.models.endpoints.validate_time_zone],
                        verbose_name="time zone of the daily limit",
                    ),
                ),
                (
                    "adaptive",
                    models.BooleanField(default=True, help_text="Adjusts calls in flight to the load of the endpoint"),
                ),
                (
                    "batch_api",
                    models.CharField(
                        choices=[
                            ("none", "None"),
                            ("openai", "OpenAI's files and batches"),
                            ("anthropic", "Anthropic's message batches"),
                        ],
                        default="none",
                        help_text="Experiments can use it",
                        max_length=10,
                        verbose_name="batch API",
                    ),
                ),
                (
                    "batch_max_requests",
                    models.PositiveIntegerField(
                        default=5000,
                        help_text="Maximum per batch",
                        validators=[runs_app.models.bounded.InRange("endpoint", "batch_max_requests")],
                        verbose_name="calls per batch",
                    ),
                ),
                (
                    "batch_max_open",
                    models.PositiveIntegerField(
                        default=4,
                        help_text="Maximum over all runs",
                        validators=[runs_app.models.bounded.InRange("endpoint", "batch_max_open")],
                        verbose_name="open batches",
                    ),
                ),
                (
                    "provider_routes",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="OpenRouter's names of the providers to use. Each retry uses the next one",
                    ),
                ),
                (
                    "local_server",
                    models.CharField(
                        blank=True,
                        choices=[("ollama", "Ollama")],
                        default="",
                        help_text="Unloads a model that stalls (three time-outs in a row)",
                        max_length=10,
                    ),
                ),
                (
                    "allowed_host",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Host of the base URL, in addition to those in EVALSITE_LLM_ALLOWED_HOSTS",
                        max_length=300,
                        verbose_name="host allowed by an operator",
                    ),
                ),
                ("in_flight", models.IntegerField(default=0, editable=False)),
                (
                    "in_batches",
                    models.IntegerField(default=0, editable=False, help_text="Trials that batches hold, not in flight"),
                ),
                (
                    "throttle",
                    models.JSONField(
                        default=dict,
                        editable=False,
                        help_text="State of its rate limiter and its learned concurrency limit",
                    ),
                ),
                (
                    "paused_until",
                    models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="Set after a response with status 429 or an overload",
                        null=True,
                    ),
                ),
                ("pause_reason", models.CharField(blank=True, editable=False, max_length=200)),
                (
                    "route_changed_at",
                    models.DateTimeField(
                        editable=False,
                        help_text="Last change of address, provider or key variable. Set by a trigger",
                        null=True,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            in_batches=(0, None),
                            in_flight=(0, None),
                            paused_until=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            route_changed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="runs_app_endpoint_numbers_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("max_concurrency__gte", 1), ("max_concurrency__lte", 100000)),
                        name="endpoint_max_concurrency_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("requests_per_minute__gte", 1), ("requests_per_minute__lte", 10000000)),
                        name="endpoint_requests_per_minute_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("tokens_per_minute__gte", 1), ("tokens_per_minute__lte", 1000000000)),
                        name="endpoint_tokens_per_minute_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("requests_per_day__gte", 1), ("requests_per_day__lte", 1000000000)),
                        name="endpoint_requests_per_day_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("batch_max_requests__gte", 1), ("batch_max_requests__lte", 50000)),
                        name="endpoint_batch_max_requests_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("batch_max_open__gte", 1), ("batch_max_open__lte", 1000)),
                        name="endpoint_batch_max_open_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(
                            ("key_env", ""),
                            models.Q(
                                ("key_env__regex", "^([A-Z][A-Z0-9_]*_(KEY|TOKEN)|EVALSITE_KEY_[A-Z0-9_]+)$"),
                                models.Q(
                                    (
                                        "key_env__regex",
                                        "^EVALSITE_(?!KEY_)|^(DJANGO|DATABASE|POSTGRES|AWS|SSH|GPG|GITHUB|GH|GITLAB|CI|ACTIONS|DOCKER|KUBE[A-Z]*|SYSTEMD|DBUS|SUDO|HF|HUGGING_?FACE|VAULT|NPM|PYPI|STRIPE|AZURE_STORAGE|CF|CLOUDFLARE)_|^(SECRET_KEY|CREDENTIALS_KEY|SESSION_TOKEN)$",
                                    ),
                                    _negated=True,
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="endpoint_key_env_is_a_key",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "provider__in",
                                [
                                    "anthropic",
                                    "azure",
                                    "bedrock",
                                    "deepseek",
                                    "fireworks_ai",
                                    "gemini",
                                    "groq",
                                    "hosted_vllm",
                                    "mistral",
                                    "ollama_chat",
                                    "openai",
                                    "openrouter",
                                    "together_ai",
                                    "vertex_ai",
                                    "xai",
                                ],
                            ),
                            ("is_active", False),
                            _connector="OR",
                        ),
                        name="runs_app_endpoint_provider_choices",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("batch_api__in", ["anthropic", "none", "openai"])),
                        name="runs_app_endpoint_batch_api_choices",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("local_server__in", ["", "ollama"])),
                        name="runs_app_endpoint_local_server_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="EndpointTick",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "endpoint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="ticks", to="runs_app.endpoint"
                    ),
                ),
                ("at", models.DateTimeField(help_text="Start of the ten seconds")),
                ("concurrency", models.FloatField(help_text="Learned limit at the end of the ten seconds")),
                ("answered", models.IntegerField(default=0)),
                ("overloaded", models.IntegerField(default=0)),
            ],
            options={
                "ordering": ["at"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            answered=(0, None),
                            at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            concurrency=(-1000000000000.0, 1000000000000.0),
                            overloaded=(0, None),
                        ),
                        name="runs_app_endpointtick_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("endpoint", "at"), name="endpoint_tick_at"),
                ],
            },
        ),
        migrations.CreateModel(
            name="LanguageModel",
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
                    "endpoint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="models", to="runs_app.endpoint"
                    ),
                ),
                ("model", models.CharField(help_text="The provider's ID of the model", max_length=200)),
                (
                    "input_price",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=12,
                        null=True,
                        validators=[runs_app.models.bounded.InRange("languagemodel", "input_price")],
                    ),
                ),
                (
                    "output_price",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=12,
                        null=True,
                        validators=[runs_app.models.bounded.InRange("languagemodel", "output_price")],
                    ),
                ),
                (
                    "cache_read_price",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=12,
                        null=True,
                        validators=[runs_app.models.bounded.InRange("languagemodel", "cache_read_price")],
                    ),
                ),
                (
                    "cache_write_price",
                    models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        max_digits=12,
                        null=True,
                        validators=[runs_app.models.bounded.InRange("languagemodel", "cache_write_price")],
                    ),
                ),
                (
                    "max_output_tokens",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Maximum tokens in one answer. Limits the cost of calls without max_tokens",
                        null=True,
                        validators=[runs_app.models.bounded.InRange("languagemodel", "max_output_tokens")],
                    ),
                ),
                (
                    "batch_discount",
                    models.DecimalField(
                        decimal_places=3,
                        default=Decimal("0.5"),
                        help_text="Discount of the batch API, 0 to 1",
                        max_digits=4,
                        validators=[runs_app.models.bounded.InRange("languagemodel", "batch_discount")],
                    ),
                ),
                (
                    "cache_marks",
                    models.BooleanField(
                        default=False,
                        help_text="Marks the shared part of each request for the provider's cache (Anthropic's cache_control)",
                        verbose_name="prompt cache markers",
                    ),
                ),
                ("stalls", models.PositiveSmallIntegerField(default=0, editable=False, help_text="Time-outs in a row")),
                (
                    "price_source",
                    models.CharField(
                        blank=True,
                        help_text="Source of the prices, such as the address of a price list",
                        max_length=200,
                    ),
                ),
                ("price_date", models.DateField(blank=True, help_text="Date of the prices. Empty: today", null=True)),
                ("sees_images", models.BooleanField(default=True)),
                ("structured_output", models.BooleanField(default=True, help_text="Accepts a strict JSON schema")),
                (
                    "schema_refused_at",
                    models.DateTimeField(
                        editable=False,
                        help_text="Its provider refused a strict JSON schema, so calls are made without one",
                        null=True,
                    ),
                ),
                (
                    "schema_refusal",
                    models.CharField(blank=True, db_default="", default="", editable=False, max_length=200),
                ),
                (
                    "groups",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Tags for filters of the leaderboard, separated by spaces, such as size:large arch:moe",
                        max_length=200,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^\\S+( \\S+)*\\Z", "Separate groups by single spaces."
                            )
                        ],
                    ),
                ),
                ("is_active", models.BooleanField(default=True, verbose_name="active")),
                (
                    "route_changed_at",
                    models.DateTimeField(
                        editable=False,
                        help_text="Time of the last change of ID or endpoint. Set by a trigger",
                        null=True,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            price_date=(datetime.date(1970, 1, 1), datetime.date(9998, 12, 31)),
                            route_changed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            schema_refused_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="runs_app_languagemodel_numbers_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("input_price__gte", 0), ("input_price__lte", 100000)),
                        name="languagemodel_input_price_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("output_price__gte", 0), ("output_price__lte", 100000)),
                        name="languagemodel_output_price_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("cache_read_price__gte", 0), ("cache_read_price__lte", 100000)),
                        name="languagemodel_cache_read_price_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("cache_write_price__gte", 0), ("cache_write_price__lte", 100000)),
                        name="languagemodel_cache_write_price_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("max_output_tokens__gte", 1), ("max_output_tokens__lte", 10000000)),
                        name="languagemodel_max_output_tokens_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("batch_discount__gte", 0), ("batch_discount__lte", 1)),
                        name="languagemodel_batch_discount_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(
                            models.Q(
                                ("cache_read_price__isnull", True),
                                ("cache_write_price__isnull", True),
                                ("input_price__isnull", True),
                                ("output_price__isnull", True),
                            ),
                            models.Q(models.Q(("price_source", ""), _negated=True), ("price_date__isnull", False)),
                            _connector="OR",
                        ),
                        name="languagemodel_price_has_source",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Prompt",
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
                    "messages",
                    models.JSONField(
                        help_text='Turns: [{"role": "system", "content": "..."}, {"role": "user", "content": "{{input}}"}]'
                    ),
                ),
                (
                    "answer_format",
                    models.CharField(
                        choices=[
                            ("text", "Free text"),
                            ("rating", "A rating, as strict JSON"),
                            ("rating_with_reasoning", "A rating with its reasoning"),
                        ],
                        default="text",
                        max_length=24,
                    ),
                ),
            ],
            options={
                "ordering": ["name", "-version"],
                "permissions": [("approve_prompt", "Can approve and archive prompts")],
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
                        ),
                        name="runs_app_prompt_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("name", "version"), name="prompt_name_version"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "approved"), _negated=True),
                            models.Q(models.Q(("content_hash", ""), _negated=True), ("approved_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="runs_app_prompt_approval_is_complete",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["approved", "archived", "draft", "imported", "used"])),
                        name="runs_app_prompt_status_choices",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("answer_format__in", ["rating", "rating_with_reasoning", "text"])),
                        name="runs_app_prompt_answer_format_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Sampler",
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
                    "temperature",
                    models.FloatField(
                        blank=True, null=True, validators=[runs_app.models.bounded.InRange("sampler", "temperature")]
                    ),
                ),
                (
                    "top_p",
                    models.FloatField(
                        blank=True, null=True, validators=[runs_app.models.bounded.InRange("sampler", "top_p")]
                    ),
                ),
                (
                    "max_tokens",
                    models.PositiveIntegerField(
                        blank=True, null=True, validators=[runs_app.models.bounded.InRange("sampler", "max_tokens")]
                    ),
                ),
                (
                    "seed",
                    models.BigIntegerField(
                        blank=True,
                        help_text="Seed of the first epoch. Each further epoch adds 1",
                        null=True,
                        validators=[runs_app.models.bounded.InRange("sampler", "seed")],
                    ),
                ),
                ("reasoning_effort", models.CharField(blank=True, max_length=20)),
                ("extra", models.JSONField(blank=True, default=dict, help_text="Other parameters, as a JSON mapping")),
            ],
            options={
                "ordering": ["name", "-version"],
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
                        ),
                        name="runs_app_sampler_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("name", "version"), name="sampler_name_version"),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("temperature__gte", 0), ("temperature__lte", 2)),
                        name="sampler_temperature_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("top_p__gte", 0), ("top_p__lte", 1)), name="sampler_top_p_in_range"
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("max_tokens__gte", 1), ("max_tokens__lte", 10000000)),
                        name="sampler_max_tokens_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("seed__gte", -9007199254740991), ("seed__lte", 9007199254740991)),
                        name="sampler_seed_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=runs_app.models.bounded.HasOnlyKeys(
                            "extra",
                            keys=(
                                "chat_template_kwargs",
                                "enable_thinking",
                                "frequency_penalty",
                                "ignore_eos",
                                "include_reasoning",
                                "keep_alive",
                                "length_penalty",
                                "logit_bias",
                                "max_completion_tokens",
                                "min_p",
                                "min_tokens",
                                "mirostat",
                                "num_ctx",
                                "presence_penalty",
                                "provider",
                                "reasoning",
                                "repeat_last_n",
                                "repeat_penalty",
                                "repetition_penalty",
                                "service_tier",
                                "skip_special_tokens",
                                "stop",
                                "think",
                                "thinking",
                                "thinking_budget",
                                "thinking_token_budget",
                                "top_a",
                                "top_k",
                                "verbosity",
                            ),
                        ),
                        name="runs_app_sampler_extra_is_allowed",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "approved"), _negated=True),
                            models.Q(models.Q(("content_hash", ""), _negated=True), ("approved_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="runs_app_sampler_approval_is_complete",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["approved", "archived", "draft", "imported", "used"])),
                        name="runs_app_sampler_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Experiment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "slug",
                    models.CharField(
                        max_length=80,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9_-]*\\Z",
                                "Use small letters, digits, - and _, starting with a letter or digit.",
                            )
                        ],
                        verbose_name="name",
                    ),
                ),
                ("title", models.CharField(blank=True, max_length=200)),
                ("description", models.TextField(blank=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="experiments",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "sharing",
                    models.CharField(
                        choices=[("private", "Owner only"), ("group", "Everyone in the group and viewers")],
                        default="private",
                        max_length=10,
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("draft", "Draft"),
                            ("active", "Active"),
                            ("archived", "Archived"),
                            ("stored", "Stored in a file"),
                        ],
                        default="draft",
                        editable=False,
                        max_length=10,
                    ),
                ),
                (
                    "dataset",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="experiments",
                        to="datasets_app.dataset",
                    ),
                ),
                (
                    "samples",
                    models.PositiveIntegerField(db_default=1, default=1, help_text='Repetitions of each cell', validators=[runs_app.models.bounded.InRange('experiment', 'samples')], verbose_name='samples'),
                ),
                (
                    "primary_measure",
                    models.CharField(blank=True, help_text='Name of the dimension, rule or judge that every page shows first. Empty: the first of the design', max_length=200, null=True, verbose_name='primary measure'),
                ),
                (
                    "scorers",
                    models.JSONField(blank=True, default=list, help_text="Scorers that grade the stored answers"),
                ),
                (
                    "graders",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Names of graders: judge models that grade the recorded answers",
                    ),
                ),
                (
                    "adaptive",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Rule that ends a point of the design early. Empty: ask every case",
                    ),
                ),
                (
                    "draws",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        editable=False,
                        help_text="Draws that selected its models and judges",
                    ),
                ),
                ("cache", models.BooleanField(db_default=True, default=True, help_text='Reuse cached answers to identical requests', verbose_name='use the response cache')),
                (
                    "cache_buster",
                    models.BooleanField(db_default=False, default=False, help_text='Unique suffix of each request, which bypasses provider caches', verbose_name='add a unique suffix to bypass provider caches'),
                ),
                ("batch", models.BooleanField(db_default=False, default=False, help_text='Only for endpoints with a batch API', verbose_name='use the batch API (half price, up to 24 h)')),
                ("sequential", models.BooleanField(db_default=False, default=False, help_text='Otherwise conditions run in parallel', verbose_name='run conditions sequentially')),
                (
                    "shuffle",
                    models.IntegerField(blank=True, help_text='Seed of a random order of execution. Without it, items run in their order', null=True, validators=[runs_app.models.bounded.InRange('experiment', 'shuffle')], verbose_name='shuffle the order (seed)'),
                ),
                (
                    "max_concurrency",
                    models.PositiveIntegerField(db_default=32, default=32, help_text='Calls in flight per condition', validators=[runs_app.models.bounded.InRange('experiment', 'max_concurrency')], verbose_name='calls in flight'),
                ),
                (
                    "priority",
                    models.SmallIntegerField(db_default=0, default=0, help_text='-9 to 9. Higher priorities use a shared endpoint first', validators=[runs_app.models.bounded.InRange('experiment', 'priority')], verbose_name='priority'),
                ),
                (
                    "request_timeout_s",
                    models.FloatField(db_default=60, default=60, help_text='Seconds per call', validators=[runs_app.models.bounded.InRange('experiment', 'request_timeout_s')], verbose_name='time-out'),
                ),
                (
                    "on_empty",
                    models.CharField(choices=[('keep', 'Keep and grade'), ('rerun', 'Ask again, as after a transient error'), ('skip', 'Keep, do not grade')], db_default='keep', default='keep', help_text='How to treat trials with a blank answer', max_length=10, verbose_name='empty answers'),
                ),
                (
                    "on_unreadable",
                    models.CharField(choices=[('keep', 'Keep it, as an answer without a rating'), ('rerun', 'Ask again, as after a transient error')], db_default='keep', default='keep', help_text='How to treat trials whose answer has no readable rating', max_length=10, verbose_name='unreadable answers'),
                ),
                (
                    "max_attempts",
                    models.PositiveSmallIntegerField(db_default=3, default=3, help_text='Attempts per trial before it counts as failed', validators=[runs_app.models.bounded.InRange('experiment', 'max_attempts')], verbose_name='attempts'),
                ),
                (
                    "backoff_s",
                    models.FloatField(db_default=1, default=1, help_text='Seconds before the first retry. Each further wait is twice as long', validators=[runs_app.models.bounded.InRange('experiment', 'backoff_s')], verbose_name='first retry wait'),
                ),
                (
                    "max_backoff_s",
                    models.FloatField(db_default=60, default=60, help_text="Seconds. A provider's Retry-After can extend it", validators=[runs_app.models.bounded.InRange('experiment', 'max_backoff_s')], verbose_name='longest retry wait'),
                ),
                (
                    "lease_s",
                    models.FloatField(db_default=120, default=120, help_text='Seconds after which the claims of a silent worker expire', validators=[runs_app.models.bounded.InRange('experiment', 'lease_s')], verbose_name='lease'),
                ),
                (
                    "stop_failure_rate",
                    models.FloatField(db_default=0.05, default=0.05, help_text='Share of permanently failed attempts, 0 to 1. A run stops after at least 5 failures if the share is above this value with 95 % confidence', validators=[runs_app.models.bounded.InRange('experiment', 'stop_failure_rate')], verbose_name='failure rate that stops a run'),
                ),
                (
                    "stop_after_attempts",
                    models.PositiveIntegerField(db_default=20, default=20, help_text='Runs with fewer attempts do not stop', validators=[runs_app.models.bounded.InRange('experiment', 'stop_after_attempts')], verbose_name='minimum attempts before a stop'),
                ),
                (
                    "budget_policy",
                    models.CharField(choices=[('dev', 'Dev: only the first items, without the batch API'), ('full', 'Full: every item and sample')], db_default='full', default='full', help_text='The part of the design that a launch runs', max_length=10, verbose_name='launch policy'),
                ),
                (
                    "dev_items",
                    models.PositiveIntegerField(db_default=2, default=2, help_text='Number of first items in a dev launch', validators=[runs_app.models.bounded.InRange('experiment', 'dev_items')], verbose_name='dev items'),
                ),
                (
                    "dev_samples",
                    models.PositiveIntegerField(blank=True, help_text='Maximum samples in a dev launch. Empty: as in the design', null=True, validators=[runs_app.models.bounded.InRange('experiment', 'dev_samples')], verbose_name='dev samples'),
                ),
                (
                    "max_usd",
                    models.DecimalField(blank=True, decimal_places=4, help_text='US dollars; hard limit', max_digits=12, null=True, validators=[runs_app.models.bounded.InRange('experiment', 'max_usd')], verbose_name='budget'),
                ),
                (
                    "confirm_above_usd",
                    models.DecimalField(blank=True, decimal_places=4, help_text='US dollars; a launch with a higher maximum cost needs confirmation', max_digits=12, null=True, validators=[runs_app.models.bounded.InRange('experiment', 'confirm_above_usd')], verbose_name='confirm above'),
                ),
                (
                    "imported_from",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        help_text="Tool that produced the imported results. Empty for experiments of this site",
                        max_length=40,
                    ),
                ),
                ("spent_usd", models.DecimalField(decimal_places=8, default=0, editable=False, max_digits=16)),
                ("reserved_usd", models.DecimalField(decimal_places=8, default=0, editable=False, max_digits=16)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "shared_with",
                    models.ManyToManyField(blank=True, related_name="shared_experiments", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "starred_by",
                    models.ManyToManyField(
                        editable=False,
                        help_text="Favourite of",
                        related_name="starred_experiments",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("language_models", models.ManyToManyField(related_name="experiments", to="runs_app.languagemodel")),
                ("prompts", models.ManyToManyField(related_name="experiments", to="runs_app.prompt")),
                ("samplers", models.ManyToManyField(related_name="experiments", to="runs_app.sampler")),
                ("dimensions", models.ManyToManyField(blank=True, related_name="experiments", to="runs_app.dimension")),
            ],
            options={
                "ordering": ["-created_at", "-pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            reserved_usd=(0, Decimal("99999999.99999999")),
                            spent_usd=(0, Decimal("99999999.99999999")),
                        ),
                        name="runs_app_experiment_numbers_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("samples__gte", 1), ("samples__lte", 10000)),
                        name="experiment_samples_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("shuffle__gte", 0), ("shuffle__lte", 2147483647)),
                        name="experiment_shuffle_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("max_concurrency__gte", 1), ("max_concurrency__lte", 100000)),
                        name="experiment_max_concurrency_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("priority__gte", -9), ("priority__lte", 9)),
                        name="experiment_priority_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("request_timeout_s__gte", 0.1), ("request_timeout_s__lte", 3600)),
                        name="experiment_request_timeout_s_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("max_attempts__gte", 1), ("max_attempts__lte", 20)),
                        name="experiment_max_attempts_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("backoff_s__gte", 0.1), ("backoff_s__lte", 3600)),
                        name="experiment_backoff_s_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("max_backoff_s__gte", 0.1), ("max_backoff_s__lte", 3600)),
                        name="experiment_max_backoff_s_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("lease_s__gte", 1), ("lease_s__lte", 86400)),
                        name="experiment_lease_s_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("stop_failure_rate__gte", 0), ("stop_failure_rate__lte", 1)),
                        name="experiment_stop_failure_rate_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("stop_after_attempts__gte", 1), ("stop_after_attempts__lte", 1000000)),
                        name="experiment_stop_after_attempts_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("dev_items__gte", 1), ("dev_items__lte", 1000000)),
                        name="experiment_dev_items_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("dev_samples__gte", 1), ("dev_samples__lte", 10000)),
                        name="experiment_dev_samples_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("max_usd__gte", 0), ("max_usd__lte", 10000000)),
                        name="experiment_max_usd_in_range",
                    ),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("confirm_above_usd__gte", 0), ("confirm_above_usd__lte", 10000000)),
                        name="experiment_confirm_above_usd_in_range",
                    ),
                    models.CheckConstraint(
                        condition=runs_app.models.bounded.MembersInRange(
                            "adaptive",
                            members={
                                "abortht": (0, 1),
                                "backoffht": (0, 1),
                                "confidence": (0.5, 0.999),
                                "max": (1, 1000000),
                                "minci": (0, 1000000),
                                "round": (1, 10000),
                                "targetci": (0, 1000000),
                                "targetciht": (0, 1000000),
                            },
                        ),
                        name="experiment_adaptive_in_range",
                        violation_error_message="adaptive has a number outside its range.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("sharing__in", ["group", "private"])),
                        name="runs_app_experiment_sharing_choices",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["active", "archived", "draft", "stored"])),
                        name="runs_app_experiment_status_choices",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("on_empty__in", ["keep", "rerun", "skip"])),
                        name="runs_app_experiment_on_empty_choices",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("on_unreadable__in", ["keep", "rerun"])),
                        name="runs_app_experiment_on_unreadable_choices",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("budget_policy__in", ["dev", "full"])),
                        name="runs_app_experiment_budget_policy_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DeletedRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deleted_runs",
                        to="runs_app.experiment",
                    ),
                ),
                ("number", models.BigIntegerField(help_text="Primary key of the deleted run")),
                ("label", models.CharField(help_text="Its condition and wave", max_length=400)),
                ("trials", models.IntegerField()),
                ("attempts", models.IntegerField()),
                ("spent_usd", models.DecimalField(decimal_places=8, max_digits=16)),
                (
                    "kept_usd",
                    models.DecimalField(
                        decimal_places=8,
                        help_text="Still reserved for calls of unknown cost, which may be billed",
                        max_digits=16,
                    ),
                ),
                ("deleted_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            attempts=(0, None),
                            deleted_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            kept_usd=(0, Decimal("99999999.99999999")),
                            spent_usd=(0, Decimal("99999999.99999999")),
                            trials=(0, None),
                        ),
                        name="runs_app_deletedrun_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("number",), name="deletedrun_number"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("attempts__gte", 0), ("kept_usd__gte", 0), ("spent_usd__gte", 0), ("trials__gte", 0)
                        ),
                        name="deletedrun_counts_nothing_below_zero",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Manifest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="manifests", to="runs_app.experiment"
                    ),
                ),
                ("content", models.JSONField()),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
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
                            )
                        ),
                        name="runs_app_manifest_numbers_in_range",
                    )
                ],
                "ordering": ["-pk"],
            },
        ),
        migrations.CreateModel(
            name="Preregistration",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("content", models.JSONField()),
                ("digest", models.CharField(help_text="SHA-256 of the content", max_length=64)),
                ("actor", models.CharField(help_text="Name of the author at that time", max_length=200)),
                ("frozen_at", models.DateTimeField(auto_now_add=True)),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "experiment",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="preregistration",
                        to="runs_app.experiment",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            frozen_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="runs_app_preregistration_numbers_in_range",
                    )
                ]
            },
        ),
        migrations.CreateModel(
            name="Preflight",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("error_class", models.CharField(default="", max_length=40)),
                ("error", models.TextField(default="")),
                ("http_status", models.SmallIntegerField(null=True)),
                ("finish_reason", models.CharField(default="", max_length=40)),
                ("response_id", models.CharField(default="", max_length=200)),
                ("served_model", models.CharField(default="", max_length=200)),
                ("served_provider", models.CharField(default="", max_length=80)),
                ("input_tokens", models.IntegerField(null=True)),
                ("output_tokens", models.IntegerField(null=True)),
                ("reasoning_tokens", models.IntegerField(null=True)),
                ("cache_read_tokens", models.IntegerField(null=True)),
                ("cache_write_tokens", models.IntegerField(null=True)),
                ("cost_usd", models.DecimalField(decimal_places=8, max_digits=14, null=True)),
                (
                    "list_usd",
                    models.DecimalField(
                        decimal_places=8,
                        help_text="Cost at list price, without the provider's cache discount. For a reused answer, the cost avoided",
                        max_digits=14,
                        null=True,
                    ),
                ),
                (
                    "kept_usd",
                    models.DecimalField(
                        decimal_places=8,
                        help_text="Amount that stays reserved because the cost is unknown",
                        max_digits=14,
                        null=True,
                    ),
                ),
                ("latency_ms", models.IntegerField(null=True)),
                ("trace_id", models.CharField(default="", max_length=64)),
                (
                    "about",
                    models.CharField(
                        default="", help_text="Dataset and item of a try. Empty: a plain check", max_length=320
                    ),
                ),
                (
                    "messages",
                    models.JSONField(
                        help_text="Messages of a try. An image has its hash in place of its bytes", null=True
                    ),
                ),
                ("parameters", models.JSONField(default=dict, help_text="Sampler's settings of a try")),
                ("answer", models.TextField(default="", help_text="Answer of a try")),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="preflights",
                        to="runs_app.languagemodel",
                    ),
                ),
                (
                    "endpoint",
                    models.ForeignKey(
                        help_text="Endpoint whose slot it uses",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs_app.endpoint",
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        help_text="Experiment whose budget pays for the call, if any",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="preflights",
                        to="runs_app.experiment",
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("ok", "OK"),
                            ("dead", "Failed"),
                            ("unverified", "Unverified"),
                        ],
                        default="waiting",
                        editable=False,
                        max_length=10,
                    ),
                ),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "actor",
                    models.CharField(help_text="Name of the requester at the time of the request", max_length=200),
                ),
                ("reserved_usd", models.DecimalField(decimal_places=8, default=0, max_digits=14)),
                ("lease_until", models.DateTimeField(null=True)),
                ("asked_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(fields=["model", "-id"], name="preflight_latest"),
                    models.Index(
                        condition=models.Q(("status__in", ["waiting", "running"])),
                        fields=["lease_until"],
                        name="preflight_leases",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            asked_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            cache_read_tokens=(0, None),
                            cache_write_tokens=(0, None),
                            cost_usd=(0, Decimal("999999.99999999")),
                            finished_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            http_status=(0, 999),
                            input_tokens=(0, None),
                            kept_usd=(0, Decimal("999999.99999999")),
                            latency_ms=(0, None),
                            lease_until=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            list_usd=(0, Decimal("999999.99999999")),
                            output_tokens=(0, None),
                            reasoning_tokens=(0, None),
                            reserved_usd=(0, Decimal("999999.99999999")),
                            started_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="runs_app_preflight_numbers_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["dead", "ok", "running", "unverified", "waiting"])),
                        name="runs_app_preflight_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Condition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "stage",
                    models.CharField(
                        choices=[
                            ("generate", "Answers"),
                            ("judge", "Verdicts on answers"),
                            ("rubric", "Rubrics of items"),
                            ("external", "Calls of other programs"),
                        ],
                        db_default="generate",
                        default="generate",
                        max_length=10,
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="conditions", to="runs_app.experiment"
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="conditions",
                        to="runs_app.languagemodel",
                    ),
                ),
                (
                    "prompt",
                    models.ForeignKey(
                        help_text="Empty for a judge",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="conditions",
                        to="runs_app.prompt",
                    ),
                ),
                (
                    "sampler",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="conditions", to="runs_app.sampler"
                    ),
                ),
                ("condition_id", models.CharField(max_length=255)),
                ("content", models.JSONField(help_text="Model, prompt and sampler at the time of planning")),
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
                        name="runs_app_condition_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("experiment", "condition_id"), name="condition_in_experiment"),
                    models.CheckConstraint(
                        condition=models.Q(("stage__in", ["external", "generate", "judge", "rubric"])),
                        name="runs_app_condition_stage_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TextSet",
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
                    "dataset",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="text_sets", to="datasets_app.dataset"
                    ),
                ),
                (
                    "written_by",
                    models.ForeignKey(
                        blank=True,
                        help_text="Condition whose model wrote the texts. Empty if people wrote them",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="text_sets",
                        to="runs_app.condition",
                    ),
                ),
            ],
            options={
                "ordering": ["name", "-version"],
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
                        ),
                        name="runs_app_textset_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("name", "version"), name="text_set_name_version"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "approved"), _negated=True),
                            models.Q(models.Q(("content_hash", ""), _negated=True), ("approved_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="runs_app_textset_approval_is_complete",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["approved", "archived", "draft", "imported", "used"])),
                        name="runs_app_textset_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Wave",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="waves", to="runs_app.experiment"
                    ),
                ),
                ("number", models.PositiveIntegerField(default=0)),
                ("label", models.CharField(blank=True, max_length=80)),
                ("epoch_offset", models.PositiveIntegerField(default=0)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["number"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="runs_app_wave_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("experiment", "number"), name="wave_number_in_experiment"),
                    models.UniqueConstraint(fields=("experiment", "label"), name="wave_label_in_experiment"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "experiment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="runs_app.experiment"
                    ),
                ),
                (
                    "condition",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="runs_app.condition"
                    ),
                ),
                (
                    "wave",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="runs_app.wave"
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("planned", "Planned"),
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("paused", "Paused"),
                            ("stopped", "Stopped"),
                            ("cancelled", "Cancelled"),
                            ("done", "Done"),
                        ],
                        default="planned",
                        editable=False,
                        max_length=10,
                    ),
                ),
                ("stop_reason", models.TextField(blank=True, editable=False)),
                (
                    "paused_by_budget",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="Paused because the budget covers no further call",
                    ),
                ),
                (
                    "max_concurrency",
                    models.PositiveIntegerField(
                        default=32, validators=[runs_app.models.bounded.InRange("run", "max_concurrency")]
                    ),
                ),
                (
                    "is_batched",
                    models.BooleanField(default=False, editable=False, help_text="Sends its trials in batches"),
                ),
                (
                    "reserve_usd",
                    models.DecimalField(
                        decimal_places=8, default=0, help_text="Reserved for each claimed trial", max_digits=14
                    ),
                ),
                (
                    "reserve_tokens",
                    models.PositiveIntegerField(
                        default=0, help_text="Expected tokens of each claimed trial, for the token rate limit"
                    ),
                ),
                (
                    "request_tokens",
                    models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        editable=False,
                        help_text="Upper bound of the tokens in its largest request",
                    ),
                ),
                ("n_pending", models.IntegerField(default=0, editable=False)),
                ("n_running", models.IntegerField(default=0, editable=False)),
                ("n_done", models.IntegerField(default=0, editable=False)),
                ("n_failed", models.IntegerField(default=0, editable=False)),
                ("n_cancelled", models.IntegerField(default=0, editable=False)),
                ("n_attempts", models.IntegerField(default=0, editable=False)),
                (
                    "n_permanent",
                    models.IntegerField(default=0, editable=False, help_text="Attempts that failed permanently"),
                ),
                (
                    "attempts_before",
                    models.IntegerField(
                        db_default=0,
                        default=0,
                        editable=False,
                        help_text="Attempts before its last start, which the limit ignores",
                    ),
                ),
                (
                    "permanent_before",
                    models.IntegerField(
                        db_default=0,
                        default=0,
                        editable=False,
                        help_text="Permanent failures before its last start, which the limit ignores",
                    ),
                ),
                (
                    "rejections",
                    models.IntegerField(
                        db_default=0,
                        default=0,
                        editable=False,
                        help_text="Pauses after status 429 since the last reply of another kind",
                    ),
                ),
                ("errors", models.JSONField(default=dict, editable=False, help_text="Attempts by error class")),
                ("spent_usd", models.DecimalField(decimal_places=8, default=0, editable=False, max_digits=16)),
                (
                    "n_unpriced",
                    models.IntegerField(default=0, editable=False, help_text="Attempts whose cost is unknown"),
                ),
                ("input_tokens", models.BigIntegerField(default=0, editable=False)),
                ("output_tokens", models.BigIntegerField(default=0, editable=False)),
                ("started_at", models.DateTimeField(editable=False, null=True)),
                ("finished_at", models.DateTimeField(editable=False, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["pk"],
                "indexes": [
                    models.Index(condition=models.Q(("status", "running")), fields=["status"], name="run_status")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            attempts_before=(0, None),
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            finished_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            input_tokens=(0, None),
                            n_attempts=(0, None),
                            n_cancelled=(0, None),
                            n_done=(0, None),
                            n_failed=(0, None),
                            n_pending=(0, None),
                            n_permanent=(0, None),
                            n_running=(0, None),
                            n_unpriced=(0, None),
                            output_tokens=(0, None),
                            permanent_before=(0, None),
                            rejections=(0, None),
                            reserve_usd=(0, Decimal("999999.99999999")),
                            spent_usd=(0, Decimal("99999999.99999999")),
                            started_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="runs_app_run_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("condition", "wave"), name="run_condition_wave"),
                    runs_app.models.bounded.RangeConstraint(
                        condition=models.Q(("max_concurrency__gte", 1), ("max_concurrency__lte", 100000)),
                        name="run_max_concurrency_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("status__in", ["cancelled", "done", "paused", "planned", "queued", "running", "stopped"])
                        ),
                        name="runs_app_run_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Point",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="points",
                        to="runs_app.run",
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
                ("key", models.JSONField(help_text="Category, or the value of each parameter")),
                (
                    "items",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        help_text="Keys of its items, in drawing order",
                        size=None,
                    ),
                ),
                ("n_items", models.PositiveIntegerField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("open", "Open"),
                            ("enough", "Precise enough"),
                            ("exhausted", "Maximum reached"),
                            ("aborted", "Aborted"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="open",
                        editable=False,
                        max_length=10,
                    ),
                ),
                ("n_planned", models.PositiveIntegerField(default=0, help_text="Cases that have a trial")),
                ("n_correct", models.PositiveIntegerField(default=0)),
                (
                    "n_total",
                    models.PositiveIntegerField(default=0, help_text="Scored answers that are not truncated"),
                ),
                (
                    "n_truncated",
                    models.PositiveIntegerField(default=0, help_text="Truncated answers, which the accuracy excludes"),
                ),
                (
                    "n_unread",
                    models.PositiveIntegerField(default=0, help_text="Answers without a readable score"),
                ),
                ("n_failed", models.PositiveIntegerField(default=0, help_text="Trials without an answer")),
                (
                    "n_rated_items",
                    models.PositiveIntegerField(default=0, help_text="Rated items. 0 if the design has no ratings"),
                ),
                ("mean", models.FloatField(help_text="Mean of the items' mean ratings", null=True)),
                ("spread", models.FloatField(help_text="Standard deviation of the items' mean ratings", null=True)),
                (
                    "guess_chances",
                    models.FloatField(
                        default=0, help_text="Sum of the chances to guess right, over the scored answers"
                    ),
                ),
                ("half_width", models.FloatField(null=True)),
                ("reason", models.TextField(blank=True, help_text="Reason for the last decision")),
                (
                    "rounds",
                    models.JSONField(
                        default=list, help_text="Decisions, each with its time, counts, result and reason"
                    ),
                ),
                ("decided_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["pk"],
                "indexes": [models.Index(condition=models.Q(("status", "open")), fields=["run"], name="point_open")],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            decided_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            guess_chances=(0, 1000000000000.0),
                            half_width=(0, 1000000000000.0),
                            mean=(-1000000000000.0, 1000000000000.0),
                            spread=(0, 1000000000000.0),
                        ),
                        name="runs_app_point_numbers_in_range",
                    ),
                    models.UniqueConstraint(
                        fields=("run", "key", "dimension"), name="point_in_run", nulls_distinct=False
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["aborted", "cancelled", "enough", "exhausted", "open"])),
                        name="runs_app_point_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LedgerEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ledger",
                        to="runs_app.run",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs_app.languagemodel",
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="runs_app.experiment",
                    ),
                ),
                (
                    "session",
                    models.IntegerField(db_default=0, default=0, help_text="Database process that wrote the entry"),
                ),
                ("at", models.DateTimeField(help_text="Start of the quarter of an hour in which the calls ended")),
                ("attempts", models.BigIntegerField(default=0)),
                ("answered", models.BigIntegerField(default=0)),
                (
                    "reused",
                    models.BigIntegerField(default=0, help_text="Answered from the response cache, without a call"),
                ),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("reasoning_tokens", models.BigIntegerField(default=0)),
                ("cache_read_tokens", models.BigIntegerField(default=0)),
                ("cache_write_tokens", models.BigIntegerField(default=0)),
                ("list_usd", models.DecimalField(decimal_places=8, default=0, max_digits=18)),
                ("paid_usd", models.DecimalField(decimal_places=8, default=0, max_digits=18)),
                ("cache_saved_usd", models.DecimalField(decimal_places=8, default=0, max_digits=18)),
                ("batch_saved_usd", models.DecimalField(decimal_places=8, default=0, max_digits=18)),
                ("reuse_saved_usd", models.DecimalField(decimal_places=8, default=0, max_digits=18)),
                ("unpriced", models.BigIntegerField(default=0)),
                (
                    "empty",
                    models.BigIntegerField(
                        default=0,
                        help_text="Recorded answers without text. An answer can be in several of these four counts",
                    ),
                ),
                ("truncated", models.BigIntegerField(default=0)),
                ("refused", models.BigIntegerField(default=0)),
                ("unparsed", models.BigIntegerField(default=0)),
                ("kept_usd", models.DecimalField(decimal_places=8, default=0, max_digits=18)),
            ],
            options={
                "indexes": [models.Index(fields=["at"], name="ledger_at")],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            batch_saved_usd=(Decimal("-9999999999.99999999"), Decimal("9999999999.99999999")),
                            cache_saved_usd=(Decimal("-9999999999.99999999"), Decimal("9999999999.99999999")),
                            kept_usd=(Decimal("-9999999999.99999999"), Decimal("9999999999.99999999")),
                            list_usd=(Decimal("-9999999999.99999999"), Decimal("9999999999.99999999")),
                            paid_usd=(Decimal("-9999999999.99999999"), Decimal("9999999999.99999999")),
                            reuse_saved_usd=(Decimal("-9999999999.99999999"), Decimal("9999999999.99999999")),
                            session=(0, None),
                        ),
                        name="runs_app_ledgerentry_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("run", "at", "session"), name="ledger_run_at_session"),
                    models.UniqueConstraint(
                        condition=models.Q(("run__isnull", True)),
                        fields=("experiment", "model", "at"),
                        name="ledger_preflight_at",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("experiment__isnull", True), ("model__isnull", True), ("run__isnull", False)),
                            models.Q(("model__isnull", False), ("run__isnull", True)),
                            _connector="OR",
                        ),
                        name="ledger_of_run_or_model",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Tick",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="ticks", to="runs_app.run"
                    ),
                ),
                ("at", models.DateTimeField(help_text="Start of the ten seconds")),
                ("done", models.IntegerField(default=0)),
                ("failed", models.IntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
            ],
            options={
                "ordering": ["at"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            attempts=(0, None),
                            done=(0, None),
                            failed=(0, None),
                        ),
                        name="runs_app_tick_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("run", "at"), name="tick_run_at"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Trial",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        db_default="pending",
                        default="pending",
                        editable=False,
                        max_length=10,
                    ),
                ),
                (
                    "attempts",
                    models.SmallIntegerField(
                        db_default=0, default=0, help_text="Counted at each claim, so that a crash counts too"
                    ),
                ),
                (
                    "yields",
                    models.SmallIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Times it was released without a result, because the endpoint was overloaded or the worker stopped",
                    ),
                ),
                (
                    "token",
                    models.UUIDField(
                        help_text="Fencing token of its claim. A result is recorded only while the token matches",
                        null=True,
                    ),
                ),
                ("lease_until", models.DateTimeField(null=True)),
                ("not_before", models.DateTimeField(help_text="Earliest time of the next attempt", null=True)),
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
                ("reserved_usd", models.DecimalField(db_default=0, decimal_places=8, default=0, max_digits=14)),
                ("error_class", models.CharField(blank=True, db_default="", default="", max_length=40)),
                ("error", models.TextField(blank=True, db_default="", default="")),
                ("claimed_at", models.DateTimeField(null=True)),
                ("completed_at", models.DateTimeField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="trials",
                        to="runs_app.run",
                    ),
                ),
                (
                    "item",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        help_text="Empty for a call of another program through the gateway",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="trials",
                        to="datasets_app.item",
                    ),
                ),
                (
                    "dimension",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="trials",
                        to="runs_app.dimension",
                    ),
                ),
                ("sample_idx", models.IntegerField(help_text="Repetition, from 0")),
                (
                    "place",
                    models.IntegerField(
                        db_default=0,
                        default=0,
                        help_text="Place in the order of execution of a shuffled experiment, else 0",
                    ),
                ),
                (
                    "subject",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        help_text="Trial whose answer is judged. Empty if the question is about the item",
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="verdicts",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "rival",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        help_text="In a comparison of two answers: the trial whose answer is shown second",
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="runs_app.trial",
                    ),
                ),
                ("rating", models.IntegerField(null=True)),
                (
                    "rating_step",
                    models.CharField(
                        db_default="",
                        default="",
                        help_text="How the rating was read: json, braces or digit",
                        max_length=10,
                    ),
                ),
                (
                    "parse_error",
                    models.CharField(
                        db_default="", default="", help_text="Why the answer has no readable rating", max_length=40
                    ),
                ),
                (
                    "answer",
                    models.TextField(db_default="", default="", help_text="The model's answer, without its reasoning"),
                ),
                ("reasoning", models.TextField(db_default="", default="")),
                (
                    "raw_response",
                    models.TextField(
                        help_text="The model's text before parsing. Empty for an answer: equal to it, or removed",
                        null=True,
                    ),
                ),
                (
                    "raw_sha256",
                    models.CharField(
                        db_default="",
                        default="",
                        help_text="SHA-256 of a raw response that was removed",
                        max_length=64,
                    ),
                ),
                (
                    "raw_removed_at",
                    models.DateTimeField(
                        help_text="Empty for a removed raw response: another trial's answer was reused after its removal",
                        null=True,
                    ),
                ),
                (
                    "messages",
                    models.JSONField(
                        help_text="The conversation of an imported answer. Empty: the request is rendered from the condition",
                        null=True,
                    ),
                ),
                ("finish_reason", models.CharField(db_default="", default="", max_length=40)),
                ("truncated", models.BooleanField(db_default=False, default=False)),
                ("refused", models.BooleanField(db_default=False, default=False)),
                ("response_id", models.CharField(db_default="", default="", max_length=200)),
                ("served_model", models.CharField(db_default="", default="", max_length=200)),
                ("served_provider", models.CharField(db_default="", default="", max_length=80)),
                ("request_hash", models.CharField(db_default="", default="", max_length=64)),
                ("input_tokens", models.IntegerField(null=True)),
                ("output_tokens", models.IntegerField(null=True)),
                ("reasoning_tokens", models.IntegerField(null=True)),
                ("cache_read_tokens", models.IntegerField(null=True)),
                ("cache_write_tokens", models.IntegerField(null=True)),
                (
                    "cost_usd",
                    models.DecimalField(
                        decimal_places=8, help_text="Empty if unknown, never zero", max_digits=14, null=True
                    ),
                ),
                ("from_cache", models.BooleanField(db_default=False, default=False)),
                ("latency_ms", models.IntegerField(null=True)),
            ],
            options={
                "ordering": ["pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("status", "pending")),
                        fields=["run", "attempts", "place", "sample_idx", "item", "dimension"],
                        name="trial_claimable",
                    ),
                    models.Index(fields=["run", "status", "id"], name="trial_browse"),
                    models.Index(
                        condition=models.Q(("subject__isnull", False)), fields=["subject"], name="trial_judged"
                    ),
                    models.Index(
                        condition=models.Q(("rival__isnull", False)), fields=["rival"], name="trial_compared"
                    ),
                    models.Index(
                        condition=models.Q(("error_class", ""), _negated=True),
                        fields=["run", "error_class", "id"],
                        name="trial_errors",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("status", "done"),
                            models.Q(
                                ("answer", ""),
                                ("truncated", True),
                                ("refused", True),
                                models.Q(("parse_error", ""), _negated=True),
                                _connector="OR",
                            ),
                        ),
                        fields=["run", "id"],
                        include=["truncated"],
                        name="trial_unusable",
                    ),
                    models.Index(
                        condition=models.Q(("raw_response__isnull", False)), fields=["run", "id"], name="trial_raw"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            attempts=(0, None),
                            cache_read_tokens=(0, None),
                            cache_write_tokens=(0, None),
                            claimed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            completed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            cost_usd=(0, Decimal("999999.99999999")),
                            input_tokens=(0, None),
                            latency_ms=(0, None),
                            lease_until=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            not_before=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            output_tokens=(0, None),
                            place=(0, None),
                            rating=(-1000000, 1000000),
                            raw_removed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            reasoning_tokens=(0, None),
                            reserved_usd=(0, Decimal("999999.99999999")),
                            sample_idx=(0, None),
                            yields=(0, None),
                        ),
                        name="runs_app_trial_numbers_in_range",
                    ),
                    models.UniqueConstraint(
                        fields=("run", "item", "dimension", "sample_idx", "subject", "rival"),
                        include=("id",),
                        name="trial_identity",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "running"), ("token__isnull", False)),
                            models.Q(models.Q(("status", "running"), _negated=True), ("token__isnull", True)),
                            _connector="OR",
                        ),
                        name="trial_token_while_running",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["cancelled", "done", "failed", "pending", "running"])),
                        name="runs_app_trial_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ItemText",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "text_set",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="texts", to="runs_app.textset"
                    ),
                ),
                (
                    "item",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="datasets_app.item"
                    ),
                ),
                ("text", models.TextField()),
                (
                    "trial",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        help_text="Call that wrote the text. Its trial keeps the original",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "edited_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("edited_at", models.DateTimeField(null=True)),
            ],
            options={
                "ordering": ["item"],
                "indexes": [
                    models.Index(condition=models.Q(("trial__isnull", False)), fields=["trial"], name="text_by_call")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            edited_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            )
                        ),
                        name="runs_app_itemtext_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("text_set", "item"), name="text_of_item_in_set"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ExternalCall",
            fields=[
                (
                    "trial",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="external_call",
                        serialize=False,
                        to="runs_app.trial",
                    ),
                ),
                (
                    "form",
                    models.CharField(
                        choices=[("openai", "OpenAI's chat completions"), ("anthropic", "Anthropic's messages")],
                        max_length=10,
                    ),
                ),
                (
                    "session",
                    models.CharField(default="", help_text="Named by the program; groups its calls", max_length=120),
                ),
                ("token", models.CharField(help_text="Public part of the access token", max_length=20)),
                (
                    "parameters",
                    models.JSONField(default=dict, help_text="The request without its model and its messages"),
                ),
                (
                    "reply",
                    models.TextField(db_default="", default="", help_text="Body of the reply as received, without keys"),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("form__in", ["anthropic", "openai"])),
                        name="runs_app_externalcall_form_choices",
                    )
                ]
            },
        ),
        migrations.CreateModel(
            name="CachedAnswer",
            fields=[
                ("key", models.CharField(max_length=64, primary_key=True, serialize=False)),
                (
                    "trial",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="runs_app.trial"
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
                            )
                        ),
                        name="runs_app_cachedanswer_numbers_in_range",
                    )
                ]
            },
        ),
        migrations.CreateModel(
            name="Annotation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "item",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="annotations", to="datasets_app.item"
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="annotations",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="annotations",
                        to="runs_app.experiment",
                    ),
                ),
                ("kind", models.CharField(choices=[("note", "Note"), ("flag", "Flag"), ("tag", "Tag")], max_length=4)),
                ("text", models.TextField(help_text="The note, the reason of the flag, or the tag")),
                (
                    "author",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "changed_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("changed_at", models.DateTimeField(null=True)),
                ("removed", models.BooleanField(db_default=False, default=False)),
                (
                    "former",
                    models.JSONField(
                        db_default=[],
                        default=list,
                        editable=False,
                        help_text="Former texts with author and time; a trigger writes them",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            changed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="runs_app_annotation_numbers_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("experiment", None), ("trial", None)),
                            models.Q(("experiment__isnull", False), ("trial__isnull", False)),
                            _connector="OR",
                        ),
                        name="annotation_trial_has_experiment",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("text__regex", "\\S")),
                            django.db.models.lookups.LessThanOrEqual(
                                django.db.models.functions.text.Length("text"), 4000
                            ),
                        ),
                        name="annotation_has_text",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "tag"), _negated=True),
                            ("text__regex", "^[^A-Z,\\s]{1,40}$"),
                            _connector="OR",
                        ),
                        name="annotation_tag_is_normalised",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("changed_at", None), ("changed_by", None), ("removed", False)),
                            models.Q(("changed_at__isnull", False), ("changed_by__isnull", False)),
                            _connector="OR",
                        ),
                        name="annotation_change_has_author",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "tag"), ("removed", False)),
                        fields=("item", "trial", "text"),
                        name="annotation_tag_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["flag", "note", "tag"])),
                        name="runs_app_annotation_kind_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ProviderBatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="batches", to="runs_app.run"
                    ),
                ),
                (
                    "endpoint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="batches", to="runs_app.endpoint"
                    ),
                ),
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
                    models.IntegerField(default=0, help_text="Trials in the batch. After submission: calls in it"),
                ),
                ("n_answered", models.IntegerField(default=0)),
                ("n_failed", models.IntegerField(default=0, help_text="Calls that ended with an error")),
                (
                    "reserved_usd",
                    models.DecimalField(
                        decimal_places=8,
                        default=0,
                        help_text="Reserved for the whole batch when it was created",
                        max_digits=16,
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
                    models.CharField(blank=True, help_text="Provider's ID of the uploaded file", max_length=200),
                ),
                (
                    "provider_id",
                    models.CharField(blank=True, help_text="Provider's ID of the batch", max_length=200),
                ),
                (
                    "provider_status",
                    models.CharField(blank=True, help_text="Status as reported by the provider", max_length=40),
                ),
                (
                    "provider_counts",
                    models.JSONField(default=dict, help_text="Counts of calls as reported by the provider"),
                ),
                (
                    "output_files",
                    models.JSONField(default=list, help_text="Provider's IDs of the result files"),
                ),
                (
                    "search_until",
                    models.DateTimeField(
                        help_text="A lost submission that is not found by this time was never made",
                        null=True,
                    ),
                ),
                (
                    "claim",
                    models.UUIDField(
                        editable=False, help_text="Token of the worker that processes the batch", null=True
                    ),
                ),
                ("lease_until", models.DateTimeField(editable=False, null=True)),
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
                (
                    "tries",
                    models.SmallIntegerField(default=0, help_text="Consecutive failures of the next step"),
                ),
                ("error", models.TextField(blank=True, help_text="Error of the last failure")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("submitted_at", models.DateTimeField(null=True)),
                ("last_polled_at", models.DateTimeField(null=True)),
                (
                    "next_poll_at",
                    models.DateTimeField(default=django.utils.timezone.now, help_text="Time of the next step or poll"),
                ),
                (
                    "expires_at",
                    models.DateTimeField(help_text="Time after which the provider stops answering", null=True),
                ),
                ("ended_at", models.DateTimeField(null=True)),
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
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            discount=(0, Decimal("9.999")),
                            ended_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            expires_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            last_polled_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            lease_until=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            n_answered=(0, None),
                            n_failed=(0, None),
                            n_requests=(0, None),
                            next_poll_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            reserved_usd=(0, Decimal("99999999.99999999")),
                            search_until=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            spent_usd=(0, Decimal("99999999.99999999")),
                            submitted_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            tries=(0, None),
                        ),
                        name="runs_app_providerbatch_numbers_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "status__in",
                                [
                                    "cancelled",
                                    "cancelling",
                                    "collected",
                                    "collecting",
                                    "expired",
                                    "failed",
                                    "preparing",
                                    "submitted",
                                    "submitting",
                                ],
                            )
                        ),
                        name="runs_app_providerbatch_status_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("error_class", models.CharField(default="", max_length=40)),
                ("error", models.TextField(default="")),
                ("http_status", models.SmallIntegerField(null=True)),
                ("finish_reason", models.CharField(default="", max_length=40)),
                ("response_id", models.CharField(default="", max_length=200)),
                ("served_model", models.CharField(default="", max_length=200)),
                ("served_provider", models.CharField(default="", max_length=80)),
                ("input_tokens", models.IntegerField(null=True)),
                ("output_tokens", models.IntegerField(null=True)),
                ("reasoning_tokens", models.IntegerField(null=True)),
                ("cache_read_tokens", models.IntegerField(null=True)),
                ("cache_write_tokens", models.IntegerField(null=True)),
                ("cost_usd", models.DecimalField(decimal_places=8, max_digits=14, null=True)),
                (
                    "list_usd",
                    models.DecimalField(
                        decimal_places=8,
                        help_text="Cost at list price, without the provider's cache discount. For a reused answer, the cost avoided",
                        max_digits=14,
                        null=True,
                    ),
                ),
                (
                    "kept_usd",
                    models.DecimalField(
                        decimal_places=8,
                        help_text="Amount that stays reserved because the cost is unknown",
                        max_digits=14,
                        null=True,
                    ),
                ),
                ("latency_ms", models.IntegerField(null=True)),
                ("trace_id", models.CharField(default="", max_length=64)),
                (
                    "trial",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="attempt_rows",
                        to="runs_app.trial",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="attempt_rows",
                        to="runs_app.run",
                    ),
                ),
                ("token", models.UUIDField()),
                (
                    "call",
                    models.SmallIntegerField(default=0, help_text="Number of the call within one claim, from 0"),
                ),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("ok", "Answered"),
                            ("cached", "Answered from cache"),
                            ("transient", "Failed, can be retried"),
                            ("permanent", "Failed permanently"),
                            ("endpoint", "Released: the endpoint was overloaded or down"),
                            ("released", "Released: the worker stopped"),
                            ("lost", "Lease expired: the worker went silent"),
                            ("late", "Answered after the claim had ended"),
                        ],
                        max_length=10,
                    ),
                ),
                ("raw_response", models.TextField(help_text="Set only if the trial does not store it", null=True)),
                (
                    "raw_sha256",
                    models.CharField(
                        db_default="",
                        default="",
                        help_text="SHA-256 of a raw response that was removed",
                        max_length=64,
                    ),
                ),
                ("raw_removed_at", models.DateTimeField(null=True)),
                ("request_hash", models.CharField(default="", max_length=64)),
                (
                    "empty",
                    models.BooleanField(
                        db_default=False, default=False, help_text="For a recorded answer, as on its trial"
                    ),
                ),
                ("truncated", models.BooleanField(db_default=False, default=False)),
                ("refused", models.BooleanField(db_default=False, default=False)),
                ("unparsed", models.BooleanField(db_default=False, default=False)),
                (
                    "batched",
                    models.BooleanField(db_default=False, default=False, help_text="Billed at the batch price"),
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
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["pk"],
                "indexes": [
                    models.Index(fields=["run", "id"], name="attempt_browse"),
                    models.Index(
                        condition=models.Q(("raw_response__isnull", False)), fields=["run", "id"], name="attempt_raw"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            cache_read_tokens=(0, None),
                            cache_write_tokens=(0, None),
                            call=(0, None),
                            cost_usd=(0, Decimal("999999.99999999")),
                            finished_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            http_status=(0, 999),
                            input_tokens=(0, None),
                            kept_usd=(0, Decimal("999999.99999999")),
                            latency_ms=(0, None),
                            list_usd=(0, Decimal("999999.99999999")),
                            output_tokens=(0, None),
                            raw_removed_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            reasoning_tokens=(0, None),
                            started_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="runs_app_attempt_numbers_in_range",
                    ),
                    models.UniqueConstraint(fields=("trial", "token", "call"), name="attempt_is_one_call"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "outcome__in",
                                ["cached", "endpoint", "late", "lost", "ok", "permanent", "released", "transient"],
                            )
                        ),
                        name="runs_app_attempt_outcome_choices",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiAllowance",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("n_left", models.FloatField(default=300)),
                ("at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            n_left=(-1000000000000.0, 1000000000000.0),
                        ),
                        name="runs_app_apiallowance_numbers_in_range",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=128)),
                ("request_hash", models.CharField(help_text="SHA-256 of method, address and body", max_length=64)),
                ("status", models.SmallIntegerField(null=True)),
                ("content", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "key"), name="apianswer_key_of_user"),
                    models.CheckConstraint(
                        condition=evalsite.lib.constraints.AllInRange(
                            created_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            status=(200, 299),
                        ),
                        name="runs_app_apianswer_numbers_in_range",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "label",
                    models.CharField(
                        help_text="Where you use it, such as laptop or nightly report",
                        max_length=80,
                        verbose_name="name",
                    ),
                ),
                ("public_id", models.CharField(editable=False, max_length=12, unique=True)),
                ("secret_hash", models.CharField(editable=False, max_length=64)),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("read", "Read"),
                            ("run", "Read; create, launch, pause and resume experiments"),
                            ("admin", "Everything, also cancel and archive experiments"),
                        ],
                        default="read",
                        max_length=5,
                        verbose_name="permissions",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                (
                    "experiment",
                    models.ForeignKey(
                        blank=True,
                        help_text="The only experiment that it reaches. Empty: all experiments of the account",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_tokens",
                        to="runs_app.experiment",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("scope__in", ["admin", "read", "run"])),
                        name="runs_app_apitoken_scope_choices",
                    ),
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
                            last_used_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                            revoked_at=(
                                datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                                datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        name="runs_app_apitoken_numbers_in_range",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name='NoticedState',
            fields=[
                ('experiment', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='runs_app.experiment')),
                ('events', models.CharField(blank=True, help_text='Separated by spaces', max_length=40)),
            ],
        ),
        migrations.CreateModel(
            name='NotificationChoice',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='notification_choice', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('on_end', models.BooleanField(default=True, verbose_name='all runs have ended')),
                ('on_stop', models.BooleanField(default=True, verbose_name='a run has stopped')),
                ('on_budget', models.BooleanField(default=True, verbose_name='a budget is reached')),
                ('by_mail', models.BooleanField(default=False, verbose_name='by mail')),
                ('webhook_url', models.URLField(blank=True, help_text='An address of your own that receives a signed POST request', max_length=500, verbose_name='webhook')),
                ('webhook_secret', models.CharField(default=runs_app.models.notifications.make_webhook_secret, editable=False, max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name='Notification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event', models.CharField(choices=[('end', 'All runs have ended'), ('stop', 'A run has stopped'), ('budget', 'The budget is reached'), ('test', 'Test')], max_length=10)),
                ('channel', models.CharField(choices=[('mail', 'Mail'), ('webhook', 'Webhook')], max_length=10)),
                ('text', models.TextField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('try_at', models.DateTimeField(default=django.utils.timezone.now, help_text='Not before')),
                ('n_tries', models.PositiveSmallIntegerField(default=0)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('problem', models.CharField(blank=True, help_text='Of the last try', max_length=300)),
                ('experiment', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='runs_app.experiment')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-pk'],
                'indexes': [models.Index(condition=models.Q(('sent_at', None)), fields=['try_at'], name='notification_waiting')],
                'constraints': [models.CheckConstraint(condition=models.Q(('event__in', ['budget', 'end', 'stop', 'test'])), name='runs_app_notification_event_choices'), models.CheckConstraint(condition=models.Q(('channel__in', ['mail', 'webhook'])), name='runs_app_notification_channel_choices'), models.CheckConstraint(
                    condition=evalsite.lib.constraints.AllInRange(
                        created_at=(
                            datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                            datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                        ),
                        sent_at=(
                            datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                            datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                        ),
                        try_at=(
                            datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc),
                            datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc),
                        ),
                    ),
                    name="runs_app_notification_numbers_in_range",
                )],
            },
        ),
    ]
