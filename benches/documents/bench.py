"""Measures extraction beside its peers: the same files, the same machine, the same run.

    make bench-extraction
    python3 benches/documents/bench.py PROGRAM FOLDER [digital|markdown|ocr|structure|overhead|memory|bombs|others|twins|tables|places …]

PROGRAM is `signalbox`, FOLDER is where the material is made and kept. Prints a table of figures with their ratios, and
ends with 1 when one of them misses its mark.
"""
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading
import time

import bombs as hostile
import others
import pdfs
import peers
import places
import score
import tables
import truth
import twins
from service import TOP, Client, Service

CORES = os.cpu_count() or 1
ROUNDS = int(os.environ.get("ROUNDS", "3"))
FAILED = []


def main():
    program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    parts = {"digital": digital, "markdown": markdown, "ocr": ocr, "structure": structure, "overhead": overhead, "bombs": bombs,
             "memory": memory, "others": documents_of_others, "twins": books_with_twins, "tables": tables_without_rules,
             "places": places_and_forms}
    material = Material(folder)
    for name in sys.argv[3:] or parts:
        parts[name](program, material)
    if FAILED:
        sys.exit("missed: " + "; ".join(FAILED))


class Material:
    """Documents whose truth is known, made once for each state of what makes them."""

    def __init__(self, folder):
        makers = b"".join(pathlib.Path(module.__file__).read_bytes() for module in (pdfs, truth))
        self.folder = folder / hashlib.sha256(makers).hexdigest()[:8]
        self.folder.mkdir(parents=True, exist_ok=True)
        pdfs.load_fonts()
        self.books = [self.pdf(f"book-{language}-{pages}", truth.book(language, pages, pages), language)
                      for language in ("deu", "eng") for pages in (1, 10, 100, 500)]
        self.reports = [self.pdf(f"report-{language}-{seed}", truth.report(language, seed, 3), language, seed)
                        for language in ("deu", "eng") for seed in range(6)]
        self.articles = [self.pdf(f"article-{language}-{seed}", truth.article(language, seed), language, seed, columns=2)
                         for language in ("deu", "eng") for seed in range(4)]

    def pdf(self, name, blocks, language, seed=1, columns=1):
        path = self.folder / f"{name}.pdf"
        if not path.exists():
            hyphens = {"deu": "de_DE", "eng": "en_US"}[language] if seed else None
            pdfs.write(path, blocks, columns=columns, family="serif" if seed % 2 else "sans", hyphens=hyphens,
                       header="Signalbox", language=language, size=10.5 if columns == 1 else 9.5)
            path.with_suffix(".json").write_text(json.dumps(blocks))
        return path

    def scans(self, kind):
        """Pages of reports as pictures: clean at 300 dpi, at 150 dpi, skewed by 2°, with noise."""
        from PIL import Image
        folder = self.folder / kind
        folder.mkdir(exist_ok=True)
        for path in self.reports[:2] + self.reports[6:8]:
            if not list(folder.glob(f"{path.stem}-*.png")):
                dpi = 150 if kind == "scan-150" else 300
                run(["pdftoppm", "-r", dpi, "-gray", "-png", "-l", 2, path, folder / path.stem])
                for page in folder.glob(f"{path.stem}-*.png"):
                    picture = Image.open(page).convert("L")
                    picture = {"scan-skewed": skewed, "scan-noise": noisy}.get(kind, lambda same: same)(picture)
                    picture.save(page, dpi=(dpi, dpi))
        return sorted(folder.glob("*.png"))


def skewed(picture):
    return picture.rotate(2, fillcolor=255, resample=3)


def noisy(picture):
    import numpy
    from PIL import Image
    draw = numpy.random.default_rng(7)
    pixels = numpy.asarray(picture, dtype=float) + draw.normal(0, 40, (picture.height, picture.width))
    return Image.fromarray(numpy.clip(pixels, 0, 255).astype("uint8"))


