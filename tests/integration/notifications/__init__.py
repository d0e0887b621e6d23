"""Messages to people when runs end."""
