"""Why a tree is looked at, in words, and which of these words do not wait for the end of a hold. Pure.

The word is a pass's `trigger` in logs and history. Which objects belong to a tree, and so give such words, are the routes in each
service's triggers.py.
"""

from __future__ import annotations

TAKE_OVER = "take-over"
RESYNC = "resync"
DEADLINE = "deadline"
RETRY = "retry after a failure"
AGAIN = "more to do"

URGENT_WORDS = ("deleted", "failed", "spec")


def is_urgent(trigger: str) -> bool:
    """News of a deletion, a failure or a changed spec; counters may wait, these may not."""
    words = trigger.lower()
    return any(word in words for word in URGENT_WORDS)
