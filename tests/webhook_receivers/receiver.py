"""A receiver of webhooks that verifies every delivery by PyPI's `standardwebhooks`, and a tampered copy of each.

    python3 receiver.py SEED

Prints its port. PUT of a path says by which secrets the deliveries to that path are signed; GET /report says what came. Ends with its
standard input.
"""

import json
import random
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook

BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
KINDS = ["body", "id", "timestamp", "signature"]

chance = random.Random(int(sys.argv[1]))
lock = threading.Lock()
verifiers = {}
seen = set()
report = {"verified": 0, "distinct": 0, "faults": [], "refused": dict.fromkeys(KINDS, 0), "accepted": []}


def changed(text, choices, most=None):
    """`text` with another one of `choices` in place of one of its first `most` characters."""
    at = chance.randrange(min(len(text), most or len(text)))
    return text[:at] + chance.choice([choice for choice in choices if choice != text[at]]) + text[at + 1 :]


def tampered(kind, delivery):
    value = delivery[kind]
    if kind == "body":
        at = chance.randrange(len(value) + 1)
        ways = [changed(value, 'xyz09{}", ä'), value[:-1], value + " ", value[:at] + " " + value[at:]]
        value = chance.choice(ways)
    elif kind == "id":
        value = changed(value, "0123456789abcdef-") if chance.randrange(4) else value + "0"
    elif kind == "timestamp":
        # Within the tolerance of five minutes, so that the signature alone decides.
        value = str(int(value) + chance.randint(1, 200) * chance.choice([1, -1]))
    else:
        parts = [one.split(",") for one in value.split(" ")]
        # The last character but the padding does not count in full.
        value = " ".join(f"{version},{changed(text, BASE64, 40)}" for version, text in parts)
    return {**delivery, kind: value}


def fault(webhook, delivery):
    """Why the library refuses a delivery; None if it does not."""
    headers = {f"Webhook-{name.title()}": delivery[name] for name in ["id", "timestamp", "signature"]}
    try:
        webhook.verify(delivery["body"].encode(), headers)
    except Exception as error:
        return repr(error)
    return None


def judge(path, delivery):
    known = verifiers.get(path, [])
    faults = [fault(webhook, delivery) for webhook in known] or ["nothing verifies this path"]
    if any(faults):
        report["faults"].append(f"{path}: {faults}: {delivery}")
        return 401
    kind = KINDS[report["verified"] % len(KINDS)]
    report["verified"] += 1
    seen.add((path, delivery["id"]))
    report["distinct"] = len(seen)
    wrong = tampered(kind, delivery)
    if all(fault(webhook, wrong) for webhook in known):
        report["refused"][kind] += 1
    else:
        report["accepted"].append(f"{path}, {kind}: {delivery}: {wrong}")
    return 204


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        with lock:
            self.answer(200, json.dumps(report).encode())

    def do_PUT(self):
        given = json.loads(self.body())
        verifiers[self.path] = [Webhook(by["secret"].encode() if by["raw"] else by["secret"]) for by in given]
        self.answer(204)

    def do_POST(self):
        delivery = {name: self.headers.get(f"webhook-{name}", "") for name in ["id", "timestamp", "signature"]}
        delivery["body"] = self.body().decode()
        with lock:
            status = judge(self.path, delivery)
        self.answer(status)

    def body(self):
        return self.rfile.read(int(self.headers["content-length"]))

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


server = Server(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
