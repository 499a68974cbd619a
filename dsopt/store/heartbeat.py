"""How often workers beat, and what their silence means."""

from typing import Final

HEARTBEAT_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 3 * HEARTBEAT_SECONDS  # without a beat: dead, stopped, or cut off from the database
LEASE_SECONDS: Final = 60.0  # for so long, others believe that a silent worker lives
MARGIN_SECONDS: Final = 15.0  # so long before, a worker that cannot beat ends its own runs
