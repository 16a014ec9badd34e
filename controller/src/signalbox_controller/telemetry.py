"""How values reach Signalbox: over a WebSocket that stays open, or over HTTP while there is none.

A batch has the same key on both paths, and Signalbox accepts it once, whichever path a repetition takes. It
is sent when Signalbox has said so, and not before.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from .backoff import Backoff
from .buffer import Batch
from .service import Away, Service, points, untaken
from .settings import Settings

_LOG = logging.getLogger("signalbox.controller")
# Values of one message at most; longer batches go over HTTP.
_MOST = 500
_PING = 20.0


class Telemetry:
    """Sends batches, one after the other."""

    def __init__(self, settings: Settings, service: Service) -> None:
        self._settings = settings
        self._service = service
        self._socket: ClientConnection | None = None
        self._backoff = Backoff(settings.poll)
        self._not_before = 0.0

    async def send(self, batch: Batch) -> Counter[str]:
        """Sends values until they are confirmed; gives back how many were not taken, by event and reason. Raises what HTTP
        raises."""
        socket = await self._connected() if len(batch.values) <= _MOST else None
        if socket is not None:
            try:
                async with asyncio.timeout(self._settings.timeout):
                    refused = await _send(socket, batch)
            except (OSError, TimeoutError, ValueError, WebSocketException) as error:
                await self.close()
                self._give_up_for_now(error)
            else:
                self._backoff.reset()
                return refused
        return await asyncio.to_thread(self._service.send, batch)

    async def close(self) -> None:
        """Closes the socket."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _connected(self) -> ClientConnection | None:
        """The socket; none while it cannot be opened, which is tried again now and then."""
        if self._settings.telemetry != "websocket":
            return None
        if self._socket is None and time.monotonic() >= self._not_before:
            try:
                self._socket = await self._connect()
            except (OSError, TimeoutError, ValueError, WebSocketException) as error:
                self._give_up_for_now(error)
        return self._socket

    async def _connect(self) -> ClientConnection:
        settings = self._settings
        return await connect(
            f"ws{settings.url.removeprefix('http')}/ws/controller/telemetry",
            additional_headers={"Authorization": f"Bearer {settings.token}"},
            open_timeout=settings.timeout,
            close_timeout=1.0,
            ping_interval=_PING,
            ping_timeout=settings.timeout,
            # As over HTTP: Signalbox is named on purpose.
            proxy=None,
        )

    def _give_up_for_now(self, error: Exception) -> None:
        seconds = self._backoff.seconds()
        self._not_before = time.monotonic() + seconds
        _LOG.info("values go over HTTP, as there is no WebSocket (%s: %s)", type(error).__name__, error)


async def _send(socket: ClientConnection, batch: Batch) -> Counter[str]:
    """Sends a batch and waits until it is confirmed. Answers to earlier batches are ignored."""
    await socket.send(json.dumps({"id": batch.key, "datapoints": points(batch)}))
    while True:
        said = json.loads(await socket.recv())
        if said.get("id") != batch.key:
            continue
        if said["type"] != "ack":
            raise Away(str(said.get("message")))
        return untaken(batch, said["rejected"])
