"""Reads a dashboard by Grafana's own library, and prints the queries in it as JSON.

    python3 check_dashboard.py FILE

Fails if Grafana would not keep a field as it is written: the library's models know the fields of one version of the schema.
"""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(written, kept, place="dashboard"):
    """Places of written fields that are not kept. Fields that the library adds are defaults."""
    if isinstance(written, dict) and isinstance(kept, dict):
        for name, value in written.items():
            if name not in kept and value is not None:
                yield f"{place}.{name}"
            elif name in kept:
                yield from lost(value, kept[name], f"{place}.{name}")
    elif isinstance(written, list) and isinstance(kept, list) and len(written) == len(kept):
        for index, (one, other) in enumerate(zip(written, kept)):
            yield from lost(one, other, f"{place}[{index}]")
    elif written != kept or type(written) is not type(kept):
        yield f"{place}: {written!r} is read as {kept!r}"


def queries(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield {"at": panel["title"], "expr": target["expr"]}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield {"at": f"${variable['name']}", "variable": variable["query"]["query"]}


def faults(dashboard):
    if dashboard["schemaVersion"] != Dashboard().schema_version:
        yield f"schemaVersion is not {Dashboard().schema_version}"
    panels = dashboard["panels"]
    ids = [panel["id"] for panel in panels]
    if len(set(ids)) != len(ids):
        yield "an id is used twice"
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        if taken & cells or max(x for x, _ in cells) >= 24:
            yield f"{panel['title']} overlaps another panel, or the edge"
        taken |= cells
        references = [target["refId"] for target in panel.get("targets", [])]
        if len(set(references)) != len(references):
            yield f"{panel['title']} has a refId twice"
        if panel["type"] != "row" and not references:
            yield f"{panel['title']} asks for nothing"


register_default_plugins()
with open(sys.argv[1], encoding="utf-8") as file:
    dashboard = json.load(file)
kept = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
found = [*lost(dashboard, kept), *faults(dashboard)]
if found:
    sys.exit("\n".join(found))
json.dump(list(queries(dashboard)), sys.stdout)
