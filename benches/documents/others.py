"""Reads the corpus by a running service and by its peers, and compares words and sequences of three words.

The truth of a PDF is what at least two of the peers agree on: each word as often as the second of them has it. JSON, whose pages
name their header and footer, is compared with all of it. Plain text, which has a running head once, is compared with what is left
without the lines that repeat at the edge of three and more pages, after their first.
"""
import collections
import json
import os
import re
import unicodedata

import corpus
import kinds
import peers
from service import Client, Service

# A document that takes longer hangs: the service's own limit is 120 s.
SLOW_SECONDS = 150
HYPHEN = re.compile(r"(?<=\w)(\u00ad|[-\u2010\ufffe\x02])\s*\n\s*(?=[a-zà-ÿ])")
# Whether a hyphen at the end of a line belongs to its word is not written in a file, so no hyphen between letters counts.
INNER_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010\u2011](?=[a-zà-ÿ])")
WORD = re.compile(r"\w+")
# Signs of Markdown that are not text of a document: backslashes before signs, and references to pictures.
ESCAPE = re.compile(r"\\(?=[^\w\s]|_)")
REFERENCE = re.compile(r"^!\[[^\]]*\]\(\)$", re.M)
# Lines at the upper and lower edge of a page that may be a running head, and pages on which such a line has to stand.
EDGE_LINES, EDGE_PAGES = 3, 3


def words(text):
    """Words in lower case, in order, however lines divide them."""
    # A ligature behind a hyphen is letters, too.
    text = unicodedata.normalize("NFKC", text)
    return WORD.findall(INNER_HYPHEN.sub("", HYPHEN.sub("", text).replace("\u00ad", "")).lower())


def threes(found):
    return list(zip(found, found[1:], found[2:]))


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
    text = ESCAPE.sub("", REFERENCE.sub("", document["content"].replace("<br>", "\n")))
    return "\n".join([text, *margins])


def agreed(bags):
    """Each part as often as at least two of the bags have it."""
    counts = {}
    for part in set().union(*bags):
        often = sorted((bag[part] for bag in bags), reverse=True)[1]
        if often:
            counts[part] = often
    return collections.Counter(counts)


def agreed_by_two(bags):
    return agreed([bags[name] for name in peers.PEERS])


def of_both_orders(bags):
    """Each part as often as pdftotext, which reads by where words stand, and a reader in the order of the file have it."""
    by_file = bags["pymupdf"] | bags["pypdfium2"]
    return bags["pdftotext"] & by_file


class Figures:
    """Shares of agreed words and threes, per reader. Two readers in the order of the file agree on sequences that a table or form has
    in no other way; `both orders` are those that a reader by places has, too."""

    def __init__(self):
        self.found = {unit: collections.Counter() for unit in ("words", "threes", "both orders")}
        self.all = collections.Counter()
        self.documents = 0

    def add(self, texts):
        """Counts what each of the texts has of what two peers agree on."""
        found = {name: words(text) for name, text in texts.items()}
        bags = {name: collections.Counter(words) for name, words in found.items()}
        sequences = {name: collections.Counter(threes(words)) for name, words in found.items()}
        for unit, bags, agreement in (("words", bags, agreed_by_two), ("threes", sequences, agreed_by_two),
                                      ("both orders", sequences, of_both_orders)):
            truth = agreement(bags)
            self.all[unit] += truth.total()
            for name, bag in bags.items():
                self.found[unit][name] += (bag & truth).total()
        self.documents += 1
        return self

    def join(self, other):
        self.all += other.all
        self.documents += other.documents
        for unit in self.found:
            self.found[unit] += other.found[unit]

    def share(self, unit, name):
        return self.found[unit][name] / max(1, self.all[unit])


