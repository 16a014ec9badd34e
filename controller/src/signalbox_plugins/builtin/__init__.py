"""Plugins that come with Signalbox."""
