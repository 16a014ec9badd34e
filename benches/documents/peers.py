"""Texts of documents as other programs read them: each in a process with limits of time and memory, kept beside the document.

Documents are compared in processes of their own, too: texts are long, figures are not. The name of a document in the cache is its digest, so a text that was read once holds for later runs, too. A reader that fails or reaches
a limit has read nothing.
"""
import multiprocessing
import os
import resource
import subprocess
import sys

SECONDS = 60
# Documents that are compared at the same time, those of a process before another one takes its place and its memory, and how long
# one may take, with all of its peers.
PARALLEL, DOCUMENTS_OF_PROCESS, MOST_SECONDS = 2, 100, 1200
MOST_MEMORY = 3 << 30
# Letters of a text that are compared, at most.
MOST_LETTERS = 20_000_000
# It writes its complaints where its text is.
PYMUPDF = """
import sys, pymupdf
pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)
for page in pymupdf.open(sys.argv[1]): sys.stdout.write(page.get_text(sort=False))
"""
PYPDFIUM = """
import sys, pypdfium2
for page in pypdfium2.PdfDocument(sys.argv[1]): sys.stdout.write(page.get_textpage().get_text_range() + "\\n")
"""
PEERS = {
    "pdftotext": lambda file: ["pdftotext", "-enc", "UTF-8", file, "-"],
    "pymupdf": lambda file: [sys.executable, "-c", PYMUPDF, file],
    "pypdfium2": lambda file: [sys.executable, "-c", PYPDFIUM, file],
}


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def kept(document, suffix, command):
    """The output of `command` for a document, from the cache if it ran before."""
    file = document.file.with_suffix(suffix)
    if not file.exists():
        try:
            read = subprocess.run(command, capture_output=True, timeout=SECONDS, preexec_fn=limit_memory,
                                  env={**os.environ, "PYTHONIOENCODING": "utf-8:ignore"})
            text = read.stdout if read.returncode == 0 else b""
        except subprocess.TimeoutExpired:
            text = b""
        partial = file.with_suffix(f"{suffix}.partial")
        partial.write_bytes(text.decode(errors="ignore").encode())
        partial.rename(file)
    return file.read_text()


def text(document, name):
    return kept(document, f".{name}.txt", PEERS[name](document.file))[:MOST_LETTERS]


def compared(work, documents, service):
    """The answers of `work` for each document and the port of a service, in the order in which they are done."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(PARALLEL, limit_memory, maxtasksperchild=DOCUMENTS_OF_PROCESS) as pool:
        done = pool.imap_unordered(work, [(document, service.port) for document in documents])
        for _ in documents:
            yield done.next(timeout=MOST_SECONDS)
