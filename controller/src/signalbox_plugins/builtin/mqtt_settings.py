"""Settings of the MQTT plugin."""

from __future__ import annotations

from typing import Literal

from ..config import Field, PluginInstanceConfig
from .signals import POINTER, VISIBLE, Signal
from .sparkplug import Node, Place


class Topic(Signal):
    """A channel whose values arrive on a topic."""

    topic: str = Field(
        min_length=1, max_length=1000, pattern=VISIBLE, description="Topic or filter (+, #) on which values arrive"
    )
    value: str = Field(
        default="",
        max_length=500,
        pattern=POINTER,
        description="JSON pointer to the number (/data/temp); empty: the payload is the number",
    )
    time: str = Field(
        default="", max_length=500, pattern=POINTER, description="JSON pointer to the time; empty: time of arrival"
    )
    command_topic: str = Field(default="", max_length=1000, description="Topic to send commands to; empty: none")
    command: str = Field(
        default="{value}", max_length=1000, description="Payload of a command; {value} stands for the number"
    )
    retain_command: bool = Field(default=False, description="Whether the broker retains the last command")


class Metric(Signal):
    """A channel that carries a metric of a Sparkplug B edge node."""

    group: str = Field(min_length=1, max_length=200, pattern="^[^/+#]+$", description="Group id")
    node: str = Field(min_length=1, max_length=200, pattern="^[^/+#]+$", description="Edge node id")
    device: str = Field(default="", max_length=200, pattern="^[^/+#]*$", description="Device id; empty: the node's own")
    metric: str = Field(min_length=1, max_length=500, pattern=VISIBLE, description="Name of the metric")
    writable: bool = Field(default=False, description="Whether commands may be sent")

    @property
    def place(self) -> Place:
        """Group, node, device and name of the metric."""
        return Place(Node(self.group, self.node), self.device, self.metric)


class MqttConfig(PluginInstanceConfig):
    """Settings of an instance."""

    host: str = Field(
        default="127.0.0.1", min_length=1, max_length=255, pattern=VISIBLE, description="Name or address of the broker"
    )
    port: int = Field(default=1883, ge=1, le=65535, description="1883, or 8883 with TLS")
    tls: bool = Field(default=False, title="TLS", description="Whether the connection is encrypted")
    ca_file: str = Field(
        default="",
        title="CA file",
        max_length=1000,
        description="Certificates of CAs, or the broker's own, on the controller's machine; empty: the system's",
    )
    certificate_file: str = Field(
        default="",
        max_length=1000,
        description="Own certificate (PEM), for brokers that require one, on the controller's machine",
    )
    key_file: str = Field(default="", max_length=1000, description="Private key of the certificate (PEM)")
    username: str = Field(default="", max_length=1000)
    password: str = Field(default="", max_length=1000, json_schema_extra={"format": "password"})
    protocol: Literal["5", "3.1.1"] = Field(default="5", description="Version of MQTT")
    client_id: str = Field(
        default="", max_length=200, title="Client id", description="Name at the broker; empty: made from the instance"
    )
    qos: Literal[1, 0] = Field(
        default=1, title="QoS", description="1: the broker keeps values while the controller is away"
    )
    keep_alive: int = Field(
        default=30, ge=5, le=3600, description="Seconds without a packet after which the connection is checked"
    )
    session_hours: int = Field(
        default=168, ge=1, le=10000, description="How long the broker keeps values (MQTT 5; otherwise it decides)"
    )
    topics: list[Topic] = Field(default_factory=list, max_length=2000, description="Topics and their channels")
    metrics: list[Metric] = Field(
        default_factory=list, max_length=2000, title="Sparkplug metrics", description="Metrics and their channels"
    )
    host_id: str = Field(
        default="",
        max_length=200,
        pattern="^[^/+#]*$",
        title="Sparkplug host id",
        description="Primary host of edge nodes, which send only while it is online; empty: no state is published",
    )
