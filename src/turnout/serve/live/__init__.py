"""`WS /api/live`: who looks at what, and what each of them is sent.

`endpoint.py` is one connection, `outbox.py` what waits to be sent on it, `hub.py` everything that is followed,
`windows.py` with `merging.py` and `changes.py` with `snapshots.py` the two kinds of following, `encoding.py` the bytes.
"""