def run(command, **more):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, **more)


def best(work):
    """The shortest of a few rounds, in seconds."""
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def ours(program, files, form, folder, language="deu"):
    target = folder / "out"
    shutil.rmtree(target, ignore_errors=True)
    run([program, "extract", "-f", form, "-l", language, "-o", target, *files])
    return target


def spread(code, files):
    """Runs Python `code` with one process per core, each on its share of `files` by size."""
    shares = [[] for _ in range(CORES)]
    for file in sorted(files, key=lambda path: -path.stat().st_size):
        min(shares, key=lambda share: sum(path.stat().st_size for path in share)).append(file)
    running = [subprocess.Popen([sys.executable, "-c", code, *map(str, share)]) for share in shares if share]
    if any(process.wait() for process in running):
        sys.exit("a peer failed")


def each(command, files):
    """Runs a command per file, one process per core at a time."""
    names = "\0".join(map(str, files))
    run(["xargs", "-0", "-n", 1, "-P", CORES, "sh", "-c", command, "sh"], input=names.encode(),
        env={**os.environ, "OMP_THREAD_LIMIT": "1"})


def page_count(files):
    import pypdfium2
    return sum(len(pypdfium2.PdfDocument(path)) for path in files)


def report(name, value, unit, peer=None, peer_value=None, least=None, most=None):
    line = f"{name:<44} {value:10.4g} {unit}"
    if peer:
        ratio = value / peer_value if peer_value else 0.0
        line += f"   {peer} {peer_value:.4g}   ratio {ratio:.2f}"
        value = ratio
    missed = (least is not None and value < least) or (most is not None and value > most)
    mark = f" (at least {least})" if least is not None else f" (at most {most})" if most is not None else ""
    print(line + mark + ("   MISSED" if missed else ""), flush=True)
    if missed:
        FAILED.append(name)


PYPDFIUM = """
import sys, pypdfium2
for path in sys.argv[1:]:
    document = pypdfium2.PdfDocument(path)
    text = "".join(page.get_textpage().get_text_range() for page in document)
    open(path + ".pypdfium.txt", "w").write(text)
"""
PYMUPDF = """
import sys, pymupdf4llm
for path in sys.argv[1:]:
    open(path + ".pymupdf.md", "w").write(pymupdf4llm.to_markdown(path, show_progress=False))
"""


def digital(program, material):
    files = material.books + material.reports + material.articles
    pages = page_count(files)
    own = pages / best(lambda: ours(program, files, "plaintext", material.folder))
    one_by_one = 'for file; do pdftotext "$file" "$file.pdftotext.txt"; done'
    bare = pages / best(lambda: run([sys.executable, "-c", PYPDFIUM, *files]))
    command = pages / best(lambda: run(["sh", "-c", one_by_one, "sh", *files]))
    bare_all = pages / best(lambda: spread(PYPDFIUM, files))
    command_all = pages / best(lambda: each('pdftotext "$1" "$1.pdftotext.txt"', files))
    # One file at a time; and, for comparison, with one process per core.
    report(f"plain text of {pages} pages", own, "pages/s", "pypdfium2", bare, least=0.9)
    report(f"plain text of {pages} pages", own, "pages/s", "pdftotext", command, least=1.0)
    report(f"plain text of {pages} pages", own, "pages/s", f"pypdfium2 × {CORES}", bare_all)
    report(f"plain text of {pages} pages", own, "pages/s", f"pdftotext × {CORES}", command_all)


def markdown(program, material):
    files = material.reports + material.articles
    pages = page_count(files)
    own = pages / best(lambda: ours(program, files, "markdown", material.folder))
    peer = pages / best(lambda: spread(PYMUPDF, files))
    report(f"markdown of {pages} pages", own, "pages/s", "pymupdf4llm", peer, least=5.0)


