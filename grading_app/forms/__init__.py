"""The forms of pages, and the choices in their addresses."""
