"""What a running service shows of itself: structured logs, metrics and health. Nothing here decides anything."""
