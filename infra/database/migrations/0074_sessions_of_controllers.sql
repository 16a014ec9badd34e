-- Which run of a controller holds a claim, so that a second controller of the same name is refused; null for controllers that do not say.
ALTER TABLE ops.plugin_claims ADD COLUMN session text;
