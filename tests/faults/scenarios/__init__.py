"""One function for each fault."""
