"""The URL configuration of the whole site."""

from importlib.util import find_spec

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path

from evalsite import views
from evalsite.home import home
from evalsite.lib.web.sign_in import SignInView, welcome
from evalsite.views import search

admin.autodiscover()  # Not earlier (`evalsite.apps`).

urlpatterns = [
    path("", home, name="home"),
    path("healthz", views.healthz, name="healthz"),
    path("llms.txt", views.llms_txt, name="llms_txt"),
    path("search/", search, name="search"),
    path("welcome/", welcome, name="welcome"),
    path("help/", views.help_page, name="help"),
    path("help/images/<path:name>", views.help_image, name="help_image"),
    path("help/<slug:name>/", views.help_page, name="help_page"),
    path("accounts/login/", SignInView.as_view(), name="login"),
    path("accounts/logout/", auth.LogoutView.as_view(), name="logout"),
    path("accounts/password/", auth.PasswordChangeView.as_view(), name="password_change"),
    path("accounts/password/done/", auth.PasswordChangeDoneView.as_view(), name="password_change_done"),
    path("admin/", admin.site.urls),
    *(
        path("", include(module))
        for module in ("datasets_app.urls", "runs_app.urls", "grading_app.urls", "evalsite.api.urls")
        if find_spec(module)
    ),
]
if settings.DEBUG:
    urlpatterns += [path("styleguide/", views.styleguide, name="styleguide")]
