"""A position of a table: its generation, and its version there."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A state of a table. Versions count the batches that changed it, within one generation."""

    generation: int = 0
    version: int = 0

    def reaches(self, other: "Position") -> bool:
        """Whether it is of the same generation, and not before the other."""
        return self.generation == other.generation and self.version >= other.version

    def is_after(self, other: "Position") -> bool:
        return self.reaches(other) and self != other

    def as_json(self) -> dict[str, int]:
        return {"generation": self.generation, "version": self.version}


NOTHING = Position()
"""Before the first generation."""
