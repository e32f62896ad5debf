# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The highest resident memory of common programs in malloc mode, compared with glibc's malloc.

The limit is FACTOR times glibc's, plus SPARE_KIB for what does not depend on the program: the
preload library and its tables, and huge pages of which blocks use only a part.
"""
import os
import random
import shutil
import subprocess
import sys
import tempfile

from harness import BUILD, clean_environment
from tap import case, main

LAUNCHER = os.path.join(BUILD, "tests", "malloc", "resident")
PRELOAD = os.path.join(BUILD, "lib", "libactmem_preload.so")
FACTOR = 1.15
SPARE_KIB = 4 << 10
LEAST_PROGRAMS = 30

# "sh" runs a pipe or several commands. {lines} has 60,000 lines of 61 bytes, {other} differs
# from it in some lines, {words} is short, {numbers} has one number in each line, {code} is C.
PROGRAMS = {
    "gcc": "gcc -O2 -c -o {out} {code}",
    "gcc -O0 -g": "gcc -O0 -g -c -o {out} {code}",
    "g++": "g++ -O1 -x c++ -c -o {out} {templates}",
    "cc1 -S and as": "sh: gcc -S -o {out}.s {code} && as -o {out} {out}.s",
    "ld": "sh: ld -r -o {out} {object} && objdump -d {out} >{out}.txt && nm {out} >{out}.nm",
    "strip": "strip -o {out} {object}",
    "make": "sh: seq 1 3000 | sed 's/.*/all: t&\\nt&:; @:/' >{out} && make -f {out}",
    "perl array": "perl -e '@a = map {{ $_ x 3 }} 1..300000; print scalar @a'",
    "perl hash": "perl -e '$h{{$_}} = $_ for 1..100000; print scalar %h'",
    "perl string": "perl -e '$s .= \"x\" x 1000 for 1..30000; print length $s'",
    "perl file": "perl -e 'local $/; $_ = <>; s/a/bb/g; print length' {lines}",
    "perl sort": "perl -e 'print sort <>' {lines}",
    "awk array": "awk '{{ a[$1] = $0 }} END {{ print length(a) }}' {lines}",
    "awk string": "awk '{{ s = s substr($0, 1, 8) }} NR == 20000 {{ print length(s); exit }}' {lines}",
    "sort": "sort -o {out} {lines}",
    "sort -S": "sort -S 64M --parallel=2 -o {out} {lines}",
    "sort -n": "sort -n -o {out} {numbers}",
    "shuf": "shuf -o {out} {lines}",
    "tac": "sh: tac {lines} >{out}",
    "sed": "sh: sed 's/a/bb/g; $!N' {lines} >{out}",
    "sed hold": "sh: sed -n 'H; ${{x; s/\\n/,/g; p}}' {words} >{out}",
    "grep": "sh: grep -c 'a.*b[0-9]' {lines} >{out}",
    "grep -f": "sh: grep -F -c -f {words} {lines} >{out}",
    "join": "sh: join {sorted} {sorted} >{out}",
    "comm": "sh: comm {sorted} {sorted} >{out}",
    "diff": "sh: diff {lines} {other} >{out} || test $? = 1",
    "fold, cut, tr": "sh: fold -w 20 {lines} | cut -c 2-9 | tr a-f A-F >{out}",
    "split": "split -n l/9 {lines} {out}.",
    "base64, od": "sh: base64 {lines} | od -A x -t x1 >{out}",
    "sha256sum": "sh: sha256sum {lines} >{out}",
    "tar": "tar cf {out} -C {folder} lines other code.c",
    "gzip": "sh: gzip -9 <{lines} >{out} && gzip -d <{out} | cmp - {lines}",
    "bzip2": "sh: bzip2 <{other} >{out} && bzip2 -d <{out} | cmp - {other}",
    "xz": "sh: xz -4 <{other} >{out} && xz -d <{out} | cmp - {other}",
    "xz of a short file": "sh: xz -9 <{words} >{out} && xz -d <{out} | cmp - {words}",
    "xz -T2": "sh: xz -1 -T2 <{lines} >{out}",
    "zstd -T2": "sh: zstd -9 -T2 <{lines} >{out}",
    "openssl": "openssl enc -aes-256-cbc -pbkdf2 -k key -in {lines} -out {out}",
    "git": "sh: git init -q {out} && cp {lines} {other} {code} {out} && cd {out} && git add . && "
           "git -c user.name=n -c user.email=e commit -q -m m && git repack -q -adf",
    "find": "sh: find /usr/share/doc -name '*.gz' -printf '%s %p\\n' | sort >{out}",
    "bash": "bash -c 'for ((i = 0; i < 60000; i++)); do a[i]=$i$i$i; done; echo ${{#a[@]}}'",
    "dash": "sh: s=$(head -c 4000000 {lines}); echo ${{#s}}",
    "mke2fs": "sh: truncate -s 256M {out} && mke2fs -q -F {out}",
    "dpkg-query": "dpkg-query -W",
    "zsh": "zsh -c 'a=(${{(f)\"$(<{words})\"}}); b=(${{(o)a}}); echo $#b'",
    "clang": "clang-19 -O2 -c -o {out} {code}",
    "python list": "py: a = [str(i) for i in range(200000)]; a.sort()",
    "python dict": "py: a = {{str(i): i for i in range(150000)}}",
    "python bytearray": "py: a = bytearray()\nfor i in range(3000): a += bytes(17000)",
    "python file": "py: text = open('{lines}').read(); lines = text.split()",
    "python json": "py: import json; json.loads(json.dumps([[i, str(i)] for i in range(60000)]))",
    "python re": "py: import re; re.sub('[ab]+', 'xyz', open('{lines}').read())",
    "python sqlite": "py: import sqlite3; c = sqlite3.connect(':memory:').cursor()\n"
                     "c.execute('create table t (a, b)')\n"
                     "c.executemany('insert into t values (?, ?)', ((i, 'x' * 40) for i in range(200000)))\n"
                     "c.execute('select * from t order by b, a desc').fetchall()",
    "python buffers": "py: a = [bytearray(300000 + i * 7000) for i in range(200)]\n"
                      "a = [bytes(a.pop(i * 7 % len(a))) for i in range(150)]",
    "python threads": "py: import bz2, threading, zlib\ndata = open('{lines}', 'rb').read(1000000)\n"
                      "def work():\n"
                      "  for i in range(2): bz2.compress(data[i::9]); zlib.compress(data[i::5])\n"
                      "threads = [threading.Thread(target=work) for i in range(12)]\n"
                      "[t.start() for t in threads]; [t.join() for t in threads]",
    "python aligned": "py: import ctypes; c = ctypes.CDLL(None); a = []\n"
                      "def take(size):\n"
                      "  block = ctypes.c_void_p()\n"
                      "  c.posix_memalign(ctypes.byref(block), 64, ctypes.c_size_t(size))\n"
                      "  ctypes.memset(block, 1, size)\n"
                      "  a.append(block)\n"
                      "for i in range(120):\n"
                      "  take((2 + i * 7 % 13) << 20)\n"
                      "  if len(a) > 12: c.free(a.pop(i * 5 % 12))",
    "python sparse": "py: import ctypes; c = ctypes.CDLL(None); c.calloc.restype = ctypes.c_void_p\n"
                     "for i in range(12):\n"
                     "  a = c.calloc(1, 5 << 20); ctypes.memset(a + (3 << 20), 1, 100)",
}


def make_files(folder):
    """Writes the inputs. The same in each run."""
    chance = random.Random(7)
    lines = [chance.randbytes(30).hex() for _ in range(60000)]
    names = {name: os.path.join(folder, name) for name in (
        "lines", "other", "sorted", "words", "numbers", "out")}
    names["folder"] = folder
    names["code"] = os.path.join(folder, "code.c")
    names["templates"] = os.path.join(folder, "templates.cc")
    names["object"] = os.path.join(folder, "object.o")

    def write(name, text):
        with open(names[name], "w", encoding="ascii") as file:
            file.write(text)

    write("lines", "\n".join(lines) + "\n")
    write("sorted", "\n".join(sorted(lines)) + "\n")
    write("other", "\n".join(line if i % 50 else line[::-1]
                             for i, line in enumerate(lines[:30000])) + "\n")
    write("words", "\n".join(line[:12] for line in lines[:3000]) + "\n")
    write("numbers", "\n".join(str(chance.randrange(10 ** 9)) for _ in lines) + "\n")
    write("code", "".join(
        f"int f{i}(int *a, int n)\n{{\n\tint s = {i};\n\n\tfor (int i = 0; i < n; i++)\n"
        f"\t\ts += a[i] * {i % 7 + 2} ^ s >> 3;\n\treturn s;\n}}\n" for i in range(300)))
    write("templates", "#include <map>\n#include <regex>\n#include <string>\n"
          "bool f(const std::string &s) { return std::regex_match(s, std::regex(\"a+b\")); }\n")
    subprocess.run(["gcc", "-O1", "-c", "-o", names["object"], names["code"]], check=True)
    return names


def command_of(text, names):
    text = text.format(**names)
    if text.startswith("py: "):
        return ["/usr/bin/python3", "-c", text[4:]]
    return ["sh", "-ec", text.removeprefix("sh: ")]


def remove_output(names):
    for name in os.listdir(names["folder"]):
        if name.startswith("out"):
            path = os.path.join(names["folder"], name)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def peak_kib(command, names, **variables):
    """The highest resident memory, or None if a program is not installed."""
    told = os.path.join(names["folder"], "told")
    result = subprocess.run([LAUNCHER, told, *command], capture_output=True, text=True,
                            env=clean_environment(LC_ALL="C", **variables), timeout=300,
                            check=False)
    remove_output(names)
    if result.returncode == 127:
        return None
    assert not result.returncode and "actmem" not in result.stderr, (command, result)
    with open(told, encoding="ascii") as file:
        return int(file.read())


@case
def programs_need_little_more_memory_than_with_glibc():
    high, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        names = make_files(folder)
        for name, text in PROGRAMS.items():
            command = command_of(text, names)
            plain = peak_kib(command, names)
            if plain is None:
                continue
            ours = peak_kib(command, names, RESIDENT_PRELOAD=PRELOAD, ACTMEM_MALLOC="1")
            print(f"# {name}: {plain >> 10} MiB, {ours >> 10} MiB in malloc mode", flush=True)
            count += 1
            if ours > plain * FACTOR + SPARE_KIB:
                high.append(name)
    assert count >= LEAST_PROGRAMS, count
    assert not high, high


if __name__ == "__main__":
    sys.exit(main())
