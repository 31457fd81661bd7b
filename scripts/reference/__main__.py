"""Run `make reference`."""

from reference import write

write()
