"""Reads the corpus by a running service and by its peers, and compares words and sequences of three words.

The truth of a PDF is what at least two of the peers agree on: each word as often as the second of them has it.
"""
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import unicodedata

import corpus
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


def read_all(program, folder, cores, show_working_set=False):
    """Figures of both sets, and the names of documents by what was wrong with their answers."""
    found = corpus.documents(os.environ.get("CORPUS", folder / "corpus"))
    figures = {"working": Figures(), "judging": Figures()}
    wrong = collections.defaultdict(list)

    def one(document):
        is_pdf = document.file.suffix == ".pdf"
        peers = {name: peer_text(name, document) for name in PEERS} if is_pdf else {}
        try:
            status, answer, seconds = Client(service).extract(document.path.rsplit("/", 1)[-1], document.file.read_bytes())
        except OSError:
            return document, 0, "", 0.0, peers
        return document, status, answer.get("content", "") if status == 200 else "", seconds, peers

    with Service(program, folder) as service, concurrent.futures.ThreadPoolExecutor(cores) as pool:
        for document, status, text, seconds, peers in pool.map(one, found):
            name = f"{document.repository} {document.path}"
            has_text = sum(len(words(peer)) > 0 for peer in peers.values()) > 0
            if status == 0 or status >= 500:
                wrong[f"status {status}" if status else "no answer"].append(name)
            elif seconds > SLOW_SECONDS:
                wrong["slow"].append(name)
            elif has_text and not words(text):
                wrong["empty where a peer finds text" if status == 200 else f"status {status} where a peer finds text"].append(name)
            if status == 200 and peers:
                set_ = "judging" if corpus.is_judged(document) else "working"
                figures[set_].add({"own": text, **peers}, list(PEERS))
                if show_working_set and set_ == "working":
                    alone = Figures()
                    alone.add({"own": text, **peers}, list(PEERS))
                    if alone.all["words"] > 20 and alone.share("words", "own") < 0.97:
                        print(f"    {alone.share('words', 'own'):.3f} of {alone.all['words']} words  {name}")
    return figures, wrong, len(found)
