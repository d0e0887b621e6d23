"""Numbers of designs, endpoints and models get bounds that the database checks."""

import runs_app.models.bounded
from decimal import Decimal
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets_app', '0003_items_in_order'),
        ('runs_app', '0025_nobody_waits_for_the_ledger'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            model_name='dimension',
            name='scale_max',
            field=models.IntegerField(default=7, validators=[runs_app.models.bounded.InRange('dimension', 'scale_max')]),
        ),
        migrations.AlterField(
            model_name='dimension',
            name='scale_min',
            field=models.IntegerField(default=1, validators=[runs_app.models.bounded.InRange('dimension', 'scale_min')]),
        ),
        migrations.AlterField(
            model_name='endpoint',
            name='batch_max_open',
            field=models.PositiveIntegerField(default=4, help_text='At most, over all runs', validators=[runs_app.models.bounded.InRange('endpoint', 'batch_max_open')], verbose_name='open batches'),
        ),
        migrations.AlterField(
            model_name='endpoint',
            name='batch_max_requests',
            field=models.PositiveIntegerField(default=5000, help_text='At most, in one batch', validators=[runs_app.models.bounded.InRange('endpoint', 'batch_max_requests')], verbose_name='calls a batch'),
        ),
        migrations.AlterField(
            model_name='endpoint',
            name='max_concurrency',
            field=models.PositiveIntegerField(default=16, help_text='Calls in flight, over all workers', validators=[runs_app.models.bounded.InRange('endpoint', 'max_concurrency')]),
        ),
        migrations.AlterField(
            model_name='endpoint',
            name='requests_per_day',
            field=models.PositiveIntegerField(blank=True, null=True, validators=[runs_app.models.bounded.InRange('endpoint', 'requests_per_day')]),
        ),
        migrations.AlterField(
            model_name='endpoint',
            name='requests_per_minute',
            field=models.PositiveIntegerField(blank=True, null=True, validators=[runs_app.models.bounded.InRange('endpoint', 'requests_per_minute')]),
        ),
        migrations.AlterField(
            model_name='endpoint',
            name='tokens_per_minute',
            field=models.PositiveIntegerField(blank=True, null=True, validators=[runs_app.models.bounded.InRange('endpoint', 'tokens_per_minute')]),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='confirm_above_usd',
            field=models.DecimalField(blank=True, decimal_places=4, max_digits=12, null=True, validators=[runs_app.models.bounded.InRange('experiment', 'confirm_above_usd')]),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='lease_s',
            field=models.FloatField(default=120, help_text="Seconds after which a silent worker's claims return", validators=[runs_app.models.bounded.InRange('experiment', 'lease_s')], verbose_name='lease'),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='max_attempts',
            field=models.PositiveSmallIntegerField(default=3, validators=[runs_app.models.bounded.InRange('experiment', 'max_attempts')]),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='max_concurrency',
            field=models.PositiveIntegerField(default=32, help_text='Calls in flight for each condition', validators=[runs_app.models.bounded.InRange('experiment', 'max_concurrency')]),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='max_usd',
            field=models.DecimalField(blank=True, decimal_places=4, help_text='US dollars; never passed', max_digits=12, null=True, validators=[runs_app.models.bounded.InRange('experiment', 'max_usd')], verbose_name='budget'),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='priority',
            field=models.SmallIntegerField(db_default=0, default=0, help_text='Where experiments share an endpoint, a higher one goes first: -9 to 9', validators=[runs_app.models.bounded.InRange('experiment', 'priority')]),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='request_timeout_s',
            field=models.FloatField(default=60, help_text='Seconds a call may take', validators=[runs_app.models.bounded.InRange('experiment', 'request_timeout_s')], verbose_name='time-out'),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='samples',
            field=models.PositiveIntegerField(default=1, help_text='Repetitions of each cell', validators=[runs_app.models.bounded.InRange('experiment', 'samples')]),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='stop_after_attempts',
            field=models.PositiveIntegerField(default=20, help_text='... once this many attempts were made', validators=[runs_app.models.bounded.InRange('experiment', 'stop_after_attempts')]),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='stop_failure_rate',
            field=models.FloatField(default=0.05, help_text='Share of permanent failures above which a run stops itself, with 95 % confidence', validators=[runs_app.models.bounded.InRange('experiment', 'stop_failure_rate')]),
        ),
        migrations.AlterField(
            model_name='languagemodel',
            name='batch_discount',
            field=models.DecimalField(decimal_places=3, default=Decimal('0.5'), help_text='Share of these prices that a call in a batch saves', max_digits=4, validators=[runs_app.models.bounded.InRange('languagemodel', 'batch_discount')]),
        ),
        migrations.AlterField(
            model_name='languagemodel',
            name='cache_read_price',
            field=models.DecimalField(blank=True, decimal_places=6, max_digits=12, null=True, validators=[runs_app.models.bounded.InRange('languagemodel', 'cache_read_price')]),
        ),
        migrations.AlterField(
            model_name='languagemodel',
            name='cache_write_price',
            field=models.DecimalField(blank=True, decimal_places=6, max_digits=12, null=True, validators=[runs_app.models.bounded.InRange('languagemodel', 'cache_write_price')]),
        ),
        migrations.AlterField(
            model_name='languagemodel',
            name='input_price',
            field=models.DecimalField(blank=True, decimal_places=6, max_digits=12, null=True, validators=[runs_app.models.bounded.InRange('languagemodel', 'input_price')]),
        ),
        migrations.AlterField(
            model_name='languagemodel',
            name='max_output_tokens',
            field=models.PositiveIntegerField(blank=True, help_text='The most it writes in one answer: the ceiling of a call whose sampler sets no max_tokens', null=True, validators=[runs_app.models.bounded.InRange('languagemodel', 'max_output_tokens')]),
        ),
        migrations.AlterField(
            model_name='languagemodel',
            name='output_price',
            field=models.DecimalField(blank=True, decimal_places=6, max_digits=12, null=True, validators=[runs_app.models.bounded.InRange('languagemodel', 'output_price')]),
        ),
        migrations.AlterField(
            model_name='run',
            name='max_concurrency',
            field=models.PositiveIntegerField(default=32, validators=[runs_app.models.bounded.InRange('run', 'max_concurrency')]),
        ),
        migrations.AlterField(
            model_name='sampler',
            name='max_tokens',
            field=models.PositiveIntegerField(blank=True, null=True, validators=[runs_app.models.bounded.InRange('sampler', 'max_tokens')]),
        ),
        migrations.AlterField(
            model_name='sampler',
            name='seed',
            field=models.BigIntegerField(blank=True, help_text="The first epoch's seed; each further epoch adds one", null=True, validators=[runs_app.models.bounded.InRange('sampler', 'seed')]),
        ),
        migrations.AlterField(
            model_name='sampler',
            name='temperature',
            field=models.FloatField(blank=True, null=True, validators=[runs_app.models.bounded.InRange('sampler', 'temperature')]),
        ),
        migrations.AlterField(
            model_name='sampler',
            name='top_p',
            field=models.FloatField(blank=True, null=True, validators=[runs_app.models.bounded.InRange('sampler', 'top_p')]),
        ),
        migrations.AddConstraint(
            model_name='dimension',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('scale_min__gte', -1000000), ('scale_min__lte', 1000000)), name='dimension_scale_min_in_range'),
        ),
        migrations.AddConstraint(
            model_name='dimension',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('scale_max__gte', -1000000), ('scale_max__lte', 1000000)), name='dimension_scale_max_in_range'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('max_concurrency__gte', 1), ('max_concurrency__lte', 100000)), name='endpoint_max_concurrency_in_range'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('requests_per_minute__gte', 1), ('requests_per_minute__lte', 10000000)), name='endpoint_requests_per_minute_in_range'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('tokens_per_minute__gte', 1), ('tokens_per_minute__lte', 1000000000)), name='endpoint_tokens_per_minute_in_range'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('requests_per_day__gte', 1), ('requests_per_day__lte', 1000000000)), name='endpoint_requests_per_day_in_range'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('batch_max_requests__gte', 1), ('batch_max_requests__lte', 50000)), name='endpoint_batch_max_requests_in_range'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('batch_max_open__gte', 1), ('batch_max_open__lte', 1000)), name='endpoint_batch_max_open_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('samples__gte', 1), ('samples__lte', 10000)), name='experiment_samples_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('max_concurrency__gte', 1), ('max_concurrency__lte', 100000)), name='experiment_max_concurrency_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('priority__gte', -9), ('priority__lte', 9)), name='experiment_priority_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('request_timeout_s__gte', 0.1), ('request_timeout_s__lte', 3600)), name='experiment_request_timeout_s_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('max_attempts__gte', 1), ('max_attempts__lte', 20)), name='experiment_max_attempts_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('lease_s__gte', 1), ('lease_s__lte', 86400)), name='experiment_lease_s_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('stop_failure_rate__gte', 0), ('stop_failure_rate__lte', 1)), name='experiment_stop_failure_rate_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('stop_after_attempts__gte', 1), ('stop_after_attempts__lte', 1000000)), name='experiment_stop_after_attempts_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('max_usd__gte', 0), ('max_usd__lte', 10000000)), name='experiment_max_usd_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('confirm_above_usd__gte', 0), ('confirm_above_usd__lte', 10000000)), name='experiment_confirm_above_usd_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(models.Q(('adaptive__round__gte', 1), ('adaptive__round__lte', 10000)), ('adaptive__round__isnull', True), _connector='OR'), models.Q(models.Q(('adaptive__max__gte', 1), ('adaptive__max__lte', 1000000)), ('adaptive__max__isnull', True), _connector='OR'), models.Q(models.Q(('adaptive__targetci__gte', 0), ('adaptive__targetci__lte', 1000000)), ('adaptive__targetci__isnull', True), _connector='OR'), models.Q(models.Q(('adaptive__targetciht__gte', 0), ('adaptive__targetciht__lte', 1000000)), ('adaptive__targetciht__isnull', True), _connector='OR'), models.Q(models.Q(('adaptive__minci__gte', 0), ('adaptive__minci__lte', 1000000)), ('adaptive__minci__isnull', True), _connector='OR'), models.Q(models.Q(('adaptive__abortht__gte', 0), ('adaptive__abortht__lte', 1)), ('adaptive__abortht__isnull', True), _connector='OR'), models.Q(models.Q(('adaptive__backoffht__gte', 0), ('adaptive__backoffht__lte', 1)), ('adaptive__backoffht__isnull', True), _connector='OR'), models.Q(models.Q(('adaptive__confidence__gte', 0.5), ('adaptive__confidence__lte', 0.999)), ('adaptive__confidence__isnull', True), _connector='OR')), name='experiment_adaptive_in_range', violation_error_message='adaptive has a number that is not allowed.'),
        ),
        migrations.AddConstraint(
            model_name='languagemodel',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('input_price__gte', 0), ('input_price__lte', 100000)), name='languagemodel_input_price_in_range'),
        ),
        migrations.AddConstraint(
            model_name='languagemodel',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('output_price__gte', 0), ('output_price__lte', 100000)), name='languagemodel_output_price_in_range'),
        ),
        migrations.AddConstraint(
            model_name='languagemodel',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('cache_read_price__gte', 0), ('cache_read_price__lte', 100000)), name='languagemodel_cache_read_price_in_range'),
        ),
        migrations.AddConstraint(
            model_name='languagemodel',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('cache_write_price__gte', 0), ('cache_write_price__lte', 100000)), name='languagemodel_cache_write_price_in_range'),
        ),
        migrations.AddConstraint(
            model_name='languagemodel',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('max_output_tokens__gte', 1), ('max_output_tokens__lte', 10000000)), name='languagemodel_max_output_tokens_in_range'),
        ),
        migrations.AddConstraint(
            model_name='languagemodel',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('batch_discount__gte', 0), ('batch_discount__lte', 1)), name='languagemodel_batch_discount_in_range'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('max_concurrency__gte', 1), ('max_concurrency__lte', 100000)), name='run_max_concurrency_in_range'),
        ),
        migrations.AddConstraint(
            model_name='sampler',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('temperature__gte', 0), ('temperature__lte', 2)), name='sampler_temperature_in_range'),
        ),
        migrations.AddConstraint(
            model_name='sampler',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('top_p__gte', 0), ('top_p__lte', 1)), name='sampler_top_p_in_range'),
        ),
        migrations.AddConstraint(
            model_name='sampler',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('max_tokens__gte', 1), ('max_tokens__lte', 10000000)), name='sampler_max_tokens_in_range'),
        ),
        migrations.AddConstraint(
            model_name='sampler',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('seed__gte', -9007199254740991), ('seed__lte', 9007199254740991)), name='sampler_seed_in_range'),
        ),
    ]
