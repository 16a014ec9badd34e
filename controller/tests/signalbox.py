"""A stand-in for Signalbox on a real socket: instances, packages, and claims by the rules of `POST /plugins/claims`."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_OUTPUT = """
from signalbox_plugins import ChannelDescriptor, ChannelDirection, DevicePlugin, PluginInstanceConfig, PluginMeta

class Config(PluginInstanceConfig):
    file: str

class Plugin(DevicePlugin):
    meta = PluginMeta("output", "Output", "1.0.0")
    config_schema = Config

    def get_channels(self):
        return [ChannelDescriptor("out", "Out", ChannelDirection.OUTPUT, safe_value=0.0)]

    def note(self, text):
        with open(self.config.file, "a") as file:
            file.write(f"{text}\\n")

    async def _do_connect(self): self.note("connected")
    async def _do_disconnect(self): self.note("disconnected")
    async def _do_read(self, channel_id): return None
    async def _do_write(self, channel_id, value): self.note(value)
"""


class Signalbox:
    """The interface that a controller uses, in memory. Instances have the plugin `output`, which notes its calls in a
    file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._wheel = _wheel()
        self.instances: dict[str, dict[str, Any]] = {}
        # Controller and session by instance.
        self.claims: dict[str, tuple[str, str]] = {}
        self.latest: dict[str, tuple[float, str]] = {}
        self.reports: list[tuple[str, str]] = []
        self.entries: list[str] = []
        # Deleted events, whose values are not taken.
        self.deleted: set[str] = set()
        self.is_away = False
        # Calls while it was away.
        self.unanswered = 0
        self.refusals: list[int] = []
        # Called with the path before an answer, beside other calls.
        self.before: Callable[[str], None] = lambda _: None
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"signalbox": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Closes the listener."""
        self._server.shutdown()
        self._server.server_close()

    def add(self, id: str, name: str) -> None:
        """An enabled instance whose output has the event `e-{id}`."""
        mapping = {"channel_id": "out", "direction": "output", "event_public_id": f"e-{id}"}
        self.instances[id] = {
            "public_id": id,
            "plugin_id": "output",
            "instance_name": name,
            "demo_mode": False,
            "config_json": json.dumps({"file": str(self._file), "poll_interval_ms": 50}),
            "channel_mappings": [mapping],
        }

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and body of an answer."""
        with self._lock:
            if self.is_away:
                self.unanswered += 1
                return 503, {"detail": "it is away"}
            match method, path.partition("?")[0].removeprefix("/api/v1").split("/")[1:]:
                case "GET", ["plugins"]:
                    return 200, {"data": list(self.instances.values()), "total": len(self.instances)}
                case "GET", ["plugins", "packages"]:
                    digest = hashlib.sha256(self._wheel).hexdigest()
                    return 200, [{"public_id": "p", "sha256": digest, "plugin_ids": ["output"]}]
                case "GET", ["plugins", "packages", "p", "wheel"]:
                    return 200, self._wheel
                case "POST", ["plugins", "claims"]:
                    status, answer = self._claim(body)
                    self.refusals += [status] if status != 200 else []
                    return status, answer
                case "PUT", ["plugins", id, "status"]:
                    self.reports.append((id, body["status"]))
                    return 200, {}
                case "GET", ["datapoints", "latest"]:
                    shown = [
                        {"event_public_id": event, "value": value, "timestamp": time}
                        for event, (value, time) in self.latest.items()
                    ]
                    return 200, shown
                case "POST", ["logging"]:
                    self.entries.append(body["content"])
                    return 201, {}
                case "POST", ["datapoints", "batch"]:
                    events = [point["event_public_id"] for point in body["datapoints"]]
                    gone = [index for index, event in enumerate(events) if event in self.deleted]
                    return 201, {"rejected": [{"index": index, "reason": "it is deleted"} for index in gone]}
            return 404, {"detail": "there is no such thing"}

    def _claim(self, body: dict[str, Any]) -> tuple[int, Any]:
        name, session = body["controller"], body["session"]
        if not 1 <= len(name.strip()) <= 100:
            return 422, {"detail": "controller must have 1 to 100 characters"}
        sessions = {session, body.get("previous_session")}
        if any("\0" in text for text in (name, *filter(None, sessions))):
            return 422, {"detail": "a text holds a character that cannot be stored"}
        if any(holder == name and of not in sessions for holder, of in self.claims.values()):
            return 409, {"detail": "another controller with this name runs"}
        claimed = [id for id in body["instances"] if id in self.instances]
        for id in [id for id, (holder, _) in self.claims.items() if holder == name and id not in claimed]:
            del self.claims[id]
        mine = [id for id in claimed if self.claims.get(id, (name, session))[0] == name]
        self.claims.update(dict.fromkeys(mine, (name, session)))
        return 200, {"instances": mine, "seconds": 30}


class _Handler(BaseHTTPRequestHandler):
    signalbox: Signalbox
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.signalbox.before(self.path)
        status, answer = self.signalbox.answer(self.command, self.path, json.loads(content) if content else None)
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


def _wheel() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("output_plugin.py", _OUTPUT)
        archive.writestr("output-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: output\nVersion: 1\n")
        archive.writestr("output-1.dist-info/entry_points.txt", "[signalbox.plugins]\noutput = output_plugin:Plugin\n")
    return packed.getvalue()
