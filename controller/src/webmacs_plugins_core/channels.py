"""Names under which plugins of WebMACS import them."""

from signalbox_plugins.channels import (
    ChannelDescriptor,
    ChannelDirection,
    ConversionSpec,
    SimulationSpec,
    register_conversion,
)

__all__ = ["ChannelDescriptor", "ChannelDirection", "ConversionSpec", "SimulationSpec", "register_conversion"]
