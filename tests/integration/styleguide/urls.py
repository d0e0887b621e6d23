"""The site's URLs with the style guide, regardless of DEBUG."""

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import path

from evalsite import styleguide
from evalsite.urls import urlpatterns as site


@login_not_required
def guide(request):
    if request.method == "POST":
        return HttpResponse('<link rel="icon" href="data:,"><body>posted')
    return render(request, "styleguide.html", styleguide.build_context(request))


@login_not_required
def raise_permission_denied(request):
    raise PermissionDenied


@login_not_required
def raise_server_error(request):
    raise RuntimeError("a secret of the server")


urlpatterns = [
    path("guide/", guide, name="styleguide"),
    path("forbidden/", raise_permission_denied),
    path("broken/", raise_server_error),
    *site,
]
