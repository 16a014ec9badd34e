"""Reads the corpus by a running service and by its peers, and compares words and sequences of three words.

The truth of a PDF is what at least two of the peers agree on: each word as often as the second of them has it. JSON, whose pages
name their header and footer, is compared with all of it. Plain text, which has a running head once, is compared with what is left
without the lines that repeat at the edge of three and more pages, after their first.
"""
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import unicodedata

import corpus
import kinds
from service import Client, Service

PEER_SECONDS = 120
# A document that takes longer hangs: the service's own limit is 120 s.
SLOW_SECONDS = 150
PYMUPDF = "import sys, pymupdf\nfor page in pymupdf.open(sys.argv[1]): sys.stdout.write(page.get_text(sort=False))"
PYPDFIUM = """
import sys, pypdfium2
for page in pypdfium2.PdfDocument(sys.argv[1]): sys.stdout.write(page.get_textpage().get_text_range() + "\\n")
"""
PEERS = {
    "pdftotext": lambda file: ["pdftotext", "-enc", "UTF-8", file, "-"],
    "pymupdf": lambda file: [sys.executable, "-c", PYMUPDF, file],
    "pypdfium2": lambda file: [sys.executable, "-c", PYPDFIUM, file],
}
HYPHEN = re.compile(r"(?<=\w)(\u00ad|[-\u2010\ufffe\x02])\s*\n\s*(?=[a-zà-ÿ])")
WORD = re.compile(r"\w+")
# Lines at the upper and lower edge of a page that may be a running head, and pages on which such a line has to stand.
EDGE_LINES, EDGE_PAGES = 3, 3


def words(text):
    """Words in lower case, in order, however lines divide them."""
    return WORD.findall(unicodedata.normalize("NFKC", HYPHEN.sub("", text).replace("\u00ad", "")).lower())


def threes(found):
    return list(zip(found, found[1:], found[2:]))


def peer_text(name, document):
    """The text that a peer reads, kept beside the document: it does not change."""
    kept = document.file.with_suffix(f".{name}.txt")
    if not kept.exists():
        try:
            read = subprocess.run(PEERS[name](document.file), capture_output=True, timeout=PEER_SECONDS,
                                  env={**os.environ, "PYTHONIOENCODING": "utf-8:ignore"})
            text = read.stdout.decode(errors="ignore") if read.returncode == 0 else ""
        except subprocess.TimeoutExpired:
            text = ""
        kept.write_text(text)
    return kept.read_text()


def outline(line):
    """A line without its numbers, which change from page to page, and white space."""
    return re.sub(r"\d+", "#", "".join(line.split()))


def running_heads(text):
    """Outlines of the lines that repeat at the edge of pages, in a text with a form feed after each page."""
    pages = collections.Counter()
    for page in text.split("\f"):
        lines = [line for line in page.splitlines() if line.strip()]
        pages.update({outline(line) for line in lines[:EDGE_LINES] + lines[-EDGE_LINES:]})
    return {line for line, count in pages.items() if count >= EDGE_PAGES}


def without_repetitions(text, heads):
    """`text` with each of the running heads once. A reader may have a head in several lines."""
    if not heads:
        return text
    counts = collections.Counter(map(outline, text.splitlines()))
    is_head = {line: count >= EDGE_PAGES and bool(line) and any(line in head for head in heads) for line, count in counts.items()}
    seen, kept = set(), []
    for line in text.splitlines():
        short = outline(line)
        if not (is_head[short] and short in seen):
            kept.append(line)
        seen.add(short)
    return "\n".join(kept)


def all_text(answer):
    """The text of a document in JSON, with the headers and footers of its pages."""
    document = json.loads(answer["content"])
    margins = (line for page in document["pages"] for line in page["header"] + page["footer"])
    text = re.sub(r"\\(?=[^\w\s])", "", document["content"].replace("<br>", "\n"))
    return "\n".join([text, *margins])


def agreed(bags):
    """Each part as often as at least two of the bags have it."""
    counts = {}
    for part in set().union(*bags):
        often = sorted((bag[part] for bag in bags), reverse=True)[1]
        if often:
            counts[part] = often
    return collections.Counter(counts)


