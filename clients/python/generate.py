"""Generates the package `signalbox_client` from the description of the interface.

    PYTHONPATH=.tools/clients python3 clients/python/generate.py [FOLDER]

Without FOLDER it is written beside this file. `make clients` fetches the pinned generator first.
"""

import compileall
import contextlib
import io
import sys
import warnings
from pathlib import Path

from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType

HERE = Path(__file__).parent
DESCRIPTION = HERE.parent.parent / "console/openapi.json"


def make_client(folder: Path, description: Path = DESCRIPTION) -> None:
    """Writes the package `signalbox_client` to `folder`. Ends the program with 1 if the generator warns of anything, or Python does when it
    compiles the client."""
    file = ConfigFile(
        package_name_override="signalbox_client",
        # Formatting the code would need another tool.
        post_hooks=[],
        # The generator knows no OpenMetrics, which is text, and no bodies of the programs that send values of their own.
        content_type_overrides={
            "application/openmetrics-text": "text/plain",
            "application/pdf": "application/octet-stream",
            "application/x-protobuf": "application/octet-stream",
            "application/x-streamed-protobuf": "application/octet-stream",
            "image/png": "application/octet-stream",
            "text/plain": "application/octet-stream",
        },
    )
    config = Config.from_sources(
        config_file=file,
        meta_type=MetaType.NONE,
        document_source=description,
        file_encoding="utf-8",
        overwrite=True,
        output_path=folder / "signalbox_client",
    )
    # It prints what it does.
    with contextlib.redirect_stdout(io.StringIO()):
        found = generate(config=config)
    for problem in found:
        print(problem.level, problem.header, problem.detail, file=sys.stderr)
    if found:
        sys.exit(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if not compileall.compile_dir(folder, quiet=1):
            sys.exit(1)


if __name__ == "__main__":
    make_client(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
