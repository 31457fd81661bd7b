"""The identity provider of `access.oidc`: asks it for its addresses, keys and tokens, and reads what tokens say.

`provider.py` speaks with it; `people.py` says who somebody is and which role that gives. `serve/` decides what to do
with it. Only a server with `access.oidc` imports this.
"""
