# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Interactive shells on terminals of their own, which complete words of the command."""
import contextlib
import os
import pty
import select
import shutil
import subprocess
import tempfile
import time

import tap
from harness import BUILD, clean_environment

SOURCES = os.path.join(os.path.dirname(BUILD), "tools", "completion")
PROMPT = "ready> "
# Ctrl-T has the line told as it is then; the completion before it told what it found.
BASH = """
PS1='{prompt}'
bind 'set enable-bracketed-paste off'
bind 'set completion-query-items -1'
bind 'set page-completions off'
bind -x '"\\C-t": printf "%s" "$READLINE_LINE" >"$TOLD/line.new"; mv "$TOLD/line.new" "$TOLD/line"'
{setup}
"""
BASH_ALONE = """
source {sources}/actmem.bash
found() {{
	_actmem "$@"
	printf '%s\\n' "${{COMPREPLY[@]}}" >"$TOLD/found"
}}
complete -F found actmem actmem-bench
"""
BASH_COMPLETION = "source /usr/share/bash-completion/bash_completion"
ZSH = """
PS1='{prompt}'
zle_bracketed_paste=()
unsetopt prompt_sp
fpath=({folder} $fpath)
autoload -Uz compinit && compinit -u -d {folder}/dump
zstyle ':completion:*' list-prompt ''
LISTMAX=1000
compadd() {{
	local -a found
	if [[ ${{@[1,(i)(-|--)]}} != *-(O|A|D)\\ * ]]; then
		builtin compadd -O found "$@"
		print -l -- $found >>$TOLD/found
	fi
	builtin compadd "$@"
}}
tell() {{ print -rn -- $BUFFER >$TOLD/line.new; mv $TOLD/line.new $TOLD/line }}
zle -N tell
bindkey -e '^T' tell
"""


class Shell:
    """One that runs, in a folder of its own."""

    def __init__(self, arguments, folder, **variables):
        self.folder = folder
        self.terminal, theirs = pty.openpty()
        path = os.path.join(BUILD, "bin") + ":" + os.environ["PATH"]
        environment = clean_environment(PATH=path, TOLD=folder, TERM="dumb", HOME=folder,
                                        ZDOTDIR=folder, COLUMNS="200", **variables)
        self.process = subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs,
                                        cwd=folder, env=environment, start_new_session=True)
        os.close(theirs)
        self.output = ""
        self.until(lambda: PROMPT in self.output)

    def until(self, happens):
        """Takes its output until that is true: it would stop writing."""
        end = time.monotonic() + 60
        while not happens():
            assert time.monotonic() < end, self.output
            if select.select([self.terminal], [], [], 0.01)[0]:
                self.output += os.read(self.terminal, 65536).decode(errors="replace")

    def told(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def complete(self, line):
        """The line as it is after a tab, and the words that were found for its end."""
        for name in "line", "found":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))
        os.write(self.terminal, f"{line}\t\x14".encode())
        path = os.path.join(self.folder, "line")
        self.until(lambda: os.path.exists(path))
        now = self.told("line")
        os.write(self.terminal, b"\x15")
        found = []
        with contextlib.suppress(FileNotFoundError):
            found = self.told("found").split()
        return now, found

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@contextlib.contextmanager
def bash(completion=False):
    """With nothing but the file; or with what finds such files, and this one among them."""
    setup = BASH_COMPLETION if completion else BASH_ALONE.format(sources=SOURCES)
    with tempfile.TemporaryDirectory() as folder:
        rc = os.path.join(folder, "rc")
        os.mkdir(os.path.join(folder, "completions"))
        os.symlink(os.path.join(SOURCES, "actmem.bash"),
                   os.path.join(folder, "completions", "actmem"))
        with open(rc, "w", encoding="utf-8") as file:
            file.write(BASH.format(prompt=PROMPT, setup=setup))
        shell = Shell(["bash", "--noprofile", "--rcfile", rc, "-i"], folder,
                      BASH_COMPLETION_USER_DIR=folder)
        try:
            yield shell
        finally:
            shell.close()


@contextlib.contextmanager
def zsh():
    if not shutil.which("zsh"):
        raise tap.Skip("there is no zsh")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(SOURCES, "actmem.zsh"), os.path.join(folder, "_actmem"))
        with open(os.path.join(folder, ".zshrc"), "w", encoding="utf-8") as file:
            file.write(ZSH.format(prompt=PROMPT, folder=folder))
        shell = Shell(["zsh", "-d", "-i"], folder)
        try:
            yield shell
        finally:
            shell.close()
