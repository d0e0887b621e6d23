"""The processes of the site: web server and task queue of `up`, and the worker that drains trials."""
