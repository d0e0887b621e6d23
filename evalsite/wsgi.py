"""The web server's door."""

import os

from django.core.wsgi import get_wsgi_application

from evalsite.lib.private_files import UMASK

os.umask(UMASK)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
application = get_wsgi_application()
