"""The program beside the hardware: it runs the plugin instances of a Signalbox and sends their values."""
