"""The sign-in page, the page to which it returns people, and the page behind a one-time link.

The sign-in page limits guessing by account and by address, and returns people to a page that answers GET. A one-time
link makes the first operator of a site, or signs in to the account of the link. Its code stands in the fragment of the
address (`/welcome/#CODE`), which browsers never send. So no access log, proxy or referrer holds it. A script moves it
into the form; without scripts, people paste it. Opening the link changes nothing.
"""

from __future__ import annotations

import inspect
import ipaddress
import math
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib.auth import login, password_validation
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import resolve, reverse
from django.utils.crypto import salted_hmac
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from evalsite.lib.models import FailedSignIn, SignInLink, TooManyFailures


def accepts_get(view: Callable[..., Any]) -> bool:
    """Return whether a view answers GET. The view's class or Django's method decorators decide this."""
    view_class = getattr(view, "view_class", None)
    if view_class is not None:
        return hasattr(view_class, "get") and "get" in view_class.http_method_names
    current: Any = view
    while current is not None:
        if isinstance(current, partial):  # As the views of the API's document.
            current = current.func
        methods = inspect.getclosurevars(current).nonlocals.get("request_method_list")
        if methods is not None and "GET" not in methods:
            return False
        current = getattr(current, "__wrapped__", None)
    return True


def _is_page(path: str) -> bool:
    try:
        return accepts_get(resolve(path).func)
    except Http404:
        return False


def find_nearest_page(address: str) -> str:
    """Return the address if it answers GET, else the nearest address above it that does."""
    path = urlsplit(address).path
    if _is_page(path):
        return address
    while path.strip("/"):
        path = path.rstrip("/").rpartition("/")[0] + "/"
        if _is_page(path):
            return path
    return "/"


def find_page(request: HttpRequest) -> str:
    """Return the page that the person was on. For a form or a part of a page, return the page that contains it."""
    referer = request.headers.get("Referer") if request.method == "POST" else ""
    current_url = request.headers.get("HX-Current-URL") or referer
    if current_url and url_has_allowed_host_and_scheme(
        current_url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        parts = urlsplit(current_url)
        return find_nearest_page(f"{parts.path}?{parts.query}" if parts.query else parts.path)
    return find_nearest_page(request.get_full_path())


# Allowed failures within FailedSignIn.WINDOW. A whole institute may share one address.
ACCOUNT_FAILURES, ADDRESS_FAILURES, BROWSER_FAILURES = 10, 50, 10
BROWSER_COOKIE, BROWSER_SALT, BROWSER_S = "known_browser", "evalsite.sign_in", 365 * 24 * 3600
THROTTLED = "throttled"


def hash_account(name: str) -> str:
    """Return the key of an account. It is a hash, because people sometimes type a password into the name field."""
    return f"account {salted_hmac('evalsite.sign_in', name.casefold(), algorithm='sha256').hexdigest()[:40]}"


def hash_address(address: str) -> str:
    return f"address {address}"


def get_client_address(request: HttpRequest) -> str:
    """Return the client's address; for IPv6, return its /64 network.

    X-Forwarded-For is used only if it comes from a trusted proxy. The client is then the last address in it that is not
    a trusted proxy.
    """
    address = request.META.get("REMOTE_ADDR", "")
    forwarded = [part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",")]
    while forwarded and _is_trusted_proxy(address):
        address = forwarded.pop()
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if parsed.version == 6 and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network((parsed, 64), strict=False))


def _is_trusted_proxy(address: str) -> bool:
    try:
        return any(ipaddress.ip_address(address) in network for network in settings.TRUSTED_PROXIES)
    except ValueError:
        return False


def _find_browser_key(request: HttpRequest, account: str) -> str | None:
    """Return the key of a browser that has signed in to this account before, or None for other browsers."""
    try:
        content = signing.loads(request.COOKIES.get(BROWSER_COOKIE, ""), salt=BROWSER_SALT, max_age=BROWSER_S)
    except signing.BadSignature:
        return None
    return f"browser {content['browser']}" if content["account"] == account else None


def list_attempt_limits(request: HttpRequest, name: str) -> dict[str, int]:
    """Return the keys that an attempt counts for, each with its limit.

    A browser that has signed in to the account before has its own counter. Guesses from elsewhere therefore cannot lock
    people out of their own account.
    """
    account = hash_account(name)
    if browser := _find_browser_key(request, account):
        return {browser: BROWSER_FAILURES}
    return {account: ACCOUNT_FAILURES, hash_address(get_client_address(request)): ADDRESS_FAILURES}


def clear_failures(keys: Iterable[str] | None = None) -> int:
    """Delete failures under these keys, or all failures. Return the number of deleted failures."""
    failures = FailedSignIn.objects.all() if keys is None else FailedSignIn.objects.filter(key__in=list(keys))
    return failures.delete()[0]


class SignInForm(AuthenticationForm):
    """A sign-in form that refuses too many attempts before it checks the password, also for unknown names."""

    wait_s = 0

    def clean(self) -> dict[str, Any]:
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        attempt: list[int] = []
        if name and password:
            attempt = self._begin_attempt(name)
        cleaned = super().clean()
        FailedSignIn.objects.filter(pk__in=attempt).delete()
        return cleaned

    def _begin_attempt(self, name: str) -> list[int]:
        try:
            return FailedSignIn.objects.begin(list_attempt_limits(cast(HttpRequest, self.request), name))
        except TooManyFailures as refusal:
            self.wait_s = refusal.seconds
            minutes = math.ceil(refusal.seconds / 60)
            wait = "1 minute" if minutes == 1 else f"{minutes} minutes"
            raise forms.ValidationError(
                f"There were too many failed attempts to sign in. Wait {wait}, then try again. If you cannot wait, "
                "ask an operator to unlock sign-ins.",
                code=THROTTLED,
            ) from None


class SignInView(LoginView):
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs, has_accounts=User.objects.exists())

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        """Return the address in `next`, or the nearest page above it if it accepts only POST. "" without `next`."""
        address = super().get_redirect_url()
        return find_nearest_page(address) if address else ""

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_valid(form)
        content = {"account": hash_account(form.cleaned_data["username"]), "browser": secrets.token_hex(16)}
        response.set_cookie(
            BROWSER_COOKIE,
            signing.dumps(content, salt=BROWSER_SALT),
            max_age=BROWSER_S,
            path=self.request.path,
            secure=settings.HTTPS,
            httponly=True,
            samesite="Lax",
        )
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_invalid(form)
        if isinstance(form, SignInForm) and form.wait_s:
            response.status_code = 429
            response["Retry-After"] = str(form.wait_s)
        return response


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
