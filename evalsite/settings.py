"""Django settings, read from the environment. Unknown or unsafe settings stop the start."""

import logging
import os
import secrets
from typing import Any

from evalsite.lib.ops import environment, installation
from evalsite.lib.ops.data_folder import explain_unusable, make_data_folder

environment.refuse_unknown()
# Matrices are small here, and several processes share the processors: threads of linear algebra would only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

BASE_DIR = installation.ROOT
DATA_DIR = installation.get_data_dir()
MEDIA_ROOT = DATA_DIR / "media"
RESULT_SPOOL_DIR = DATA_DIR / "journal"  # The result spool: answers that the database does not have yet.
DEBUG = environment.read_flag("EVALSITE_DEBUG")
ALLOWED_HOSTS = environment.read_words("EVALSITE_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
if "*" in ALLOWED_HOSTS and not DEBUG:
    raise environment.SettingError("EVALSITE_ALLOWED_HOSTS must name the hosts; '*' would accept forged ones")
# Hosts that may serve models, in addition to the providers' own hosts. Loopback is always allowed.
LLM_ALLOWED_HOSTS = environment.read_words("EVALSITE_LLM_ALLOWED_HOSTS")
# Hosts that may receive webhooks, such as hooks.example.org or 127.0.0.1:9000. Nothing is allowed without an entry.
WEBHOOK_HOSTS = environment.read_words("EVALSITE_WEBHOOK_HOSTS")
SITE_URL = os.environ.get("EVALSITE_SITE_URL", "").rstrip("/")  # For links in messages.
EMAIL_HOST = os.environ.get("EVALSITE_EMAIL_HOST", "")  # Without it, the site sends no mail.
EMAIL_PORT = environment.read_whole_number("EVALSITE_EMAIL_PORT", default=587)
EMAIL_HOST_USER = os.environ.get("EVALSITE_EMAIL_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("EVALSITE_EMAIL_PASSWORD", "")
EMAIL_USE_TLS = environment.read_flag("EVALSITE_EMAIL_TLS")
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = os.environ.get("EVALSITE_EMAIL_FROM", "evalsite@localhost")
LLM_KEY_NAMES = environment.read_words("EVALSITE_LLM_KEY_NAMES")  # In addition to runs_app/llm/keys.py.
CALL_OBSERVER = os.environ.get("EVALSITE_CALL_OBSERVER", "").strip()  # runs_app/llm/call_observer.py


def _load_secret_key() -> str:
    """Return the secret key from the environment, or create one once in a file that only its owner can read."""
    key = os.environ.get("EVALSITE_SECRET_KEY")
    if key is not None:
        if len(key) < 32:
            raise environment.SettingError("EVALSITE_SECRET_KEY must have at least 32 characters")
        return key
    path = DATA_DIR / "secret_key"
    make_data_folder(DATA_DIR)
    draft = path.with_name(f"secret_key.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)  # Fails if another process was faster. This process then uses that key.
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()


try:
    SECRET_KEY = _load_secret_key()
except OSError as error:
    raise environment.SettingError(explain_unusable(DATA_DIR, error)) from error


def _read_connection_parameters() -> dict[str, Any]:
    if url := os.environ.get("DATABASE_URL"):
        from psycopg import conninfo

        return dict(conninfo.conninfo_to_dict(url))
    from evalsite.lib.ops.postgres import Embedded

    return dict(Embedded(DATA_DIR / "postgres").connection())


# A machine that fails does not close its connections. With these settings both ends detect that within half a minute.
# A session that is idle in a transaction, for example of a frozen machine, is ended after one minute. Until then it
# may hold locks that everybody waits for.
CLIENT_TIMEOUTS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
SERVER_TIMEOUTS = (
    "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout=25000"
    " -c idle_in_transaction_session_timeout=60000"
)


def _build_database_settings() -> dict[str, Any]:
    """Return the database settings: DATABASE_URL, or the socket of the embedded server. Start nothing."""
    parameters = _read_connection_parameters()
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parameters.pop("dbname", "evalsite"),
        "USER": parameters.pop("user", ""),
        "PASSWORD": parameters.pop("password", "") or "",
        "HOST": parameters.pop("host", ""),
        "PORT": parameters.pop("port", ""),
        "CONN_MAX_AGE": 3600,  # A new connection reads the catalogue again.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "application_name": "evalsite",
            **CLIENT_TIMEOUTS,
            **parameters,
            "options": f"{SERVER_TIMEOUTS} {parameters.get('options', '')}",
        },
    }


DATABASES = {"default": _build_database_settings()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "evalsite.lib",
    "datasets_app",
    "runs_app",
    "grading_app",
    "evalsite.apps.EvalsiteAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django.forms",
    "django_filters",
    "django_htmx",
    "django_q",
    "django_tables2",
    "csp",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "evalsite.middleware.HealthMiddleware",
    "evalsite.api.token_middleware.ProblemMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "evalsite.middleware.CompressionMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "evalsite.middleware.ControlCharactersMiddleware",
    "evalsite.middleware.StorableRequestMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "evalsite.api.token_middleware.TokenMiddleware",
    "evalsite.middleware.SignInRequiredMiddleware",
    "evalsite.middleware.NoStoreMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "evalsite.middleware.TimezoneMiddleware",
    "grading_app.grading.rating.blind_pages.BlindPagesMiddleware",
    "evalsite.middleware.StoredRowsMiddleware",
]

ROOT_URLCONF = "evalsite.urls"
WSGI_APPLICATION = "evalsite.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [installation.get_shipped_folder("templates")],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["evalsite.lib.templatetags.evalsite_tags"],
        },
    }
]
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"
DJANGO_TABLES2_TEMPLATE = "tables/table.html"

