"""The four training texts of `tiny` out of unpacked Debian packages; called by prepare_text.sh.

usage: prepare_text.py UNPACKED HELD_OUT OUT

Python 3 with its standard library alone. Same packages in, same bytes out. Behind the cleaning
stands the held-out text (examples/text): prose and math are cut where it begins, which must be
in their last 3.1 %; of code the files are left out that it was made of, and Go is two texts: the
library and the commands. Then every paragraph of
100 or more characters that the domain's held-out text has too is dropped, whatever it came from.
"""
import hashlib
import html
import os
import re
import struct
import sys
import zlib

TDAVID = "usr/share/sword/modules/comments/zcom/tdavid/ot"
GO = "usr/share/go-1.19/src"
SET_MM = "usr/share/metamath/databases/set.mm"
PARAGRAPH = 100
FILE_GAP = "\n\n\n"


def read(path):
    with open(path, "rb") as file:
        return file.read()


def spaces(text):
    """Runs of blanks as one."""
    return re.sub(r"[ \t]+", " ", text)


def prose(root):
    """A SWORD zCom4 module: .czs lists zlib blocks of .czz (offset, size, unpacked size), .czv a
    piece of a block for every verse (block, offset, size), all 32 bits; verses may share one."""
    base = os.path.join(root, TDAVID)
    packed = read(base + ".czz")
    blocks = [zlib.decompress(packed[at:at + size])
              for at, size, _ in struct.iter_unpack("<III", read(base + ".czs"))]
    seen, entries = set(), []
    for block, at, size in struct.iter_unpack("<III", read(base + ".czv")):
        if size > 0 and (block, at) not in seen:
            seen.add((block, at))
            entries.append(blocks[block][at:at + size].decode())
    text = re.sub(r"</?div\b[^>]*>", "\n", "\n".join(entries))
    text = spaces(re.sub(r"<[^>]*>", "", text))
    return html.unescape(re.sub(r"\n\s*\n", "\n\n", text))


def math(root):
    """set.mm without proofs and without the remarks on who wrote what when."""
    text = read(os.path.join(root, SET_MM)).decode("ascii")
    text = re.sub(r"\$=.*?\$\.", "$.", text, flags=re.S)
    remark = r"[ \t]*\n?[ \t]*\((?:Contributed|Revised|Proof |New usage)[^()]*\)"
    return spaces(re.sub(remark, "", text))


# As https://go.dev/s/generatedcode has it. A third of the sources: tables and rewrite rules.
GENERATED = re.compile(r"^// Code generated .* DO NOT EDIT\.$", re.M)


def code_files(root):
    """Go files without tests, test data, vendored packages and what programs wrote, without the
    copyright notice: (whether it is one of a command, text)."""
    top, files = os.path.join(root, GO), []
    for folder, folders, names in os.walk(top):
        folders[:] = [one for one in folders if one not in ("testdata", "vendor")]
        files += [os.path.join(folder, one) for one in names
                  if one.endswith(".go") and not one.endswith("_test.go")]
    out = []
    for path in sorted(files):
        try:
            text = read(path).decode()
        except UnicodeDecodeError:
            continue
        if not GENERATED.search(text):
            bare = re.sub(r"\A// Copyright[^\n]*\n(//[^\n]*\n)*", "", text).strip() + "\n"
            out.append((path.startswith(os.path.join(top, "cmd", "")), bare))
    return out


def cut(name, text, held):
    at = text.find(held)
    if at < 0 or text.find(held, at + 1) >= 0:
        sys.exit(f"{name}: the held-out text is not in the package's text exactly once;"
                 " is this the package that it was taken from?")
    if at < 0.969 * len(text):
        sys.exit(f"{name}: the held-out text begins at {at / len(text):.4f}, not in the last 3 %")
    print(f"{name}: held-out text equal to the package's, from {at / len(text):.4f} of it on")
    return text[:at]


def code(files, held):
    """Library and commands. The held-out text is files one after the other, the first and the last
    cut off."""
    pieces = [one.strip() for one in held.split(FILE_GAP)]
    first, last, whole = pieces[0], pieces[-1], set(pieces)
    kept, known = {False: [], True: []}, 0
    for command, text in files:
        bare = text.strip()
        # A file may have the gap inside; then its pieces are in `whole`, but not the file.
        out = bare in whole or bare.endswith(first) or bare.startswith(last) or bare in held
        known += out
        if not out:
            kept[command].append(text)
    if known < 40:
        sys.exit(f"code: {known} files of the held-out text found, at least 40 expected")
    print(f"code: {known} of {len(files)} files are in the held-out text")
    return FILE_GAP.join(kept[False]), FILE_GAP.join(kept[True])


def long_paragraphs(text):
    return {one.strip() for one in text.split("\n\n") if len(one.strip()) >= PARAGRAPH}


def without_held_out(name, text, unwanted):
    kept, dropped = [], 0
    for one in text.split("\n\n"):
        if one.strip() in unwanted:
            dropped += len(one)
        else:
            kept.append(one)
    print(f"{name}: {dropped} characters in paragraphs that the held-out texts have too: dropped")
    return "\n\n".join(kept)


def search(text, unwanted):
    """Those of `unwanted` that are in the text, wherever they begin. Of a paragraph of three lines
    or more the inner ones must be whole lines of the text: a quick first look."""
    lines = set(text.split("\n"))
    likely = [one for one in unwanted if all(inner in lines for inner in one.split("\n")[1:-1])]
    return sorted((one for one in likely if one in text), key=lambda one: (-len(one), one))


def check(name, text, unwanted):
    """Searches the finished text."""
    left = search(text, unwanted)
    if not left:
        return text
    print(f"{name}: {len(left)} held-out paragraphs are inside longer ones: cut out")
    for one in left:
        text = text.replace(one, "")
    if search(text, unwanted):
        sys.exit(f"{name}: held-out text is still in it")
    return text


def main():
    root, held_out, out = sys.argv[1:]
    held = {one: read(os.path.join(held_out, one + ".txt")).decode()
            for one in ("prose", "code", "math")}
    library, commands = code(code_files(root), held["code"])
    texts = {"prose": (cut("prose", prose(root), held["prose"]), "prose"),
             "library": (library, "code"),
             "commands": (commands, "code"),
             "math": (cut("math", math(root), held["math"]), "math")}
    for name, (text, domain) in texts.items():
        unwanted = long_paragraphs(held[domain])
        data = check(name, without_held_out(name, text, unwanted), unwanted).encode()
        path = os.path.join(out, name + ".txt")
        with open(path + ".new", "wb") as file:
            file.write(data)
        os.replace(path + ".new", path)
        print(f"{path}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


main()
