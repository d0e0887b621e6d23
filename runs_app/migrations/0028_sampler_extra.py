"""A sampler's further parameters are those of a fixed list: an unknown one could raise what a call costs."""

from django.db import migrations, models

from runs_app.llm import parameters

NAMES = """chat_template_kwargs enable_thinking frequency_penalty ignore_eos include_reasoning keep_alive length_penalty
logit_bias logprobs max_completion_tokens min_p min_tokens mirostat num_ctx presence_penalty provider reasoning
repeat_last_n repeat_penalty repetition_penalty service_tier skip_special_tokens stop think thinking thinking_budget
thinking_token_budget top_a top_k top_logprobs verbosity"""

# Not valid: samplers from before are kept as they are. The gateway refuses a call with one of their other parameters.
SQL = f"""
ALTER TABLE runs_app_sampler ADD CONSTRAINT runs_app_sampler_extra_is_allowed CHECK (
    CASE WHEN jsonb_typeof(extra) = 'object' THEN extra - ARRAY[{", ".join(f"'{name}'" for name in NAMES.split())}]
    = '{{}}'::jsonb ELSE false END
) NOT VALID
"""
UNDO = "ALTER TABLE runs_app_sampler DROP CONSTRAINT runs_app_sampler_extra_is_allowed"


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0027_queue_tables_run_nothing")]

    operations = [
        migrations.RunSQL(SQL, UNDO),
        migrations.AlterField(
            model_name="sampler",
            name="extra",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="Further parameters, as a JSON mapping",
            ),
        ),
    ]
