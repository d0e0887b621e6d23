"""Building blocks of pages: lists, filters, forms, uploads, htmx, icons and the admin site."""
