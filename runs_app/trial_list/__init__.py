"""The list of trials: its search and pages by key, its orders, and the other answers to an item."""
