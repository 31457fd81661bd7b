"""`WS /api/live`: the subscriptions of viewers, and what each is sent.

`endpoint.py` is one viewer and what it asks for, `outbox.py` its subscriptions with what waits to be sent,
`hub.py` all subscriptions, and what those to the same share: a window (`windows.py`), changes (`changes.py`), or an
answer that is computed (`summaries.py`, `computed.py`).
"""
