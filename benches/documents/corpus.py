"""Documents made by others, listed in corpus.tsv with their digests: read from git repositories into a cache.

    python3 benches/documents/corpus.py FOLDER                           fetches what FOLDER does not hold yet
    python3 benches/documents/corpus.py --add OWNER/NAME COMMIT GIT_DIR  adds the documents of a commit to the list

CORPUS_GIT is where repositories are, https://github.com/{repository} unless set; {owner} and {name} are known, too. It may be a
folder. A document belongs to the judging set if its digest ends with an odd digit, else to the working set: look into that only.
"""
import collections
import csv
import hashlib
import os
import pathlib
import subprocess
import sys

LIST = pathlib.Path(__file__).with_name("corpus.tsv")
FIELDS = ["repository", "commit", "path", "sha256"]
TYPES = {"pdf", "docx", "doc", "rtf", "odt", "ods", "odp", "xlsx", "xls", "pptx", "epub", "eml", "tif", "tiff", "html"}
# A document of one type, at most, from one repository: those that come first by their digests.
MOST = {"pdf": 1000, "html": 30}
MOST_OF_OTHERS = 60
LEAST_BYTES, MOST_BYTES = 200, 4_000_000

Document = collections.namedtuple("Document", [*FIELDS, "file"])


def is_judged(document):
    return int(document.sha256[-1], 16) % 2 == 1


def kind(path):
    return path.rsplit(".", 1)[-1].lower()


def listed(documents=LIST):
    with documents.open(newline="") as file:
        yield from csv.DictReader(file, delimiter="\t")


def documents(folder, of_list=LIST):
    """All documents of a list, from `folder`; missing ones are fetched."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = [Document(**row, file=folder / f"{row['sha256']}.{kind(row['path'])}") for row in listed(of_list)]
    missing = collections.defaultdict(list)
    for document in found:
        if not document.file.exists():
            missing[document.repository, document.commit].append(document)
    for (repository, commit), wanting in missing.items():
        store(wanting, repository_of(folder, repository, commit))
    return found


def repository_of(folder, repository, commit):
    """A bare repository with `commit` in it."""
    place = folder / "git" / repository
    owner, name = repository.split("/")
    address = os.environ.get("CORPUS_GIT", "https://github.com/{repository}")
    address = address.format(repository=repository, owner=owner, name=name)
    if os.path.isdir(address):
        return address
    place.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["git", "-C", place, "cat-file", "-e", commit], capture_output=True).returncode:
        git(place, "init", "--quiet", "--bare")
        git(place, "fetch", "--quiet", "--depth", "1", address, commit)
    return place


def git(place, *command, **more):
    return subprocess.run(["git", "-C", place, *command], check=True, stdout=subprocess.PIPE, **more).stdout


def store(wanting, place):
    for document, content in zip(wanting, contents(place, wanting[0].commit, [one.path for one in wanting])):
        if content is None or hashlib.sha256(content).hexdigest() != document.sha256:
            sys.exit(f"{document.path} of {document.repository} is not the document of the list")
        document.file.write_bytes(content)


def contents(place, commit, paths):
    """The bytes of each path, None for one that is not there."""
    names = "".join(f"{commit}:{path}\n" for path in paths)
    output = git(place, "cat-file", "--batch", input=names.encode())
    at = 0
    for _ in paths:
        end = output.index(b"\n", at)
        head = output[at:end].split()
        if head[-1] == b"missing":
            yield None
            at = end + 1
        else:
            size = int(head[-1])
            yield output[end + 1:end + 1 + size]
            at = end + size + 2


def add(repository, commit, place):
    """Appends the documents of a commit to the list, each digest once."""
    rows = list(listed())
    known = {row["sha256"] for row in rows}
    tree = git(place, "ls-tree", "-r", "-l", "-z", commit).decode().split("\0")
    paths = collections.defaultdict(list)
    for line in filter(None, tree):
        described, path = line.split("\t", 1)
        size = described.split()[3]
        fits = size.isdigit() and LEAST_BYTES <= int(size) <= MOST_BYTES and not set(path) & set('\t\n"')
        if kind(path) in TYPES and fits:
            paths[kind(path)].append(path)
    for type_, of_type in sorted(paths.items()):
        found = {}
        for path, content in zip(of_type, contents(place, commit, of_type)):
            found.setdefault(hashlib.sha256(content).hexdigest(), path)
        fresh = sorted(set(found) - known)[:MOST.get(type_, MOST_OF_OTHERS)]
        known.update(fresh)
        rows += [dict(zip(FIELDS, (repository, commit, found[digest], digest))) for digest in fresh]
    rows.sort(key=lambda row: (row["repository"].lower(), row["path"]))
    with LIST.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    if sys.argv[1] == "--add":
        add(*sys.argv[2:])
    else:
        print(len(documents(sys.argv[1])), "documents")
