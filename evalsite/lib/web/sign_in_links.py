"""The page behind a one-time link: it makes the first operator of a site, or signs in to the account of the link.

The code stands in the fragment of the address (`/welcome/#CODE`), which browsers never send. So no access log, proxy or
referrer holds it. A script moves it into the form; without scripts, people paste it. Opening the link changes nothing.
"""

from __future__ import annotations

import math
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import login, password_validation
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from evalsite.lib.models import FailedSignIn, SignInLink, TooManyFailures
from evalsite.lib.web.sign_in import get_client_address

MAX_GUESSES = 20  # Wrong codes of one address within FailedSignIn.WINDOW.
BACKEND = "django.contrib.auth.backends.ModelBackend"
FIRST_ACCOUNT = 0x65766C66  # The key of an advisory lock.
WRONG_CODE = (
    "This link has expired, was used, or is incomplete. Links are valid once, for an hour."
    " The command manage.py sign_in_link prints a new one."
)


def build_link(url: str, user: Any = None) -> str:
    """Return a new one-time link to the site at `url`, for this account or for the first account of the site."""
    return f"{get_public_url(url).rstrip('/')}{reverse('welcome')}#{SignInLink.objects.issue(user)}"


def get_public_url(url: str) -> str:
    """Return the address of the site for browsers. Behind a TLS proxy that is not the address that `up` listens on."""
    return f"https://{settings.ALLOWED_HOSTS[0].removeprefix('.')}/" if settings.HTTPS else url


class LinkForm(forms.Form):
    """The code of a link. Wrong codes are limited by address, because a code says nothing about whose guess it is."""

    code = forms.CharField(
        max_length=500,
        label="Code",
        help_text="The part after # of the address in the terminal",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "data-code": ""}),
    )
    wait_s = 0
    link: SignInLink | None = None

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"].rpartition("#")[2].strip()
        try:
            attempt = FailedSignIn.objects.begin({f"link {get_client_address(self.request)}": MAX_GUESSES})
        except TooManyFailures as refusal:
            self.wait_s = refusal.seconds
            minutes = math.ceil(refusal.seconds / 60)
            raise ValidationError(f"There were too many wrong codes. Try again in {minutes} min.") from None
        self.link = SignInLink.objects.find_usable(code)
        if self.link is None:
            raise ValidationError(WRONG_CODE)
        FailedSignIn.objects.filter(pk__in=attempt).delete()
        return code

    def accept(self) -> Any:
        """Use the link and return its account. Raise ValidationError if another request used the link first."""
        link = self.link
        if link is None or link.user is None or not link.user.is_active or not link.use():
            raise ValidationError({"code": WRONG_CODE})
        return link.user


class FirstOperatorForm(LinkForm):
    """The name and password of the first account: a superuser, who can do everything on the site."""

    username = forms.CharField(
        max_length=150,
        label="Name",
        validators=[User.username_validator],
        widget=forms.TextInput(attrs={"autocomplete": "username", "autocapitalize": "none", "autofocus": True}),
    )
    password = forms.CharField(
        strip=False,
        help_text="At least 8 characters",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    field_order = ("username", "password", "code")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if password := cleaned.get("password"):
            try:
                password_validation.validate_password(password, User(username=cleaned.get("username", "")))
            except ValidationError as error:
                self.add_error("password", error)
        return cleaned

    @transaction.atomic
    def accept(self) -> Any:
        with connection.cursor() as cursor:  # Two links must not make two first accounts.
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [FIRST_ACCOUNT])
        if User.objects.exists() or self.link is None or not self.link.use():
            raise ValidationError({"code": WRONG_CODE})
        return User.objects.create_superuser(self.cleaned_data["username"], password=self.cleaned_data["password"])


@login_not_required
@never_cache
@sensitive_post_parameters("code", "password")
@require_http_methods(["GET", "HEAD", "POST"])
def welcome(request: HttpRequest) -> HttpResponse:
    is_first = not User.objects.exists()
    form_class = FirstOperatorForm if is_first else LinkForm
    form = form_class(request.POST if request.method == "POST" else None, request=request)
    if request.method == "POST" and form.is_valid():
        try:
            user = form.accept()
        except ValidationError as error:
            form.add_error(None, error)
        else:
            login(request, user, backend=BACKEND)
            return redirect("start" if is_first else "home")
    response = render(request, "registration/welcome.html", {"form": form, "is_first": is_first})
    if form.wait_s:
        response.status_code = 429
        response["Retry-After"] = str(form.wait_s)
    return response