LANGUAGE_CODE = "en-gb"
FORMAT_MODULE_PATH = "evalsite.formats"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "static/"
STATICFILES_DIRS = [installation.PACKAGE / "static"]
# `up` collects the static files for its web server. All other processes, and tests, use them where they are.
COLLECTED = os.environ.get("EVALSITE_STATIC_ROOT", "")
STATIC_ROOT = COLLECTED or None
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if COLLECTED
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
# With a bucket, machines need no shared folder for images (evalsite/lib/ops/shared_files.py). Its keys are in the
# variables that all programs for S3 read, such as AWS_ACCESS_KEY_ID.
if bucket := environment.read_bucket():
    STORAGES["shared"] = {"BACKEND": "evalsite.lib.ops.s3_storage.Bucket", "OPTIONS": bucket}
WHITENOISE_USE_FINDERS = not COLLECTED
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
WHITENOISE_AUTOREFRESH = DEBUG

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Set if a TLS proxy is in front of the site. Cookies are then sent only over https, and browsers remember to use it.
HTTPS = environment.read_flag("EVALSITE_HTTPS")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$"]  # `up`, monitors and containers request it without TLS.
# Silence the advice on HSTS for subdomains and on HSTS preload. The owner of the whole domain decides both.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
# Proxies whose X-Forwarded-For is trusted. The limit on sign-ins per address needs it.
TRUSTED_PROXIES = environment.read_networks("EVALSITE_TRUSTED_PROXIES")
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
CSRF_TRUSTED_ORIGINS = [f"https://{host.removeprefix('.')}" for host in ALLOWED_HOSTS] if HTTPS else []
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "base-uri": ["'none'"],
        "object-src": ["'none'"],
        "frame-ancestors": ["'none'"],
        "form-action": ["'self'"],
        "img-src": ["'self'", "data:"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
    }
}
FILE_UPLOAD_PERMISSIONS, FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o600, 0o700
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 2**20
FILE_UPLOAD_MAX_MEMORY_SIZE = 2 * 2**20
UPLOAD_BYTES = 1152 * 2**20  # All files of one request: items and images of 512 MiB each, norms of 128 MiB.
LARGE_BODY_CHECK = "evalsite.api.token_middleware.is_sent_by_an_account"  # The web server asks it first.
FILE_UPLOAD_HANDLERS = [
    "evalsite.lib.web.uploads.BoundedUpload",
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "django.core.files.uploadhandler.TemporaryFileUploadHandler",
]

# Drains that this machine's task queue runs at once. One more worker serves test calls and grading without waiting.
DRAINS = environment.read_whole_number("EVALSITE_DRAINS", default=2)
DRAIN_SECONDS = 30
# An endpoint that does not answer for longer than this stops its runs (runs_app/engine/rate_limiter.py).
OUTAGE_LIMIT_S = 60 * environment.read_whole_number("EVALSITE_OUTAGE_MINUTES", default=240)
# A run stops after this many pauses of its endpoint by status 429 in a row.
RATE_LIMIT_PAUSES = environment.read_whole_number("EVALSITE_RATE_LIMIT_PAUSES", default=10)
# Raw responses of finished experiments are removed after so many days. 0 keeps them (grading_app/grading/retention.py).
RAW_RESPONSE_DAYS = environment.read_whole_number("EVALSITE_RAW_RESPONSE_DAYS", default=0, minimum=0)
DRAIN_CONCURRENCY = 256
Q_WORKERS = DRAINS + 1
Q_CLUSTER: dict[str, Any] = {
    "name": "evalsite",
    "orm": "default",
    "broker_class": "runs_app.taskqueue.broker.Broker",
    "workers": Q_WORKERS,
    # The lock of a task starts when it is prefetched, not when it starts. Prefetch only as many tasks as can start.
    "queue_limit": Q_WORKERS,
    "bulk": 1,
    "timeout": 180,
    "retry": 3600,
    "max_attempts": 1,
    "ack_failures": True,
    "save_limit": 50,
    "catch_up": False,
    # The rows of the schedule table are not signed. `up` enqueues periodic tasks (runs_app/taskqueue/broker.py).
    "scheduler": False,
    "poll": 0.5,
    "label": "Task queue",
    "time_zone": "UTC",
}


def _drop_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"one_line": {"()": "django.utils.log.CallbackFilter", "callback": _drop_traceback}},
    "formatters": {
        "text": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
        "json": {"()": "evalsite.lib.ops.json_log.JsonFormatter"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": environment.read_choice("EVALSITE_LOG_FORMAT", ("text", "json")),
        }
    },
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        "evalsite": {"level": "INFO"},
        # Anybody can send a request with a wrong host name, as often as they like.
        "django.security.DisallowedHost": {"filters": ["one_line"]},
    },
}
