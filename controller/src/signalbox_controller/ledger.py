"""State of one instance that survives restarts, in the controller's buffer."""

from __future__ import annotations

from collections.abc import Iterable

from signalbox_plugins import Ledger, Message

from .buffer import Buffer


class InstanceLedger(Ledger):
    """The part of the buffer that belongs to an instance."""

    def __init__(self, buffer: Buffer, instance: str) -> None:
        super().__init__()
        self._buffer = buffer
        self._instance = instance

    def has(self, message: Message) -> bool:
        """Whether this is a repetition whose values were buffered before."""
        return message.is_repetition and self._buffer.has_received(self._instance, message.number, message.digest)

    def forget(self, messages: Iterable[Message] | None) -> None:
        keys = None if messages is None else [(message.number, message.digest) for message in messages]
        self._buffer.forget_received(self._instance, keys)

    def recall(self, name: str) -> str | None:
        return self._buffer.recall(self._instance, name)

    def remember(self, name: str, note: str) -> None:
        self._buffer.remember(self._instance, name, note)
