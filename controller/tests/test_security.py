"""Encrypted connections: MQTT to mosquitto, OPC UA to asyncua and node-opcua, with certificates and passwords."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import ssl
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asyncua import Server, ua
from asyncua.crypto.permission_rules import SimpleRoleRuleset
from asyncua.server.user_managers import User, UserManager, UserRole
from certificates import Authority, local
from cryptography import x509
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from peers import TOOLS, DeviceTest, Mosquitto
from ports import free_port
from signalbox_plugins import PluginConnectionError
from signalbox_plugins.discovery import built_in_plugins

USER, PASSWORD = "signalbox", "gehe1m, with $pecial ch&rs"
PLAIN = {"channel": "plain", "topic": "plain"}


class SecretTest(DeviceTest):
    """Notes all that the controller and its processes write, and fails if a password is in it."""

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.said: set[str] = set()
        output = self.enterContext(tempfile.TemporaryFile())
        kept = os.dup(2)
        os.dup2(output.fileno(), 2)

        def check() -> None:
            os.dup2(kept, 2)
            os.close(kept)
            output.seek(0)
            written = output.read().decode(errors="replace")
            for secret in (PASSWORD, PASSWORD[::-1]):
                self.assertNotIn(secret, written)
                self.assertFalse([text for text in self.said if secret in text])

        # It runs after the cleanups that stop the instance.
        self.addCleanup(check)

    async def until(self, is_so: Any, seconds: float = 90) -> None:
        def noted() -> Any:
            self.said.add(self.running.error or "")
            return is_so()

        await super().until(noted, seconds)

    async def refused(self, plugin: str, config: dict[str, Any], *words: str) -> None:
        """Connects in this process and expects an error with these words, which is the status of an instance."""
        device = built_in_plugins()[plugin]()
        device.configure({**config, "demo_mode": False})
        try:
            async with asyncio.timeout(60):
                await device.connect()
        except PluginConnectionError as error:
            self.said.add(str(error))
            self.assertFalse([word for word in words if word not in str(error)], str(error))
        else:
            await device.disconnect()
            self.fail("it is connected")


class MqttSecurityTest(SecretTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.authority = Authority(self.folder, "plant")
        self.stranger = Authority(self.folder, "stranger")

    async def start_broker(self, authority: Authority, name: list[x509.GeneralName], *settings: str) -> None:
        self.certificate, key = authority.issue("broker", *name)
        self.broker = Mosquitto(self.folder, f"certfile {self.certificate}", f"keyfile {key}", *settings)
        self.broker.start()
        self.addCleanup(self.broker.stop)
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.broker.port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    return

    def config(self, **config: Any) -> dict[str, Any]:
        return {"port": self.broker.port, "tls": True, "topics": [PLAIN], **config}

    def run_mqtt(self, **config: Any) -> None:
        self.run_plugin("mqtt", self.config(**config), ["plain"])

    async def value_arrives(self, **config: Any) -> None:
        self.run_mqtt(**config)
        await self.until(lambda: json.loads(self.buffer.recall("7", "subscribed") or "{}"))
        sender = Client(CallbackAPIVersion.VERSION2, client_id="sender")
        if "username" in config:
            sender.username_pw_set(config["username"], config["password"])
        own = (
            {"certfile": config["certificate_file"], "keyfile": config["key_file"]}
            if "certificate_file" in config
            else {}
        )
        sender.tls_set(str(self.certificate), **own)
        sender._ssl_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        await asyncio.to_thread(sender.connect, "127.0.0.1", self.broker.port)
        sender.loop_start()
        sender.publish("plain", "21.5", qos=1)
        await self.until(lambda: self.values("plain") == [21.5])
        sender.disconnect()
        sender.loop_stop()
        await self.running.stop()

    async def test_a_broker_of_the_ca_is_trusted_and_others_are_refused(self) -> None:
        await self.start_broker(self.authority, local())
        await self.value_arrives(ca_file=str(self.authority.file))
        await self.refused(
            "mqtt",
            self.config(ca_file=str(self.stranger.file), username=USER, password=PASSWORD),
            "certificate verify failed",
        )
        await self.refused("mqtt", self.config(), "certificate verify failed")

    async def test_a_pinned_certificate_is_trusted_alone(self) -> None:
        await self.start_broker(self.authority, local())
        await self.value_arrives(ca_file=str(self.certificate))
        other, _ = self.authority.issue("other", *local())
        await self.refused("mqtt", self.config(ca_file=str(other)), "certificate verify failed")

    async def test_a_wrong_host_name_is_refused(self) -> None:
        await self.start_broker(self.authority, [x509.DNSName("broker.example.org")])
        await self.refused(
            "mqtt",
            self.config(ca_file=str(self.authority.file), username=USER, password=PASSWORD),
            "IP address mismatch",
        )
        await self.refused(
            "mqtt",
            self.config(ca_file=str(self.authority.file), host="localhost", username=USER, password=PASSWORD),
            "Hostname mismatch",
        )

    async def test_an_own_certificate_is_shown_to_a_broker_that_requires_it(self) -> None:
        ca = f"cafile {self.authority.file}"
        await self.start_broker(
            self.authority, local(), ca, "require_certificate true", "use_identity_as_username true"
        )
        trusted = {"ca_file": str(self.authority.file)}
        for authority in (None, self.stranger):
            own = {}
            if authority is not None:
                file, key = authority.issue("controller")
                own = {"certificate_file": str(file), "key_file": str(key)}
            await self.refused("mqtt", self.config(**trusted, **own), "accepted no session", "certificate_file")
        file, key = self.authority.issue("controller")
        await self.value_arrives(**trusted, certificate_file=str(file), key_file=str(key))

    async def test_files_that_cannot_be_used_are_named(self) -> None:
        await self.start_broker(self.authority, local())
        trusted = {"ca_file": str(self.authority.file)}
        (file, key), (_, wrong) = self.authority.issue("controller"), self.authority.issue("another")
        for config, words in (
            ({"ca_file": "/nowhere/ca.pem"}, ("ca_file: /nowhere/ca.pem cannot be read", "No such file")),
            ({"ca_file": str(key)}, ("ca_file", "holds no certificate")),
            (
                {**trusted, "certificate_file": str(file), "key_file": "/nowhere"},
                ("key_file: /nowhere cannot be read",),
            ),
            ({**trusted, "certificate_file": str(file), "key_file": str(wrong)}, ("not a certificate with its key",)),
        ):
            with self.subTest(words):
                await self.refused("mqtt", self.config(**config), *words)

    async def test_a_wrong_password_is_refused_and_shown_nowhere(self) -> None:
        salt = os.urandom(12)
        digest = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, 101)
        file = self.folder / "passwords"
        file.write_text(f"{USER}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n")
        await self.start_broker(self.authority, local(), f"password_file {file}")
        trusted = {"ca_file": str(self.authority.file), "username": USER}
        for protocol in ("5", "3.1.1"):
            await self.refused(
                "mqtt",
                self.config(**trusted, password=PASSWORD[::-1], protocol=protocol),
                "refuses the connection",
                "Not authorized",
            )
        await self.value_arrives(**trusted, password=PASSWORD)
        self.run_mqtt(**trusted, password=PASSWORD[::-1])
        await self.until(lambda: "Not authorized" in (self.running.error or ""))


class Users(UserManager):
    """One user."""

    def get_user(
        self, iserver: Any, username: Any = None, password: Any = None, certificate: Any = None
    ) -> User | None:
        return User(role=UserRole.Admin) if (username, password) == (USER, PASSWORD) else None


class OpcUaSecurityTest(SecretTest):
    URI = "urn:example.org:signalbox:controller"

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.authority = Authority(self.folder, "plant")
        self.port = free_port()

    def own(self, is_der: bool = False, uri: str = URI) -> dict[str, Any]:
        names = [*local(), x509.UniformResourceIdentifier(uri)]
        certificate, key = self.authority.issue(f"controller{is_der}", *names, is_der=is_der)
        return {"certificate_file": str(certificate), "key_file": str(key)}

    def config(self, **config: Any) -> dict[str, Any]:
        nodes = [{"channel": "plain", "node": "/Peer/B"}, {"channel": "set", "node": "/Peer/Set", "writable": True}]
        base = {"url": f"opc.tcp://127.0.0.1:{self.port}", "publishing_ms": 50, "sampling_ms": 0, "nodes": nodes}
        return {**base, "security": "Basic256Sha256", **config}

    def run_opcua(self, **config: Any) -> None:
        self.run_plugin("opcua", self.config(**config), ["plain", "set!"])

    async def start_server(self) -> Path:
        """A server of asyncua; returns the file of its certificate."""
        server = Server(user_manager=Users())
        await server.init()
        server.set_endpoint(f"opc.tcp://127.0.0.1:{self.port}")
        await server.set_application_uri("urn:example.org:plc")
        server.set_security_policy(
            [
                ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt,
                ua.SecurityPolicyType.Aes256Sha256RsaPss_SignAndEncrypt,
            ],
            permission_ruleset=SimpleRoleRuleset(),
        )
        server.set_identity_tokens([ua.UserNameIdentityToken])
        names = [*local(), x509.UniformResourceIdentifier("urn:example.org:plc")]
        certificate, key = self.authority.issue("plc", *names, is_der=True)
        await server.load_certificate(certificate)
        await server.load_private_key(key)
        index = await server.register_namespace("urn:peers")
        peer = await server.nodes.objects.add_object(ua.NodeId("Peer", index), "Peer")
        self.plain = await peer.add_variable(ua.NodeId("B", index), "B", 1.5)
        self.set = await peer.add_variable(ua.NodeId("Set", index), "Set", 0.0)
        await self.set.set_writable()
        await server.start()
        self.addAsyncCleanup(server.stop)
        return certificate

    async def test_asyncua_with_certificate_and_user_name(self) -> None:
        certificate = await self.start_server()
        user = {"username": USER, "password": PASSWORD}
        for policy, is_der in (("Basic256Sha256", False), ("Aes256Sha256RsaPss", True)):
            with self.subTest(policy, is_der=is_der):
                pinned = {"server_certificate_file": str(certificate)} if is_der else {}
                self.run_opcua(security=policy, **self.own(is_der), **user, **pinned)
                await self.connected()
                number = len(self.values("plain")) + 10.0
                variant = ua.Variant(number, ua.VariantType.Double)
                await self.plain.write_value(ua.DataValue(variant, SourceTimestamp=datetime.now(UTC)))
                await self.until(lambda number=number: number in self.values("plain"))
                self.order("set", number)
                await self.until(lambda number=number: number in self.values("set"))
                self.assertEqual(await self.set.read_value(), number)
                await self.running.stop()
        self.run_opcua(**self.own(), username=USER, password=PASSWORD[::-1])
        await self.until(lambda: "BadUserAccessDenied" in (self.running.error or ""))

    async def test_wrong_credentials_and_servers_are_refused(self) -> None:
        await self.start_server()
        own, user = self.own(), {"username": USER, "password": PASSWORD}
        other, other_key = self.authority.issue("other", *local())
        address = f"127.0.0.1:{self.port}"
        for config, words in (
            ({**own, "username": USER, "password": PASSWORD[::-1]}, (address, "BadUserAccessDenied")),
            ({**own}, (address, "BadIdentityTokenRejected")),
            ({**own, **user, "server_certificate_file": str(other)}, (address, "server_certificate_file is not its own")),
            ({**own, **user, "key_file": str(other_key)}, ("key_file: ", "does not belong to the certificate")),
            ({**user, "security": "None"}, (address,)),
            ({**own, **user, "key_file": "/nowhere"}, ("key_file: /nowhere cannot be read", "No such file")),
            ({**own, **user, "certificate_file": own["key_file"]}, ("certificate_file: ", "is not a certificate")),
        ):
            with self.subTest(words):
                await self.refused("opcua", self.config(**config), *words)

    async def test_node_opcua_compares_the_uri_of_the_certificate(self) -> None:
        script = TOOLS.parent / "tests/device_peers/opcua_server.mjs"
        user = {"name": USER, "password": PASSWORD}
        settings = json.dumps({"port": self.port, "folder": str(self.folder), "user": user})
        server = await asyncio.create_subprocess_exec(
            str(TOOLS / "node/bin/node"), str(script), settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

        async def end() -> None:
            assert server.stdin is not None
            server.stdin.close()
            await server.wait()

        self.addAsyncCleanup(end)
        assert server.stdin is not None and server.stdout is not None
        async with asyncio.timeout(60):
            while not (line := await server.stdout.readline()).startswith(b'{"ready"'):
                self.assertTrue(line, "the server has ended")
        await self.refused(
            "opcua",
            self.config(**self.own(), username=USER, password=PASSWORD[::-1]),
            f"127.0.0.1:{self.port}",
            "BadUserAccessDenied",
        )
        self.run_opcua(**self.own(), username=USER, password=PASSWORD)
        await self.connected()
        server.stdin.write(b'{"value": 42}\n')
        await self.until(lambda: 42.0 in self.values("plain"))
        self.order("set", 7.5)
        await self.until(lambda: 7.5 in self.values("set"))
