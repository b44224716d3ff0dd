"""The vocabulary of decisions: trees in, plans of actions out, outcomes back; routes; reasons of events. Pure."""