def text_of_page(material, picture):
    """The truth of a page: the text that the PDF itself holds."""
    import pypdfium2
    stem, number = picture.stem.rsplit("-", 1)
    page = pypdfium2.PdfDocument(material.folder / f"{stem}.pdf")[int(number) - 1]
    return letters(page.get_textpage().get_text_range())


def letters(text):
    """A bag for the error rate: words without bullets, whatever their order and division into lines."""
    return " ".join(text.replace("\u0002", "").replace("\ufffe", "").split())


def ocr(program, material):
    for kind in ("scan-300", "scan-150", "scan-skewed", "scan-noise"):
        pictures = material.scans(kind)
        languages = {"deu": [], "eng": []}
        for picture in pictures:
            languages["deu" if "-deu-" in picture.name else "eng"].append(picture)
        languages = {language: files for language, files in languages.items() if files}

        def own_work():
            for language, files in languages.items():
                target = ours(program, files, "plaintext", material.folder, language)
                for file in files:
                    shutil.copy(target / f"{file.name}.txt", f"{file}.own.txt")

        def command_work():
            for language, files in languages.items():
                each(f'tesseract "$1" "$1.tesseract" -l {language}', files)

        own, command = len(pictures) / best(own_work), len(pictures) / best(command_work)
        report(f"recognition, {kind}", own, "pages/s", "tesseract", command, least=0.95)
        rates = {}
        for suffix in ("own", "tesseract"):
            errors = total = 0
            for picture in pictures:
                expected = sorted(text_of_page(material, picture).split())
                found = sorted(letters(pathlib.Path(f"{picture}.{suffix}.txt").read_text()).split())
                errors += score.levenshtein(" ".join(expected), " ".join(found))
                total += len(" ".join(expected))
            rates[suffix] = errors / total
        if kind == "scan-300":
            report(f"letter error rate, {kind}", rates["own"], "", most=0.02)
        report(f"letter error rate, {kind}", rates["own"], "", "tesseract", rates["tesseract"], most=1.05)


def structure(program, material):
    files = material.reports + material.articles + material.books[:2]
    target = ours(program, files, "json", material.folder)
    figures = []
    for path in files:
        document = json.loads((target / f"{path.name}.json").read_text())
        figures.append(score.compare(json.loads(path.with_suffix(".json").read_text()), document))
    total = score.overall(figures)
    for name in ("headings", "items", "cells"):
        report(f"F1 of {name}, digital PDFs", total[name], "", least=0.95)
    report("letter error rate, digital PDFs", total["error_rate"], "", most=0.005)
    columns = [figure for path, figure in zip(files, figures) if path in material.articles]
    right = sum(figure["errors"] <= 0.005 * figure["letters"] for figure in columns)
    report("two-column documents in reading order", right / len(columns), "", least=1.0)


ONE_PAGE_CALLS = 200
PYPDFIUM_CALLS = """
import sys, time, pypdfium2
times = []
for _ in range(int(sys.argv[2])):
    begun = time.perf_counter()
    document = pypdfium2.PdfDocument(sys.argv[1])
    "".join(page.get_textpage().get_text_range() for page in document)
    document.close()
    times.append(time.perf_counter() - begun)
print(sorted(times)[len(times) // 2])
"""


def overhead(program, material):
    """Overhead of HTTP, upload, process and layout over a warm call of PDFium."""
    path = material.books[0]
    document = path.read_bytes()
    with Service(program, material.folder) as service:
        client = Client(service.port)
        times = [client.extract(path.name, document)[2] for _ in range(ONE_PAGE_CALLS)]
        bare = float(run([sys.executable, "-c", PYPDFIUM_CALLS, path, ONE_PAGE_CALLS]).stdout)
    own = statistics.median(times)
    report("/extract of one page, p50", 1000 * own, "ms")
    report("bare PDFium of one page, p50", 1000 * bare, "ms")
    report("/extract adds, p50", 1000 * (own - bare), "ms", most=15)


