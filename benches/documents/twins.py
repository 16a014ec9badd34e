"""Books that Debian has as PDF and as web pages (twins.tsv): how much of the pages is found in the PDF."""
import collections
import csv
import gzip
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import unicodedata

import lxml.html
from rapidfuzz.distance import Indel

from others import HYPHEN, all_text
from peers import PEERS
from service import Client, Service

LIST = pathlib.Path(__file__).with_name("twins.tsv")
# Scripts without spaces are compared letter by letter.
TOKEN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f]|[^\W\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f]+")
DIVISION = "chap.er|kapitel|appendix|anhang|part|teil"
# Some forms of a book have numbers in words.
SPELLED = ("(twenty ?)?(one|two|three|four|five|six|seven|eight|nine)|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen"
           "|nineteen|twenty")
NUMBER = re.compile(rf"^(({DIVISION}) )?(第 )?([a-z]|[ivx]+|\d+)( (\d+|章))*( |$)|^({DIVISION})$|^(({DIVISION}) )?({SPELLED})$")
# Parts of web pages that are not of the book: navigation, search. The first page has the contents of the book, as it is printed; those
# of others are navigation, too.
BESIDES = """//script | //style | //nav | //*[contains(@class, 'navheader') or contains(@class, 'navfooter')
    or contains(@class, 'headerlink') or contains(@class, 'sphinxsidebar') or contains(@class, 'related')]"""
PRINTED = """//*[contains(@class, 'toc') or contains(@class, 'toctree')]"""
SKIPPED = re.compile(r"genindex|search|/index-|/contents")
# A line of the contents or of the list of tables: the pages have them as navigation, which is left out of them.
CONTENTS = re.compile(r" … (\d+|[ivxl]+)$")
# Printed books say where their links lead.
ADDRESS = re.compile(r"\(\s*(https?|ftp)://[^)]*\)")
# An item is compared by its first words, because the text behind them may or may not be part of it.
ITEM_WORDS = 6
# Share of the cells of a table that the pages have, below which it is a false one.
TRUE_TABLE = 0.3

Book = collections.namedtuple("Book", ["name", "pdf", "html"])


def tokens(text):
    return TOKEN.findall(unicodedata.normalize("NFKC", HYPHEN.sub("", text).replace("\u00ad", "")).lower())


def heading(text):
    """A heading without its number, which not every form of a book has."""
    return NUMBER.sub("", " ".join(tokens(text)))


def item(text):
    return " ".join(tokens(ADDRESS.sub("", text))[:ITEM_WORDS])


def whole(items, expected):
    """Items, those that end earlier than in the pages, at the end of a paragraph, as the pages have them."""
    missing = collections.Counter(expected) - collections.Counter(items)
    for found in items:
        longer = None
        if len(found.split()) < ITEM_WORDS and not missing[found]:
            longer = next((one for one in missing if one.startswith(f"{found} ") and missing[one]), None)
        if longer:
            missing[longer] -= 1
        yield longer or found


def books(folder):
    """The books of the list, taken out of their packages."""
    folder.mkdir(parents=True, exist_ok=True)
    with LIST.open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            place = folder / f"{row['package']}_{row['sha256'][:8]}"
            if not place.exists():
                subprocess.run(["apt-get", "download", f"{row['package']}={row['version']}"], cwd=folder, check=True, capture_output=True)
                package = max(folder.glob(f"{row['package']}_*.deb"), key=lambda path: path.stat().st_mtime)
                if hashlib.sha256(package.read_bytes()).hexdigest() != row["sha256"]:
                    sys.exit(f"{row['package']} is not the package of the list")
                subprocess.run(["dpkg-deb", "-x", package, place], check=True)
                package.unlink()
            pdf = place / row["pdf"]
            if pdf.suffix == ".gz":
                unpacked = pdf.with_suffix("")
                unpacked.write_bytes(gzip.decompress(pdf.read_bytes()))
                pdf = unpacked
            html = [page for page in place.glob(row["html"]) if not SKIPPED.search(str(page))]
            yield Book(row["book"], pdf, list(in_order(html)))


def in_order(pages):
    """Pages as each names the next one: by name alone, "best practices" come before "introduction"."""
    left = {page.name: page for page in sorted(pages)}
    page = left.pop(next((name for name in left if name.startswith("index")), None), None)
    while page:
        yield page
        following = lxml.html.fromstring(page.read_bytes()).xpath("//link[@rel='next']/@href")
        page = left.pop(following[0].split("#")[0], None) if following else None
    yield from left.values()


