"""Checks places and forms of documents with programs of others: words by pdfplumber, DoclingDocument by docling-core."""
import collections
import json
import os
import re
import sys
import unicodedata

import corpus
import peers
from service import Client, Service

# Pages of a document that are checked.
PAGES = 3
SECONDS = 150
HYPHENS = "-\u00ad\u2010\u2011"
# Written by pdfplumber for a letter that it finds no Unicode for: it draws it, but does not read it.
UNREAD = re.compile(r"\(cid:\d+\)")
FROM_RIGHT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
# Letters of each page with their centres. Letters that are drawn twice, to look bold, are read once; since pdfplumber takes letters
# that are closer than a point for that, small print is read as it is, too.
PDFPLUMBER = f"""
import json, sys, pdfplumber
with pdfplumber.open(sys.argv[1], pages=list(range(1, {PAGES} + 1))) as pdf:
    for page in pdf.pages:
        left, top = page.cropbox[0], page.cropbox[1]
        for some in (page.dedupe_chars(), page):
            found = [((char["x0"] + char["x1"]) / 2 - left, (char["top"] + char["bottom"]) / 2 - top, char["text"])
                     for char in some.chars]
            print(json.dumps([page.page_number, found]))
"""
PYMUPDF = f"""
import json, sys, pymupdf
document = pymupdf.open(sys.argv[1])
for number in range(min({PAGES}, len(document))):
    # It knows places on the page before that is turned.
    turn = document[number].rotation_matrix
    blocks = document[number].get_text("rawdict")["blocks"]
    chars = [char for block in blocks for line in block.get("lines", []) for span in line["spans"] for char in span["chars"]]
    boxes = [(pymupdf.Rect(char["bbox"]) * turn, char["c"]) for char in chars]
    found = [((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2, letter) for box, letter in boxes]
    print(json.dumps([number + 1, found]))
    for field in document[number].widgets():
        value = "☐☒" if field.field_type in (2, 5) else str(field.field_value or "")
        print(json.dumps([-number - 1, [*(field.rect * turn), value]]))
"""


def plain(text):
    text = unicodedata.normalize("NFKC", text.replace("⋯", "…"))
    return "".join(letter for letter in text if not letter.isspace() and letter not in HYPHENS and letter.isprintable())


def letters_at(letters, boxes):
    """The ways to read the letters whose centres are in the boxes: as in the file, to the right, to the left, down."""
    ways = collections.defaultdict(str)
    for left, top, right, bottom in boxes:
        inside = [letter for letter in letters if left <= letter[0] <= right and top <= letter[1] <= bottom]
        for way, key in (("file", None), ("right", lambda letter: letter[0]), ("left", lambda letter: -letter[0]),
                         ("down", lambda letter: letter[1]), ("up", lambda letter: -letter[1])):
            ordered = inside if key is None else sorted(inside, key=key)
            ways[way] += "".join(letter[2] for letter in ordered)
    return set(ways.values())


def pages_of(document, name, code):
    """The centres of the letters of each page, as a peer reads them, in one or two ways, and with a minus the fields of the page; none
    for a file that it does not read."""
    pages = collections.defaultdict(list)
    lines = peers.kept(document, f".{name}-letters.txt", [sys.executable, "-c", code, document.file]).splitlines()
    # Others are complaints.
    for line in (line for line in lines if line.startswith("[")):
        number, letters = json.loads(line)
        pages[number].append(letters)
    return pages


def is_read(expected, ways):
    """Whether one of the ways reads a word. Which of its brackets opens, and where numbers stand in a word from right to left, is
    seen otherwise than it is meant."""
    found = {plain(UNREAD.sub("", way)) for way in ways}
    if FROM_RIGHT.search(expected):
        return sorted(expected) in map(sorted, found)
    return expected in found


def is_in_field(expected, boxes, fields):
    """Whether a word is in the value of the field in which it stands."""
    left, top, right, bottom = boxes[0]
    x, y = (left + right) / 2, (top + bottom) / 2
    return any(f[0] <= x <= f[2] and f[1] <= y <= f[3] and expected in plain(f[4]) for f in fields)


def check_words(document, answer, figures, lost):
    content = json.loads(answer["content"])
    recognised = {page["number"] for page in content["pages"] if page["ocr_confidence"] is not None}
    pages = pages_of(document, "pdfplumber", PDFPLUMBER)
    figures["files that pdfplumber does not read"] += not pages
    second = None
    for block in content["blocks"]:
        for word in block.get("words", []):
            on = {place["page"] for place in word["places"]}
            expected = plain(word["text"])
            if len(on) != 1 or on & recognised or not on <= pages.keys() or not expected:
                continue
            page, boxes = on.pop(), [place["bbox"] for place in word["places"]]
            ways = set().union(*(letters_at(letters, boxes) for letters in pages[page]))
            figures["words"] += 1
            if is_read(expected, ways):
                figures["read"] += 1
                continue
            second = pages_of(document, "pymupdf-turned", PYMUPDF) if second is None else second
            if any(is_read(expected, letters_at(letters, boxes)) for letters in second[page]) or is_in_field(expected, boxes, second[-page]):
                figures["read by PyMuPDF"] += 1
                lost_by = "pdfplumber"
            else:
                lost_by = "both"
            lost.append([lost_by, word["text"], block["block_type"], word["places"][0], min(ways)])


def read(document_and_port):
    """Figures of a document, why docling-core refuses it if it does, and the words that pdfplumber reads otherwise."""
    document, port = document_and_port
    from docling_core.types.doc import DoclingDocument
    figures, refused, lost = collections.Counter(), [], []
    name, content, client = document.path.rsplit("/", 1)[-1], document.file.read_bytes(), Client(port, SECONDS)
    try:
        status, answer, _ = client.extract(name, content, "output_format=docling")
    except OSError:
        status = 0
    if status != 200:
        return document, figures, refused, lost
    figures["documents"] += 1
    try:
        DoclingDocument.model_validate_json(answer["content"])
    except ValueError as error:
        refused.append(f"{document.path}: {error}")
    if document.file.suffix == ".pdf":
        status, answer, _ = client.extract(name, content, "output_format=json&words=true")
        if status == 200:
            figures["files"] += 1
            check_words(document, answer, figures, lost)
    return document, figures, refused, lost


def check(program, folder, every, is_judged=True):
    """Words that were checked and read, documents that docling-core refuses, and the documents of which most words are lost, of
    every so-many-th one of a set."""
    figures, refused, worst = collections.Counter(), [], []
    found = [document for document in corpus.documents(os.environ.get("CORPUS", folder / "corpus"))
             if document.file.suffix in (".pdf", ".docx", ".html", ".xlsx")]
    found = [document for document in found if corpus.is_judged(document) == is_judged and int(document.sha256[:8], 16) % every == 0]
    with Service(program, folder) as service:
        for document, one, why, lost in peers.compared(read, found, service):
            figures += one
            refused += why
            lost.sort(key=lambda word: word[0])
            worst.append((sum(word[0] == "both" for word in lost), len(lost), one["words"], document, lost))
    worst.sort(key=lambda one: one[:3], reverse=True)
    return figures, refused, [one for one in worst if one[1]]