def bombs(program, material):
    """Hostile documents one after the other, while somebody else has one page read again and again."""
    path = material.books[0]
    document = path.read_bytes()
    with Service(program, material.folder) as service:
        others, attacker = Client(service.port), Client(service.port)
        alone = [others.extract(path.name, document)[2] for _ in range(ONE_PAGE_CALLS)]
        beside, failed, peaks, ended = [], [], {}, threading.Event()

        def go_on():
            while not ended.is_set():
                status, _, seconds = others.extract(path.name, document)
                beside.append(seconds)
                failed.extend([status] if status != 200 else [])
                for number, peak in service.parsers().items():
                    peaks[number] = max(peak, peaks.get(number, 0))

        neighbour = threading.Thread(target=go_on)
        neighbour.start()
        wrong = []
        for name, content, expected in hostile.all_of_them(TOP / "tests" / "documents"):
            status, answer, seconds = attacker.extract(name, content)
            message = answer.get("detail") or answer.get("content", "")[:40]
            print(f"    {name:<24} {status} after {seconds:7.3f} s: {message}", flush=True)
            wrong += [name] if status not in expected else []
        ended.set()
        neighbour.join()
    report("hostile documents with a wrong answer", len(wrong), ", ".join(wrong), most=0)
    report(f"calls of others that failed, of {len(beside)}", len(failed), "", most=0)
    for name, at in (("p50", 0.5), ("p95", 0.95)):
        before, during = (sorted(times)[int(at * len(times))] for times in (alone, beside))
        report(f"one page beside hostile documents, {name}", 1000 * during, "ms", "alone", 1000 * before,
             most=1.5 if name == "p50" else None)
    report("highest address space of a parser", max(peaks.values()), "MiB", most=2048)


def memory(program, material):
    """The memory of the process that reads a book of 1,000 pages."""
    path = material.pdf("book-eng-1000", truth.book("eng", 1000, 1000), "eng")
    peak, ended = [0.0], threading.Event()
    with Service(program, material.folder) as service:
        def watch():
            while not ended.wait(0.05):
                peak[0] = max([peak[0], *service.parsers("VmHWM").values()])

        watching = threading.Thread(target=watch)
        watching.start()
        for form in ("markdown", "json"):
            status, _, seconds = Client(service.port).extract(path.name, path.read_bytes(), f"output_format={form}")
            print(f"    {page_count([path])} pages as {form}: {status} after {seconds:.2f} s", flush=True)
        ended.set()
        watching.join()
    report("memory of a parser, 1,000 pages", peak[0], "MiB", most=300)


def documents_of_others(program, material):
    """Documents made by others (corpus.tsv). WORKING_SET=1 prints the documents of the working set that lack most words."""
    found = others.read_all(program, material.folder.parent)
    if os.environ.get("WORKING_SET") == "1":
        for one in [one for one in found.worst if one["set"] == "working" and one["words"] > 20 and one["share"] < 0.985]:
            print(f"    {one['share']:.3f} of {one['words']} words, {one['threes']:.3f} of threes  {one['document']}: {' '.join(one['missing'])}")
    for kind, figures, own in (("json", found.whole, "against everything"), ("text", found.without_heads, "without repeated heads")):
        for set_, least in (("working", {}), ("judging", {"words": 0.985, "threes": 0.96})):
            if not figures[set_].documents:
                continue
            for unit, name in (("words", "words"), ("threes", "sequences of three words"), ("both orders", "sequences in both orders")):
                report(f"{name} of {kind} {own}, {set_} set", figures[set_].share(unit, "own"), "", least=least.get(unit))
                for peer in peers.PEERS:
                    report(f"  the same of {peer}", figures[set_].share(unit, peer), "")
    for kind, figures in sorted(found.kinds.items()):
        for unit in ("words", "threes"):
            peer = max(peers.PEERS, key=lambda name: figures.share(unit, name))
            report(f"{unit} of {figures.documents} documents with {kind}", figures.share(unit, "own"), "", peer, figures.share(unit, peer))
    if found.fields:
        share = {name: found.fields[name] / found.fields["all"] for name in ("own", *peers.PEERS)}
        peer = max(peers.PEERS, key=share.get)
        name = f"words of {found.fields['all']} in fields of {found.fields['documents']} forms"
        report(name, share["own"], "", peer, share[peer], least=1.0)
    print("    slowest: " + "; ".join(f"{seconds:.1f} s {name}" for seconds, name in found.slowest), flush=True)
    for reason, names in sorted(found.wrong.items()):
        print(f"    {reason}: " + "; ".join(names[:20]), flush=True)
    report(f"documents of {found.documents} that failed or are empty", sum(map(len, found.wrong.values())), "", most=0)


