"""Endpoints of Services: which pods stand behind each, as EndpointSlices and as the older Endpoints objects.

What may live here: facts about pods and Services, the index between them, and what the two kinds of objects should hold.
"""
