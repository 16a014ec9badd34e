"""Compares what was extracted with the truth: F1 of headings, list items and table cells; error rate of the text."""
from collections import Counter


def levenshtein(one, other):
    """How many letters have to be put in, left out or changed."""
    from rapidfuzz.distance import Levenshtein
    return Levenshtein.distance(one, other)


def words(text):
    return " ".join(text.split())


def truth_parts(blocks):
    """Headings with level, items and cells of the truth, and all its text in reading order."""
    headings, items, cells, text = [], [], [], []
    for block in blocks:
        kind = block["kind"]
        if kind == "heading":
            headings.append((block["level"], words(block["text"])))
        elif kind == "list":
            items += [words(item["text"]) for item in block["items"]]
            text += items[-len(block["items"]):]
            continue
        elif kind == "table":
            for index, row in enumerate(block["rows"]):
                cells += [(block["rows"][0][column], words(cell)) for column, cell in enumerate(row)]
                text += [words(cell) for cell in row]
            continue
        if "text" in block:
            text.append(words(block["text"]))
    return headings, items, cells, text


def found_parts(document):
    """The same of a document that was extracted as JSON."""
    headings, items, cells, text = [], [], [], []
    for block in document["blocks"]:
        kind = block["block_type"]
        if kind == "heading":
            headings.append((block["level"], words(block["content"])))
            text.append(words(block["content"]))
        elif kind == "list":
            found = [words(item["text"]) for item in block["metadata"]["items"]]
            items += found
            text += found
        elif kind == "table":
            rows = block["metadata"]["rows"]
            for row in rows:
                cells += [(words(rows[0][column]), words(cell)) for column, cell in enumerate(row)]
                text += [words(cell) for cell in row]
        elif kind == "paragraph":
            text.append(words(block["content"]))
    return headings, items, cells, text


def f1(expected, found):
    """F1 over bags; 1 when nothing is expected and nothing was found."""
    expected, found = Counter(expected), Counter(found)
    if not expected and not found:
        return None
    hits = sum((expected & found).values())
    return 2 * hits / (sum(expected.values()) + sum(found.values()))


def compare(blocks, document):
    """A dict of figures for one document."""
    expected, found = truth_parts(blocks), found_parts(document)
    text, got = " ".join(filter(None, expected[3])), " ".join(filter(None, found[3]))
    return {
        "headings": f1(expected[0], found[0]),
        "items": f1(expected[1], found[1]),
        "cells": f1(expected[2], found[2]),
        "errors": levenshtein(text, got), "letters": len(text),
        "counts": [(expected[i], found[i]) for i in range(3)],
    }


def overall(figures):
    """F1 over all documents together, and the error rate."""
    result = {}
    for index, name in enumerate(("headings", "items", "cells")):
        expected, found = Counter(), Counter()
        for number, figure in enumerate(figures):
            expected.update((number, part) for part in figure["counts"][index][0])
            found.update((number, part) for part in figure["counts"][index][1])
        hits = sum((expected & found).values())
        total = sum(expected.values()) + sum(found.values())
        result[name] = 2 * hits / total if total else 1.0
    result["error_rate"] = sum(f["errors"] for f in figures) / max(1, sum(f["letters"] for f in figures))
    return result
