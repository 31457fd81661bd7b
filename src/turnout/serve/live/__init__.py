"""`WS /api/live`: the subscriptions of viewers, and what each is sent.

`endpoint.py` is one viewer, `parsing.py` what it asks for, `outbox.py` its subscriptions with what waits to be sent,
`hub.py` all subscriptions, `shared.py` what those to the same share: `windows.py` with `merging.py`, and `changes.py`.
"""
