"""What the API server remembers: objects as bytes, one resourceVersion for all, history for watches.

What may live here: storage, versions, selectors and history. Nothing here knows a kind, a patch or HTTP, nor reads the clock.
"""