# Similarity in order that the reference book has to reach, by language.
SIMILARITY = {"reference, English": 0.93, "reference, German": 0.93, "reference, Japanese": 0.82}


def books_with_twins(program, material):
    """Books that are PDFs and web pages, too (twins.tsv)."""
    for figures in twins.measure(program, material.folder.parent):
        book = figures["book"]
        if "failed" in figures:
            report(f"{book}: failed", 1, str(figures["failed"]), most=0)
            continue
        for unit, least in (("words", 1.0), ("similarity", None)):
            peer = max(figures["peers"], key=lambda name: figures["peers"][name][unit])
            report(f"{book}: {unit}", figures[unit], "", peer, figures["peers"][peer][unit], least=least)
        if book in SIMILARITY:
            report(f"{book}: similarity in order", figures["similarity"], "", least=SIMILARITY[book])
        for name, least in (("headings", 0.92), ("items", 0.9), ("cells", 0.9)):
            report(f"{book}: F1 of {name}", figures[name], "", least=least)
        report(f"{book}: false tables of {figures['tables']}", figures["false tables"], "", most=0)


def tables_without_rules(program, material):
    """Tables whose cells others wrote down (tables.tsv)."""
    scores = tables.read_all(program, material.folder.parent, os.environ.get("WORKING_SET") == "1")
    for set_, least in (("working", None), ("judging", 0.95)):
        for ruled in ("", ", ruled"):
            found = {reader: statistics.mean(scores[set_][reader + ruled] or [0.0]) for reader in ("own", "pymupdf4llm", "pdfplumber")}
            peer = max(("pymupdf4llm", "pdfplumber"), key=found.get)
            count = len(scores[set_]["own" + ruled])
            name = f"F1 of {count} tables {'with' if ruled else 'without'} rules, {set_} set"
            report(name, found["own"], "", least=None if ruled else least)
            report("  the same", found["own"], "", peer, found[peer])


def places_and_forms(program, material):
    """Places of words by pdfplumber, and DoclingDocument by docling-core, of every tenth document of the judging set. WORKING_SET=1
    takes those of the working set, and prints words that pdfplumber reads otherwise."""
    works = os.environ.get("WORKING_SET") == "1"
    figures, refused, worst = places.check(program, material.folder.parent, int(os.environ.get("EVERY", "10")), not works)
    for both, one, words, document, lost in worst if works else worst[:15]:
        print(f"    {one} of {words} words, {both} by both  {document.sha256[:8]} {document.path}")
        for word in lost[:6] if works else ():
            print(f"        {word}")
    # A word that another reader reads in our box, and pdfplumber does not, stands there: values of fields and notes, of which
    # pdfplumber reads nothing, and letters that it has no Unicode for.
    words, otherwise = figures["words"], figures["read by PyMuPDF"]
    report(f"words of {words}, {figures['files']} files, where pdfplumber reads them", figures["read"] / max(1, words), "")
    report(f"  without {otherwise} that PyMuPDF reads there", figures["read"] / max(1, words - otherwise), "", least=0.995)
    for reason in refused:
        print(f"    {reason}")
    report(f"documents of {figures['documents']} that docling-core refuses", len(refused), "", most=0)


if __name__ == "__main__":
    main()
