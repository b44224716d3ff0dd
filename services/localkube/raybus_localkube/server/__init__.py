"""The API server: what a request means. Transport (http.py) and process (process.py) stand at the rim.

What may live here: requests and answers, routing, verbs, discovery, sign-in and the process that serves them.
"""
