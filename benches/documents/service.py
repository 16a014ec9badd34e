"""A running service, to measure what its interface adds and what hostile documents do to others."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS = 60
BOUNDARY = "signalbox-bench"


class Service:
    """`signalbox up` on a free port, with data of its own, while the block lasts."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder / "service"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def __enter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        many = "4000000000"
        settings = {"SERVER__ADDRESS": f"127.0.0.1:{self.port}", "STORAGE__FOLDER": str(self.folder / "data"),
                    "LIMITS__ANONYMOUS_EXTRACTIONS_PER_MINUTE": many, "LIMITS__REQUESTS_PER_MINUTE": many,
                    "LIMITS__REQUEST_BURST": many}
        environment = {**os.environ, **{f"SIGNALBOX_{name}": value for name, value in settings.items()}}
        self.log = open(self.folder / "log", "w")
        self.process = subprocess.Popen([self.program, "up"], cwd=TOP, env=environment, stdout=self.log, stderr=self.log)
        until = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                self.__exit__()
                raise SystemExit(f"the service did not start; it said: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def answers(self):
        try:
            return Client(self.port).get("/readyz") == 200
        except OSError:
            return False

    def parsers(self, field="VmPeak"):
        """Highest address space (or with VmHWM memory in use), in MiB, of each process that parses now, by its number."""
        found = {}
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
                command = (status.parent / "cmdline").read_bytes()
            except OSError:
                continue
            if fields.get("PPid") == str(self.process.pid) and b"parse-documents" in command and field in fields:
                found[int(status.parent.name)] = int(fields[field].split()[0]) / 1024
        return found


class Client:
    """One connection to the service at a port."""

    def __init__(self, port, seconds=300):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)

    def get(self, path):
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        answer.read()
        return answer.status

    def extract(self, name, document, query="output_format=plaintext"):
        """Status, answer and seconds."""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = head.encode() + document + f"\r\n--{BOUNDARY}--\r\n".encode()
        begun = time.perf_counter()
        try:
            self.connection.request("POST", f"/api/v1/extract?{query}", body,
                                    {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})
            answer = self.connection.getresponse()
            text = answer.read()
        except (BrokenPipeError, ConnectionResetError):
            # Refused before all of it was sent.
            self.connection.close()
            return 413, {}, time.perf_counter() - begun
        if answer.will_close:
            self.connection.close()
        return answer.status, json.loads(text), time.perf_counter() - begun