class Figures:
    """Shares of agreed words and threes, per reader."""

    def __init__(self):
        self.found = {"words": collections.Counter(), "threes": collections.Counter()}
        self.all = collections.Counter()

    def add(self, texts, peers):
        for unit, parts in (("words", words), ("threes", lambda text: threes(words(text)))):
            bags = {name: collections.Counter(parts(text)) for name, text in texts.items()}
            truth = agreed([bags[name] for name in peers])
            self.all[unit] += truth.total()
            for name, bag in bags.items():
                self.found[unit][name] += (bag & truth).total()

    def share(self, unit, name):
        return self.found[unit][name] / max(1, self.all[unit])


class Findings:
    """Figures of the corpus, and what was wrong with the answers."""

    def __init__(self):
        sets = ("working", "judging")
        self.whole, self.without_heads = ({name: Figures() for name in sets} for _ in range(2))
        self.kinds = collections.defaultdict(Figures)
        self.fields = collections.Counter()
        self.wrong = collections.defaultdict(list)
        self.documents = 0


def read_all(program, folder, cores, show_working_set=False):
    """Figures of both sets, and the names of documents by what was wrong with their answers."""
    found = corpus.documents(os.environ.get("CORPUS", folder / "corpus"))
    every = int(os.environ.get("EVERY", "1"))
    found = [document for document in found if int(document.sha256[:8], 16) % every == 0]
    findings = Findings()
    findings.documents = len(found)

    def one(document):
        peers = {name: peer_text(name, document) for name in PEERS} if document.file.suffix == ".pdf" else {}
        name, content = document.path.rsplit("/", 1)[-1], document.file.read_bytes()
        client, answers, longest = Client(service), [], 0.0
        try:
            for form in ("json", "plaintext") if peers else ("plaintext",):
                status, answer, seconds = client.extract(name, content, f"output_format={form}")
                longest = max(longest, seconds)
                if status != 200:
                    return document, status, "", "", longest, peers
                answers.append(all_text(answer) if form == "json" else answer["content"])
        except OSError:
            return document, 0, "", "", 0.0, peers
        return document, 200, answers[0], answers[-1], longest, peers

    with Service(program, folder) as service, concurrent.futures.ThreadPoolExecutor(cores) as pool:
        for document, status, whole, plain, seconds, peers in pool.map(one, found):
            name = f"{document.repository} {document.path}"
            note_wrong(findings.wrong, name, status, seconds, plain, peers)
            if status == 200 and peers:
                compare(findings, document, whole, plain, peers)
                if show_working_set and not corpus.is_judged(document):
                    alone = Figures()
                    alone.add({"own": whole, **peers}, list(PEERS))
                    if alone.all["words"] > 20 and alone.share("words", "own") < 0.97:
                        lost = alone.all["words"] - alone.found["words"]["own"]
                        print(f"    {alone.share('words', 'own'):.3f} of {alone.all['words']} words, {lost} lost  {name}")
    return findings


def note_wrong(wrong, name, status, seconds, text, peers):
    has_text = any(words(peer) for peer in peers.values())
    if status == 0 or status >= 500:
        wrong[f"status {status}" if status else "no answer"].append(name)
    elif seconds > SLOW_SECONDS:
        wrong["slow"].append(name)
    elif has_text and not words(text):
        wrong["empty where a peer finds text" if status == 200 else f"status {status} where a peer finds text"].append(name)


def compare(findings, document, whole, plain, peers):
    set_ = "judging" if corpus.is_judged(document) else "working"
    findings.whole[set_].add({"own": whole, **peers}, list(PEERS))
    heads = running_heads(peers["pdftotext"])
    texts = {name: without_repetitions(text, heads) for name, text in peers.items()}
    findings.without_heads[set_].add({"own": plain, **texts}, list(PEERS))
    if set_ == "judging":
        known = kinds.of(document)
        for kind in known["kinds"]:
            findings.kinds[kind].add({"own": whole, **peers}, list(PEERS))
        values = collections.Counter(words(known["values"]))
        if values:
            findings.fields["all"] += values.total()
            for name, text in {"own": whole, **peers}.items():
                findings.fields[name] += (collections.Counter(words(text)) & values).total()
