"""The variable of an endpoint's key has the name of a key, and is none of the site's own."""

from django.db import migrations, models

import runs_app.models.endpoints
from runs_app.models.bounded import RangeConstraint

NAME = r"^[A-Z][A-Z0-9_]*_(KEY|TOKEN)$"
OWN = (
    r"^(EVALSITE|DJANGO|DATABASE|POSTGRES|AWS|SSH|GPG|GITHUB|GH|GITLAB|CI|ACTIONS|DOCKER|KUBE[A-Z]*|SYSTEMD|DBUS|SUDO)_"
    r"|^(SECRET_KEY|CREDENTIALS_KEY|SESSION_TOKEN)$"
)
# An endpoint of another name is not called until an operator names a variable that may hold a key.
TAKE_BACK = f"""
UPDATE runs_app_endpoint SET key_env = '', is_active = false,
    pause_reason = left('Its key variable ' || key_env || ' may not hold a key. Name another one.', 200)
WHERE key_env <> '' AND (key_env !~ '{NAME}' OR key_env ~ '{OWN}');
SET CONSTRAINTS ALL IMMEDIATE;
"""  # noqa: S608 - built from the names above


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0028_sampler_extra")]

    operations = [
        migrations.RunSQL(TAKE_BACK, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="endpoint",
            name="key_env",
            field=models.CharField(
                blank=True,
                help_text="The environment variable that holds the key: a name that ends in _API_KEY, _KEY or _TOKEN",
                max_length=80,
                validators=[runs_app.models.endpoints.key_name_validator],
                verbose_name="key variable",
            ),
        ),
        migrations.AddConstraint(
            model_name="endpoint",
            constraint=RangeConstraint(
                condition=models.Q(key_env="")
                | (models.Q(key_env__regex=NAME) & ~models.Q(key_env__regex=OWN)),
                name="endpoint_key_env_is_a_key",
            ),
        ),
    ]
