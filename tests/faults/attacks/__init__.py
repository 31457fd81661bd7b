"""What one client does to the others: fifty ordinary viewers, and attacks played beside them.

Store and server are real, and so is every batch; Spark is left out, since no attack reaches it: batches come as fast as
they would from a stream, written by the same code.
"""