def truth(book):
    """Text of the web pages, with the contents of the book, and headings, items and cells besides those."""
    texts, headings, items, tables = [], [], [], []
    for page in book.html:
        root = lxml.html.fromstring(page.read_bytes())
        for besides in root.xpath(BESIDES):
            besides.drop_tree()
        body = (root.xpath("//*[@role='main'] | //div[contains(@class, 'body')]") or root.xpath("//body") or [root])[0]
        for broken in body.iter("br", "p", "div", "li", "td", "th", "dt", "dd", "pre", "tr", "h1", "h2", "h3", "h4", "h5", "h6"):
            broken.tail = "\n" + (broken.tail or "")
        printed = root.xpath(PRINTED)
        whole_text = body.text_content()
        for part in printed:
            part.drop_tree()
        texts.append(whole_text if page == book.html[0] else body.text_content())
        headings += [heading(found.text_content()) for found in body.iter("h1", "h2", "h3", "h4", "h5", "h6")]
        items += [item(found.text_content()) for found in body.iter("li")]
        for table in body.iter("table"):
            rows = [[cell.text_content() for cell in row.iter("td", "th")] for row in table.iter("tr")]
            is_note = any("note" in (around.get("class") or "") or around.get("class") in ("tip", "warning", "caution", "important")
                          for around in table.iterancestors("div"))
            if not is_note and max(map(len, rows), default=0) >= 2:
                tables += [" ".join(tokens(cell)) for row in rows for cell in row]
    return "\n".join(texts), list(filter(None, headings)), list(filter(None, items)), list(filter(None, tables))


def f1(expected, found):
    expected, found = collections.Counter(expected), collections.Counter(found)
    # A book without tables, where none was found.
    if not expected and not found:
        return 1.0
    return 2 * (expected & found).total() / (expected.total() + found.total())


def share(expected, found):
    return (collections.Counter(expected) & collections.Counter(found)).total() / max(1, len(expected))


def peer_text(name, pdf):
    kept = pdf.with_suffix(f".{name}.txt")
    if not kept.exists():
        kept.write_text(subprocess.run(PEERS[name](pdf), capture_output=True, check=True).stdout.decode(errors="ignore"))
    return kept.read_text()


def last_of_contents(blocks):
    """The page where the contents and the list of tables end. Before it are the title, a history of revisions in a frame and the
    headings of lists, which web pages do not have."""
    front = 0
    for block in blocks:
        if block["block_type"] == "list" and any(CONTENTS.search(entry["text"]) for entry in block["metadata"]["items"]):
            pages = [place["page"] for place in block.get("places", [block])]
            # Later parts may have contents of their own.
            if not front or pages[0] <= front + 2:
                front = max(pages)
    return front


def measure(program, folder):
    """A dict of figures for each book."""
    with Service(program, folder) as service:
        for book in books(folder / "twins"):
            text, headings, items, cells = truth(book)
            content = book.pdf.read_bytes()
            answers = {form: Client(service.port).extract("book.pdf", content, f"output_format={form}") for form in ("json", "plaintext")}
            if any(status != 200 for status, _, _ in answers.values()):
                yield {"book": book.name, "failed": answers["json"][1]}
                continue
            document, own = json.loads(answers["json"][1]["content"]), answers["plaintext"][1]["content"]
            words, found = tokens(text), collections.defaultdict(list)
            known, titles = collections.Counter(cells), set(headings)
            false_tables = tables = 0
            front = last_of_contents(document["blocks"])
            for block in document["blocks"]:
                if block["block_type"] == "heading":
                    text = heading(block["content"])
                    if block["page"] > front or text in titles:
                        found["headings"].append(text)
                elif block["block_type"] == "list":
                    texts = [entry["text"] for entry in block["metadata"]["items"]]
                    found["items"] += [item(text) for text in texts if not CONTENTS.search(text)]
                elif block["block_type"] == "table" and block["page"] > front:
                    inside = list(filter(None, (" ".join(tokens(cell)) for row in block["metadata"]["rows"] for cell in row)))
                    found["cells"] += inside
                    tables += 1
                    false_tables += share(inside, known.elements()) < TRUE_TABLE
            # With the heads of pages, which the peers have, too.
            everything = tokens(all_text(answers["json"][1]))
            figures = {"book": book.name, "words": share(words, everything), "similarity": Indel.normalized_similarity(words, tokens(own)),
                       "headings": f1(headings, filter(None, found["headings"])),
                       "items": f1(items, whole(list(filter(None, found["items"])), items)),
                       "cells": f1(cells, found["cells"]), "false tables": false_tables, "tables": tables, "peers": {}}
            for name in PEERS:
                of_peer = tokens(peer_text(name, book.pdf))
                figures["peers"][name] = {"words": share(words, of_peer), "similarity": Indel.normalized_similarity(words, of_peer)}
            yield figures
