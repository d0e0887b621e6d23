"""The models of the runs app: endpoints, language models, designs, experiments, runs, trials and their calls."""

from runs_app.models.annotations import Annotation
from runs_app.models.batches import ProviderBatch
from runs_app.models.cache import CachedAnswer
from runs_app.models.conditions import Condition, Manifest, Wave
from runs_app.models.designs import Dimension, Prompt, Sampler
from runs_app.models.endpoints import Endpoint, EndpointTick, LanguageModel
from runs_app.models.experiments import Experiment
from runs_app.models.ledger import DeletedRun, LedgerEntry
from runs_app.models.notifications import NoticedState, Notification, NotificationChoice
from runs_app.models.points import Point
from runs_app.models.preflights import Preflight
from runs_app.models.preregistrations import Preregistration
from runs_app.models.runs import Run, Tick
from runs_app.models.texts import ItemText, TextSet
from runs_app.models.tokens import ApiAllowance, ApiAnswer, ApiToken
from runs_app.models.trials import Answer, Attempt, ExternalCall, Trial, WorkUnit
from runs_app.models.workers import Worker

__all__ = [
    "Annotation",
    "Answer",
    "ApiAllowance",
    "ApiAnswer",
    "ApiToken",
    "Attempt",
    "CachedAnswer",
    "Condition",
    "DeletedRun",
    "Dimension",
    "Endpoint",
    "EndpointTick",
    "Experiment",
    "ExternalCall",
    "ItemText",
    "LanguageModel",
    "LedgerEntry",
    "Manifest",
    "NoticedState",
    "Notification",
    "NotificationChoice",
    "Point",
    "Preflight",
    "Preregistration",
    "Prompt",
    "ProviderBatch",
    "Run",
    "Sampler",
    "TextSet",
    "Tick",
    "Trial",
    "Wave",
    "WorkUnit",
    "Worker",
]
