"""Tables without rules: those of the table competition of ICDAR 2013 (tables.tsv), whose cells others wrote down.

A table counts as one without rules if there is at most one upright line in it. Each is compared with the table found on its page that
is most like it, by the F1 of the texts of cells.
"""
import collections
import json
import re
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree

import corpus
from service import Client, Service

LIST = corpus.LIST.with_name("tables.tsv")
PEER_SECONDS = 300
PYMUPDF4LLM = """
import json, sys, pymupdf4llm
pages = pymupdf4llm.to_markdown(sys.argv[1], page_chunks=True, show_progress=False)
print(json.dumps([page["text"] for page in pages]))
"""
PDFPLUMBER = """
import json, sys, pdfplumber
edges, tables = [], []
for page in pdfplumber.open(sys.argv[1]).pages:
    upright = [edge for edge in page.edges if edge["orientation"] == "v" and edge["height"] > 5]
    edges.append([float(page.height), [[edge["x0"], edge["top"], edge["bottom"]] for edge in upright]])
    tables.append(page.extract_tables({"vertical_strategy": "text", "horizontal_strategy": "text"}))
print(json.dumps([edges, tables]))
"""

Truth = collections.namedtuple("Truth", ["page", "box", "cells"])


def plain(text):
    return "".join(unicodedata.normalize("NFKC", text or "").split())


def kept(document, name, code):
    """The tables that a peer finds, kept beside the document."""
    file = document.file.with_suffix(f".{name}.json")
    if not file.exists():
        try:
            read = subprocess.run([sys.executable, "-c", code, document.file], capture_output=True, timeout=PEER_SECONDS)
            text = read.stdout.decode().strip().splitlines()[-1] if read.returncode == 0 and read.stdout else "null"
        except subprocess.TimeoutExpired:
            text = "null"
        file.write_text(text)
    return json.loads(file.read_text())


def truth(file):
    """The tables of a description; parts on several pages are tables of their own."""
    for region in xml.etree.ElementTree.parse(file).getroot().iter("region"):
        boxes, cells = [], []
        for cell in region.iter("cell"):
            sides = [cell.find("bounding-box").get(side) for side in ("x1", "y1", "x2", "y2")]
            # One of them has a letter among its digits.
            if all(side.isdigit() for side in sides):
                boxes.append([float(side) for side in sides])
            cells.append(plain(cell.findtext("content")))
        if boxes:
            left, low, right, high = zip(*boxes)
            yield Truth(int(region.get("page")), (min(left), min(low), max(right), max(high)), [cell for cell in cells if cell])


def has_rules(table, edges):
    height, upright = edges[table.page - 1]
    left, low, right, high = table.box
    inside = {round(x) for x, top, bottom in upright if left <= x <= right and height - bottom <= high and low <= height - top}
    return len(inside) > 1


def of_markdown(page):
    """The tables of a page in markdown."""
    rows = []
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            if not re.fullmatch(r"[|:\- ]+", line):
                cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
                rows.append([re.sub(r"<br>|\*\*|~~|_(?=\W|$)|(?<=\W)_", "", cell) for cell in cells])
        elif rows:
            yield rows
            rows = []


def f1(expected, rows):
    found = collections.Counter(filter(None, (plain(cell) for row in rows for cell in row)))
    expected = collections.Counter(expected)
    return 2 * (expected & found).total() / max(1, expected.total() + found.total())


def read_all(program, folder, show_working_set=False):
    """By set and reader: the F1 of each table without rules; and of our reader alone, of each table with rules."""
    listed = corpus.documents(folder / "tables", LIST)
    scores = {set_: collections.defaultdict(list) for set_ in ("working", "judging")}
    by_path = {document.path: document for document in listed}
    with Service(program, folder) as service:
        for document in (document for document in listed if document.file.suffix == ".pdf"):
            described = by_path.get(document.path[:-len(".pdf")] + "-str.xml")
            plumbed, chunks = kept(document, "pdfplumber", PDFPLUMBER), kept(document, "pymupdf4llm", PYMUPDF4LLM)
            if described is None or plumbed is None:
                continue
            edges, plumbed = plumbed
            status, answer, _ = Client(service.port).extract("table.pdf", document.file.read_bytes(), "output_format=json")
            blocks = json.loads(answer["content"])["blocks"] if status == 200 else []
            found = {"own": lambda page: [block["metadata"]["rows"] for block in blocks
                                          if block["block_type"] == "table" and block["page"] == page],
                     "pymupdf4llm": lambda page: list(of_markdown(chunks[page - 1])) if chunks else [],
                     "pdfplumber": lambda page: plumbed[page - 1]}
            set_ = "judging" if corpus.is_judged(document) else "working"
            for table in truth(described.file):
                ruled = has_rules(table, edges)
                for reader, on_page in found.items():
                    score = max((f1(table.cells, rows) for rows in on_page(table.page)), default=0.0)
                    scores[set_][reader + (", ruled" if ruled else "")].append(score)
                    if show_working_set and set_ == "working" and reader == "own" and score < 0.95:
                        print(f"    {score:.3f} page {table.page}{', ruled' if ruled else ''}  {document.path}")
    return scores
