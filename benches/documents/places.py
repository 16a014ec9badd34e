"""Checks places and forms of documents with programs of others: words by pdfplumber, DoclingDocument by docling-core."""
import collections
import json
import unicodedata

import corpus
from service import Client, Service

# Pages of a document that are checked.
PAGES = 3
HYPHENS = "-\u00ad\u2010\u2011"


def plain(text):
    text = unicodedata.normalize("NFKC", text)
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
    return {plain(way) for way in ways.values()}


def check_words(document, answer, figures):
    import pdfplumber
    content = json.loads(answer["content"])
    recognised = {page["number"] for page in content["pages"] if page["ocr_confidence"] is not None}
    with pdfplumber.open(document.file, pages=list(range(1, PAGES + 1))) as pdf:
        pages = {}
        for page in pdf.pages:
            left, top = page.cropbox[0], page.cropbox[1]
            pages[page.page_number] = [((char["x0"] + char["x1"]) / 2 - left, (char["top"] + char["bottom"]) / 2 - top, char["text"])
                                       for char in page.dedupe_chars().chars]
    for block in content["blocks"]:
        for word in block.get("words", []):
            on = {place["page"] for place in word["places"]}
            if len(on) != 1 or on & recognised or not on <= pages.keys() or not plain(word["text"]):
                continue
            figures["words"] += 1
            found = letters_at(pages[on.pop()], [place["bbox"] for place in word["places"]])
            figures["read"] += plain(word["text"]) in found


def check(program, folder, every):
    """Words that were checked and read, and documents that docling-core accepts, of every so-many-th one of the judging set."""
    from docling_core.types.doc import DoclingDocument
    figures, refused, worst = collections.Counter(), [], []
    found = [document for document in corpus.documents(folder / "corpus") if document.file.suffix in (".pdf", ".docx", ".html", ".xlsx")]
    found = [document for document in found if corpus.is_judged(document) and int(document.sha256[:8], 16) % every == 0]
    with Service(program, folder) as service:
        for document in found:
            name, content, client = document.path.rsplit("/", 1)[-1], document.file.read_bytes(), Client(service)
            status, answer, _ = client.extract(name, content, "output_format=docling")
            if status != 200:
                continue
            figures["documents"] += 1
            try:
                DoclingDocument.model_validate_json(answer["content"])
            except ValueError as error:
                refused.append(f"{document.path}: {error}")
            if document.file.suffix == ".pdf":
                status, answer, _ = client.extract(name, content, "output_format=json&words=true")
                one = collections.Counter()
                try:
                    check_words(document, answer, one)
                except Exception as error:  # pdfplumber raises what it likes at files that are damaged
                    figures["files that pdfplumber does not read"] += 1
                    continue
                figures += one
                figures["files"] += 1
                worst.append((one["words"] - one["read"], one["words"], document.path))
    return figures, refused, sorted(worst, reverse=True)[:15]
