"""Record formats besides JSON: bytes -> values of the declared columns, by libraries that know the format.

Spark's Python workers get these modules by value, so they import nothing of Turnout but each other.
"""
