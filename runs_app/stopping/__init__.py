"""When enough has been seen, and how often an interval that stops there covers the truth. Pure."""
