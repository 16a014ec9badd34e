"""Generates a client as `make clients` does and does the main job of each service with it.

    python main_jobs.py FOLDER SETTINGS

SETTINGS is JSON: `url`, `email`, `password`, the ids `source` and `destination` of two connected agents, and the paths
`source_path` and `destination_path`. The client is written to FOLDER. Prints what it has found out, as JSON.
"""

import io
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clients/python"))
from generate import make_client

WAIT_SECONDS = 60


def main() -> None:
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    make_client(folder)
    sys.path.insert(0, str(folder))
    from signalbox_client import AuthenticatedClient, Client
    from signalbox_client.api.auth import api_login
    from signalbox_client.models import ApiLoginOut, LoginIn

    credentials = LoginIn(email=settings["email"], password=settings["password"])
    with Client(base_url=settings["url"]) as anonymous:
        login = api_login.sync(client=anonymous, body=credentials)
    assert isinstance(login, ApiLoginOut), login
    with AuthenticatedClient(base_url=settings["url"], token=login.access_token) as client:
        print(json.dumps({"files": files(client, settings), "sensors": sensors(client), "documents": documents(client)}))


def files(client, settings) -> str:
    """Moves a file by a job and returns the status that the transfer ends with."""
    from signalbox_client.api.jobs import create_job, run_job
    from signalbox_client.api.transfers import get_transfer
    from signalbox_client.models import JobIn, JobOut, JobType, TransferOut, TransferStatus

    job = create_job.sync(
        client=client,
        body=JobIn(
            name="by a generated client",
            type_=JobType.PUSH,
            source_agent_id=settings["source"],
            destination_agent_id=settings["destination"],
            source_path=settings["source_path"],
            destination_path=settings["destination_path"],
        ),
    )
    assert isinstance(job, JobOut), job
    transfer = run_job.sync(job.id, client=client)
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        assert isinstance(transfer, TransferOut), transfer
        if transfer.status not in (TransferStatus.PENDING, TransferStatus.RUNNING):
            break
        time.sleep(0.05)
        transfer = get_transfer.sync(transfer.id, client=client)
    return transfer.status.value


def sensors(client) -> float:
    """Makes a channel, sends a value to it and reads it back."""
    from signalbox_client.api.datapoints import create_datapoint, list_datapoints
    from signalbox_client.api.events import create_event
    from signalbox_client.models import DatapointIn, EventCreatedOut, EventIn, EventKind, PageDatapointOut

    event = create_event.sync(
        client=client, body=EventIn(name="pressure in Python", type_=EventKind.SENSOR, unit="bar")
    )
    assert isinstance(event, EventCreatedOut), event
    create_datapoint.sync(client=client, body=DatapointIn(value=1.25, event_public_id=event.public_id))
    page = list_datapoints.sync(client=client, event_public_id=event.public_id)
    assert isinstance(page, PageDatapointOut), page
    return page.data[0].value


def documents(client) -> str:
    """Has the text of a document extracted."""
    from signalbox_client.api.documents import extract
    from signalbox_client.models import DocumentIn, ExtractOut, OutputFormat
    from signalbox_client.types import File

    page = b"<html><body><h1>Minutes</h1><p>All agreed.</p></body></html>"
    file = File(payload=io.BytesIO(page), file_name="minutes.html", mime_type="text/html")
    text = extract.sync(client=client, body=DocumentIn(file=file), output_format=OutputFormat.MARKDOWN)
    assert isinstance(text, ExtractOut), text
    return text.content


main()
