"""Starts the controller: `signalbox-controller`, or `python -m signalbox_controller`."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from .controller import Controller
from .settings import Settings, SettingsError, read


def main() -> None:
    """Runs until SIGINT or SIGTERM."""
    try:
        settings = read(sys.argv[1:])
    except SettingsError as error:
        sys.exit(f"signalbox-controller: {error}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await Controller(settings).run(stop)


if __name__ == "__main__":
    main()
