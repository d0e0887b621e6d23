"""The claims, batch leases, workers and tasks that a restored backup holds of the processes of its site."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.db import connection
from django.db.models import F
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signing import BadSignature, SignedPackage

from evalsite.lib.text.number_format import format_count
from runs_app.engine.leases import sweep_expired
from runs_app.models import Preflight, ProviderBatch, Worker
from runs_app.taskqueue.task_payloads import check_task


def read_database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        time: datetime = cursor.fetchone()[0]
    return time


def take_over(restored_at: datetime) -> Iterator[str]:
    """Release what processes of the backed up site held, so that work continues at once. Yield a sentence for each.

    `restored_at` is the database's time before the restore: a worker of this site may have started meanwhile.
    """
    workers = Worker.objects.filter(started_at__lt=restored_at, stopped_at=None)
    ProviderBatch.objects.filter(worker_id__in=workers.values("pk")).update(claim=None, lease_until=None)
    Preflight.objects.filter(status=Preflight.Status.RUNNING).update(lease_until=restored_at)
    workers.update(stopped_at=F("seen_at"), trouble="")
    if released := sum(iter(lambda: sweep_expired(restored_at), 0)):
        yield (
            f"{format_count(released)} calls were in flight at the backup. Their claims are released, and they are made"
            " again."
        )
    if removed := _requeue_tasks():
        yield (
            f"{format_count(removed)} tasks were signed with another EVALSITE_SECRET_KEY and are removed. The site"
            " continues its runs without them; start again what else was under way, such as an import or a snapshot."
        )


def _requeue_tasks() -> int:
    """Return the tasks of the backed up site to the shared queue. Remove tasks that this site would refuse.

    Return the number of removed tasks.
    """
    removed = 0
    for task in OrmQ.objects.all():
        try:
            check_task(SignedPackage.loads(task.payload))
        except (BadSignature, TypeError, ValueError):
            task.delete()
            removed += 1
    OrmQ.objects.filter(key__endswith=".pulse").delete()
    OrmQ.objects.update(key=Conf.CLUSTER_NAME, lock=timezone.now())
    return removed
