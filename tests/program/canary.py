"""Credentials for tests, marked so that a leak is found: no output, file or argument list of a test may contain them.

Every program of the tests starts with a marked value in each variable that may hold a credential (harness.environment). The harness
searches what the program prints, the files of the test's folder and the arguments of all processes for the mark: raw, percent-encoded,
in hexadecimal and in base64. Each variable has its own value, because the value of one may be removed where that of another is printed.
"""

import base64
import mmap
import os
import pathlib
import secrets
import threading
import urllib.parse

MARK = f"Canary{secrets.token_hex(6)}"  # differs between test processes, which run side by side


def value(name):
    """Marked credential. Its last characters change if they are percent-encoded or quoted, its beginning does not."""
    return f"{MARK}/{name}+='1"


def in_url(name):
    return urllib.parse.quote(value(name), safe="")


def base64_forms():
    """The mark in base64 for each of the three places at which it may begin, without the letters that depend on its neighbors."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + MARK.encode())
        yield encoded[-(-before * 8 // 6) : (before + len(MARK)) * 8 // 6]


FORMS = {
    "as it is": MARK.encode(),
    "percent-encoded": "".join(f"%{letter:02X}" for letter in MARK.encode()).encode(),
    "in hexadecimal": MARK.encode().hex().encode(),
    **{f"in base64 ({number})": form for number, form in enumerate(base64_forms())},
}

NAMES = (
    "HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "GRAFANA_API_KEY", "ALERT_WEBHOOK_SECRET",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "AZURE_CLIENT_SECRET", "GITHUB_TOKEN", "OPENAI_API_KEY")


def variables(given=()):
    """Variables with marked values. A test that configures a service has all of its credentials: AWS_REGION among the names `given` omits AWS_*."""
    made = {name: value(name) for name in NAMES}
    made["AZURE_STORAGE_SAS_TOKEN"] = f"sv=2024-08-04&sig={in_url('AZURE_STORAGE_SAS_TOKEN')}"
    made["OTEL_EXPORTER_OTLP_HEADERS"] = f"Authorization=Bearer {value('OTEL_EXPORTER_OTLP_HEADERS')}"
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        made[name] = f"http://me:{in_url(name)}@127.0.0.1:9"
    made["no_proxy"] = made["NO_PROXY"] = "127.0.0.1,localhost,::1"  # the proxy is configured but never used
    made["DATABASE_URL"] = f"postgres://me:{in_url('DATABASE_URL')}@127.0.0.1/runs"
    services = {name.split("_")[0] for name in given}
    return {name: text for name, text in made.items() if name.split("_")[0] not in services}


def find(data):
    """Description of the first mark in bytes (or a map of a file), or None."""
    for how, form in FORMS.items():
        at = data.find(form)
        if at >= 0:
            around = bytes(data[max(at - 100, 0) : at + 60])
            return f"{how}, at byte {at}: {around!r}"
    return None


def expect_none(what, data):
    found = find(data.encode(errors="surrogateescape") if isinstance(data, str) else data)
    assert found is None, f"{what} contains a credential {found}"


def files_with_credentials(folder, but=()):
    """Files below a folder that contain a mark, except those whose name matches one of the patterns `but`."""
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = pathlib.Path(parent, name)
            if any(path.match(pattern) for pattern in but) or path.is_symlink() or not path.is_file():
                continue
            try:
                with open(path, "rb") as file:
                    if os.fstat(file.fileno()).st_size == 0:
                        continue
                    with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
                        where = find(data)
            except OSError:  # removed, or of a file system that is no longer mounted
                continue
            if where:
                found.append(f"{path.relative_to(folder)} contains a credential {where}")
    return found


class Arguments:
    """Looks for marks in the arguments of all processes of the machine, which every user can list, several times per second."""

    SECONDS = 0.1

    def __init__(self):
        self.found, self.stopping = [], threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.stopping.is_set():
            self.look()
            self.stopping.wait(self.SECONDS)

    def look(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
                    words = file.read(1 << 20)
            except OSError:  # it has ended
                continue
            where = find(words)
            if where:
                self.found.append(f"the arguments of process {pid} contain a credential {where}")

    def stop(self):
        """Ends the search and returns what it found."""
        self.stopping.set()
        self.thread.join()
        return self.found
