"""The text of a control message as the store keeps it: any bytes, at most as many as a message may have."""

from __future__ import annotations

from turnout.plan.control import MAX_MESSAGE_BYTES


def kept_text(raw: bytes | str | None) -> tuple[str | None, bool]:
    """What is kept, and whether it says the same as what came: not where it is cut, or has bytes that are no text."""
    if raw is None:
        return None, True
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    # Escaping makes up to four bytes of one, so it is cut before and after.
    text = data[:MAX_MESSAGE_BYTES].decode("utf-8", "backslashreplace")
    kept = text.encode()
    if len(data) <= MAX_MESSAGE_BYTES and len(kept) <= MAX_MESSAGE_BYTES:
        return text, kept == data
    mark = f"... (cut; {len(data)} bytes)"
    return kept[: MAX_MESSAGE_BYTES - len(mark)].decode("utf-8", "ignore") + mark, False
