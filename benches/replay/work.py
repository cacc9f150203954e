"""A workload in a directory of its own, and the servers that it talks to."""
import os, pathlib, shutil, subprocess, sys

from workloads import CLIENTS

HERE = pathlib.Path(__file__).resolve().parent
CERTIFICATES = """
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj '/CN=Authority of the table' -keyout ca.key -out ca.pem
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out leaf.csr
echo 'subjectAltName=DNS:localhost' >leaf.ext
openssl x509 -req -days 30 -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile leaf.ext -out leaf.pem
cat leaf.pem ca.pem >chain.pem
git init -q work && cd work && echo page >page && git add page
git -c user.name=me -c user.email=me@example.org commit -q -m page
git clone -q --bare . ../repo.git
"""


def prepare_origin(directory):
    """What the servers need: certificates, a repository."""
    directory.mkdir()
    subprocess.run(["sh", "-ec", CERTIFICATES], cwd=directory, check=True, capture_output=True)
    return directory


class Origin:
    """The servers, as long as the `with` lasts."""

    def __init__(self, directory):
        self.directory = directory

    def __enter__(self):
        words = [sys.executable, HERE / "origin.py", self.directory]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.plain, self.secure = (int(port) for port in self.process.stdout.readline().split())
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def missing(workload):
    """A program or package that it needs and that is not here."""
    for program in (workload.command[0], *workload.needs):
        if not program.startswith("./") and not shutil.which(program):
            return program
    for package in workload.imports:
        if subprocess.run([CLIENTS, "-c", f"import {package}"], capture_output=True).returncode:
            return package
    return None


def at(words, plain, secure):
    """The words with the servers' addresses in them."""
    return [word.replace("$PLAIN", f"http://localhost:{plain}").replace("$SECURE", f"https://localhost:{secure}") for word in words]


class Work:
    """One workload in a directory of its own."""

    def __init__(self, workload, directory, tools):
        self.workload, self.directory, self.tools = workload, directory, tools
        self.trace = directory.parent / (directory.name + ".jsonl")
        (directory / "out").mkdir(parents=True)
        for file in workload.files:
            shutil.copy(HERE / "programs" / file, directory)

    def prepare(self, origin):
        """Builds it; the words of `agentbox` that record it."""
        rules = "read: .\nwrite: ./out\nexec: /**\n" + self.workload.rules
        options = ["-p", self.directory.parent / (self.directory.name + ".policy"), "-t", self.trace]
        command, build = self.workload.command, self.workload.build
        if origin:
            rules += f"net: localhost:{origin.plain}, localhost:{origin.secure}\n"
            options += ["--upstream-ca", self.tools / "ca.pem"]
            build, *command = at([build, *command], origin.plain, origin.secure)
        options[1].write_text(rules)
        if build:
            subprocess.run(["sh", "-ec", build], cwd=self.directory, check=True, capture_output=True)
        return ["run", *options, "--", *command]

    def size(self):
        """Of the trace and all that lies beside it, in KiB."""
        store = pathlib.Path(str(self.trace) + ".blobs")
        files = [self.trace, *(path for path in store.rglob("*") if path.is_file())]
        return sum(path.stat().st_size for path in files) // 1024
