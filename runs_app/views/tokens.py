"""The page on which people make and revoke access tokens of the API. Operators see the tokens of all accounts."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from evalsite.lib.permissions import is_operator, readers_only
from runs_app.forms.tokens import ApiTokenForm
from runs_app.models import ApiToken
from runs_app.tables.tokens import ApiTokenTable
from runs_app.views.permissions import get_posted_data

MAX_SHOWN = 200  # Tokens in each list.


@require_http_methods(["GET", "HEAD", "POST"])
@readers_only
def token_list(request: HttpRequest) -> HttpResponse:
    """List tokens, and create one. Its text is shown once, because only its hash is stored."""
    form, text = ApiTokenForm(get_posted_data(request)[0], request.user), ""
    if request.method == "POST" and form.is_valid():
        chosen = form.cleaned_data
        _, text = ApiToken.create(
            request.user, chosen["label"], chosen["scope"], form.expires_at, experiment=chosen["experiment"]
        )
        form = ApiTokenForm(None, request.user)
    visible = ApiToken.objects.visible_to(request.user).select_related("user", "experiment")
    others = visible.exclude(user=request.user.pk) if is_operator(request.user) else visible.none()
    context = {
        "form": form,
        "text": text,
        "tokens": ApiTokenTable(list(visible.filter(user=request.user.pk)[:MAX_SHOWN]), exclude=("user",)),
        "others": ApiTokenTable(list(others[:MAX_SHOWN])),
        "sees_others": is_operator(request.user),
    }
    response = render(request, "runs_app/token_list.html", context)
    response["Cache-Control"] = "private, no-store"
    return response


@require_POST
@readers_only
def token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(ApiToken.objects.visible_to(request.user), pk=pk)
    changed = token.revoke(by=request.user)
    messages.success(request, f"{token} is revoked." if changed else f"{token} was revoked before.")
    return redirect("token_list")