class Findings:
    """Figures of documents, and what was wrong with the answers."""

    def __init__(self):
        sets = ("working", "judging")
        self.whole, self.without_heads = ({name: Figures() for name in sets} for _ in range(2))
        self.kinds = collections.defaultdict(Figures)
        self.fields = collections.Counter()
        self.wrong = collections.defaultdict(list)
        # Each with the share of words that was found, words, and words that are missing.
        self.worst = []
        # Each with seconds and name.
        self.slowest = []
        self.documents = 0

    def join(self, other):
        for set_ in self.whole:
            self.whole[set_].join(other.whole[set_])
            self.without_heads[set_].join(other.without_heads[set_])
        for kind, figures in other.kinds.items():
            self.kinds[kind].join(figures)
        for reason, names in other.wrong.items():
            self.wrong[reason] += names
        self.fields += other.fields
        self.worst += other.worst
        self.slowest = sorted(self.slowest + other.slowest, reverse=True)[:10]
        self.documents += other.documents


def read_all(program, folder):
    """Figures of both sets, and the names of documents by what was wrong with their answers."""
    found = corpus.documents(os.environ.get("CORPUS", folder / "corpus"))
    every, only = int(os.environ.get("EVERY", "1")), os.environ.get("ONLY")
    found = [document for document in found if int(document.sha256[:8], 16) % every == 0]
    if only:
        found = [document for document in found if ("judging" if corpus.is_judged(document) else "working") == only]
    findings = Findings()
    with Service(program, folder) as service:
        for one in peers.compared(read, found, service):
            findings.join(one)
    findings.worst.sort(key=lambda one: one["share"])
    return findings


def read(document_and_port):
    """The findings of one document, read by the service at a port."""
    document, port = document_and_port
    findings, name = Findings(), f"{document.repository} {document.path}"
    findings.documents = 1
    texts = {peer: peers.text(document, peer) for peer in peers.PEERS} if document.file.suffix == ".pdf" else {}
    client, content, answers, longest = Client(port, SLOW_SECONDS), document.file.read_bytes(), [], 0.0
    try:
        for form in ("json", "plaintext") if texts else ("plaintext",):
            status, answer, seconds = client.extract(document.path.rsplit("/", 1)[-1], content, f"output_format={form}")
            longest = max(longest, seconds)
            if status != 200:
                break
            text = all_text(answer) if form == "json" else answer["content"]
            answers.append(text[:peers.MOST_LETTERS])
    except OSError:
        status = 0
    findings.slowest = [(longest, name)]
    whole, plain = (answers[0], answers[-1]) if status == 200 else ("", "")
    note_wrong(findings.wrong, name, status, longest, plain, texts)
    if status == 200 and texts:
        compare(findings, document, whole, plain, texts)
    return findings


def note_wrong(wrong, name, status, seconds, text, texts):
    has_text = any(words(peer) for peer in texts.values())
    if status == 0 or status >= 500:
        wrong[f"status {status}" if status else "no answer"].append(name)
    elif seconds > SLOW_SECONDS:
        wrong["slow"].append(name)
    elif has_text and not words(text):
        wrong["empty where a peer finds text" if status == 200 else f"status {status} where a peer finds text"].append(name)


def compare(findings, document, whole, plain, texts):
    set_ = "judging" if corpus.is_judged(document) else "working"
    alone = Figures().add({"own": whole, **texts})
    findings.whole[set_].join(alone)
    heads = running_heads(texts["pdftotext"])
    findings.without_heads[set_].add({"own": plain, **{name: without_repetitions(text, heads) for name, text in texts.items()}})
    findings.worst += [described(document, set_, alone, whole, texts)] if alone.all["words"] else []
    known = kinds.of(document)
    if set_ == "judging":
        for kind in known["kinds"]:
            findings.kinds[kind].join(alone)
        values = collections.Counter(words(known["values"]))
        if values:
            findings.fields["documents"] += 1
            findings.fields["all"] += values.total()
            for name, text in {"own": whole, **texts}.items():
                findings.fields[name] += (collections.Counter(words(text)) & values).total()


def described(document, set_, figures, whole, texts):
    """How much of a document is missing; of the working set, also some of the words."""
    one = {"document": f"{document.sha256[:8]} {document.repository} {document.path}", "set": set_,
           "share": figures.share("words", "own"), "threes": figures.share("threes", "own"), "words": figures.all["words"]}
    if set_ == "working":
        truth = agreed([collections.Counter(words(text)) for text in texts.values()])
        one["missing"] = [word for word, _ in (truth - collections.Counter(words(whole))).most_common(12)]
    return one
