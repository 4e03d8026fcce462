"""In-memory server of Azure's Blob service, written from its REST documentation.

Implements the requests that Arrow's file system (Microsoft's client) sends for an account without a hierarchical namespace. A request
is authorized only by its Shared Key signature or by a SAS token."""

import base64
import email.utils
import hashlib
import hmac
import http.server
import re
import threading
import time
import urllib.parse
import xml.sax.saxutils

import canary

ACCOUNT = "testaccount"
KEY = base64.b64encode(f"{canary.MARK} is in a key of 64 bytes, as Azure's are".ljust(64).encode()).decode()
SIGNED = ("content-encoding content-language content-length content-md5 content-type date if-modified-since if-match if-none-match "
          "if-unmodified-since range").split()


def signature(method, target, headers, key):
    """Shared Key signature, as in "Authorize with Shared Key" of the Blob service's documentation."""
    parts = urllib.parse.urlsplit(target)
    values = {name.lower(): value.strip() for name, value in headers.items()}
    lines = [method, *("" if name == "content-length" and values.get(name) == "0" else values.get(name, "") for name in SIGNED)]
    lines += [f"{name}:{values[name]}" for name in sorted(values) if name.startswith("x-ms-")]
    text = "\n".join(lines) + f"\n/{ACCOUNT}{parts.path}"
    for name, value in sorted(urllib.parse.parse_qsl(parts.query, keep_blank_values=True)):
        text += f"\n{name.lower()}:{value}"
    return base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        headers = {"x-ms-request-id": "1", "x-ms-version": "2024-08-04", "Content-Length": str(len(body)), **{
            name.replace("_", "-"): value for name, value in headers.items()}}
        for name, value in headers.items():
            self.send_header(name, value)
        self._headers_buffer.append(b"\r\n" + (b"" if self.command == "HEAD" else body))
        self.flush_headers()  # a single write, so that the response is one packet

    def fail(self, code, error, message=""):
        body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{error}</Code><Message>{message or error}</Message></Error>'.encode()
        self.answer(code, body, x_ms_error_code=error, **({} if self.command == "HEAD" else {"Content-Type": "application/xml"}))

    def allowed(self):
        if self.query.get("sig"):
            return self.query["sig"] == self.server.sas
        given = self.headers.get("Authorization", "")
        return given == f"SharedKey {ACCOUNT}:{signature(self.command, self.path, self.headers, self.server.key)}"

    def body(self):
        """Reads the request's body. None if it is incomplete: after a lost connection Microsoft's client sends headers without a body and retries."""
        length = int(self.headers.get("Content-Length") or 0)
        self.connection.settimeout(0.4)
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            return None
        self.connection.settimeout(None)
        return body if len(body) == length else None

    def serve(self):
        parts = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        self.server.asked.append((self.command, self.path))
        body = self.body()
        if body is None or not self.server.judge(self.command, self.path):
            self.close_connection = True
            return self.connection.shutdown(2)
        account, _, rest = urllib.parse.unquote(parts.path).lstrip("/").partition("/")
        container, _, name = rest.partition("/")
        if account != ACCOUNT or not self.allowed():
            return self.fail(403, "AuthenticationFailed", "Server failed to authenticate the request.")
        if self.query.get("action") == "getAccessControl":
            return self.fail(400, "HierarchicalNamespaceNotEnabled", "This operation is only permitted on a hierarchical namespace account.")
        with self.server.lock:
            blobs = self.server.containers.get(container)
            if blobs is None:
                return self.fail(404, "ContainerNotFound", "The specified container does not exist.")
            what = (self.command, self.query.get("restype", ""), self.query.get("comp", ""))
            act = {
                ("GET", "container", "list"): self.list, ("GET", "container", ""): self.container, ("HEAD", "container", ""): self.container,
                ("PUT", "", "block"): self.put_block, ("PUT", "", "blocklist"): self.put_list, ("GET", "", "blocklist"): self.get_list,
                ("PUT", "", "lease"): self.lease, ("PUT", "", ""): self.put, ("GET", "", ""): self.get, ("HEAD", "", ""): self.get, ("DELETE", "", ""): self.delete,
                ("POST", "container", "batch"): self.batch}.get(what)
            return act(blobs, name, body) if act else self.fail(501, "NotImplemented", str(what))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    def log_message(self, *words):
        pass

    def container(self, blobs, name, body):
        self.answer(200, Last_Modified=email.utils.formatdate(usegmt=True), ETag='"1"', x_ms_has_immutability_policy="false",
                    x_ms_has_legal_hold="false", x_ms_lease_state="available", x_ms_lease_status="unlocked")

    def list(self, blobs, name, body):
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        begin, most = self.query.get("marker", ""), min(int(self.query.get("maxresults", 5000)), self.server.page)
        entries, seen, marker = "", [], ""
        for key in sorted(key for key in blobs if key.startswith(prefix) and key >= begin):
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            shown = key if cut < 0 else key[: cut + 1]
            if seen and seen[-1] == shown:
                continue
            if len(seen) == most:
                marker = key
                break
            seen.append(shown)
            told = xml.sax.saxutils.escape(shown)
            if cut >= 0:
                entries += f"<BlobPrefix><Name>{told}</Name></BlobPrefix>"
                continue
            blob = blobs[key]
            entries += (
                f"<Blob><Name>{told}</Name><Properties><Creation-Time>{blob['date']}</Creation-Time><Last-Modified>{blob['date']}</Last-Modified>"
                f"<Etag>{blob['tag']}</Etag><Content-Length>{len(blob['data'])}</Content-Length><Content-Type>application/octet-stream</Content-Type>"
                "<BlobType>BlockBlob</BlobType><AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred>"
                "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted></Properties>"
                + "<Metadata>" + "".join(f"<{n}>{v}</{n}>" for n, v in blob["metadata"].items()) + "</Metadata></Blob>")
        text = (f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://127.0.0.1/{ACCOUNT}"><Prefix>'
                f"{xml.sax.saxutils.escape(prefix)}</Prefix><Blobs>{entries}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>")
        self.answer(200, text.encode(), Content_Type="application/xml")

    def keep(self, blobs, name, data, code=201, **headers):
        self.server.written += 1
        blobs[name] = {
            "data": data, "date": email.utils.formatdate(usegmt=True), "tag": f'"{self.server.written}"',
            "metadata": {n[len("x-ms-meta-"):]: v for n, v in self.headers.items() if n.lower().startswith("x-ms-meta-")}}
        self.answer(code, Last_Modified=blobs[name]["date"], ETag=blobs[name]["tag"], x_ms_request_server_encrypted="true", **headers)

    def lease(self, blobs, name, body):
        if name not in blobs:
            return self.fail(404, "BlobNotFound", "The specified blob does not exist.")
        blob, acquires = blobs[name], self.headers["x-ms-lease-action"] == "acquire"
        if acquires and "lease" in blob:
            return self.fail(409, "LeaseAlreadyPresent")
        blob.pop("lease", None)
        if acquires:
            blob["lease"] = self.headers.get("x-ms-proposed-lease-id", "a lease")
        self.answer(201 if acquires else 200, Last_Modified=blob["date"], ETag=blob["tag"], x_ms_lease_id=blob.get("lease", ""), x_ms_lease_time="0")

    def copy(self, blobs, name):
        source = urllib.parse.unquote(urllib.parse.urlsplit(self.headers["x-ms-copy-source"]).path).split("/", 3)[3]
        if source not in blobs:
            return self.fail(404, "BlobNotFound", "The specified blob does not exist.")
        copied = {"x-ms-copy-id": "1", "x-ms-copy-status": "success"}
        self.keep(blobs, name, blobs[source]["data"], code=202, **copied)
        blobs[name]["copied"] = {**copied, "x-ms-copy-source": self.headers["x-ms-copy-source"], "x-ms-copy-progress": "1/1",
                                 "x-ms-copy-completion-time": blobs[name]["date"]}

    def put(self, blobs, name, body):
        if "x-ms-copy-source" in self.headers:
            return self.copy(blobs, name)
        assert self.headers["x-ms-blob-type"] == "BlockBlob"
        self.keep(blobs, name, body)

    def put_block(self, blobs, name, body):
        self.server.blocks.setdefault((id(blobs), name), {})[self.query["blockid"]] = body
        self.answer(201, x_ms_request_server_encrypted="true")

    def put_list(self, blobs, name, body):
        """Commits a block list. Discards blocks that it does not name, including those of other uploads."""
        there = self.server.blocks.pop((id(blobs), name), {})
        wanted = re.findall(r"<(?:Latest|Uncommitted|Committed)>([^<]*)<", body.decode())
        if not set(wanted) <= set(there):
            return self.fail(400, "InvalidBlockList", "The specified block list is invalid.")
        self.keep(blobs, name, b"".join(there[block] for block in wanted))

    def get_list(self, blobs, name, body):
        if name not in blobs:
            return self.fail(404, "BlobNotFound", "The specified blob does not exist.")
        self.answer(200, b'<?xml version="1.0" encoding="utf-8"?><BlockList><CommittedBlocks/><UncommittedBlocks/></BlockList>',
                    Content_Type="application/xml", x_ms_blob_content_length=str(len(blobs[name]["data"])))

    def get(self, blobs, name, body):
        if name not in blobs:
            return self.fail(404, "BlobNotFound", "The specified blob does not exist.")
        blob, code, headers = blobs[name], 200, {}
        data = blob["data"]
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("x-ms-range") or self.headers.get("Range") or ""):
            begin = int(found[1])
            if begin >= len(data):
                return self.fail(416, "InvalidRange")
            end = min(int(found[2] or len(data)), len(data) - 1)
            code, headers["Content-Range"] = 206, f"bytes {begin}-{end}/{len(data)}"
            data = data[begin : end + 1]
        self.answer(code, data, **headers, **blob.get("copied", {}), Last_Modified=blob["date"], ETag=blob["tag"], x_ms_creation_time=blob["date"], x_ms_blob_type="BlockBlob",
                    x_ms_lease_state="available", x_ms_lease_status="unlocked", x_ms_server_encrypted="true", Content_Type="application/octet-stream",
                    x_ms_access_tier="Hot", x_ms_access_tier_inferred="true", **{f"x-ms-meta-{n}": v for n, v in blob["metadata"].items()})

    def delete(self, blobs, name, body):
        if name not in blobs:
            return self.fail(404, "BlobNotFound", "The specified blob does not exist.")
        if blobs[name].get("lease") != self.headers.get("x-ms-lease-id"):
            return self.fail(412, "LeaseIdMissing", "There is currently a lease on the blob and no lease ID was specified in the request.")
        del blobs[name]
        self.answer(202, x_ms_delete_type_permanent="true")

    def batch(self, blobs, name, body):
        """Batch delete: a multipart request with one response per part."""
        mark = re.search("boundary=(.*)", self.headers["Content-Type"])[1].encode()
        answers = b""
        for part in body.split(b"--" + mark)[1:-1]:
            number = re.search(rb"Content-ID: *(\d+)", part, re.I)[1]
            key = urllib.parse.unquote(re.search(rb"DELETE (\S+) HTTP", part)[1].decode().split("?")[0]).split("/", 3)[3]
            done = b"202 Accepted" if blobs.pop(key, None) else b"404 The specified blob does not exist."
            answers += (b"--batch_1\r\nContent-Type: application/http\r\nContent-ID: " + number + b"\r\n\r\nHTTP/1.1 " + done +
                        b"\r\nx-ms-request-id: 1\r\nx-ms-version: 2024-08-04\r\n\r\n")
        self.answer(202, answers + b"--batch_1--", Content_Type="multipart/mixed; boundary=batch_1")


class AzureServer(http.server.ThreadingHTTPServer):
    """Server with one container. `asked` records the method and target of each request. A request that `judge` rejects gets no response.
    A listing returns at most `page` entries."""

    daemon_threads, sas, page = True, "a signature", 20

    def __init__(self, container="work"):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.key = threading.RLock(), KEY
        self.containers, self.blocks, self.written, self.asked = {container: {}}, {}, 0, []
        self.judge = lambda method, path: True
        self.blobs = self.containers[container]
        self.address = f"http://127.0.0.1:{self.server_port}/{ACCOUNT}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def put_folder(self, folder, key):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                date = email.utils.formatdate(time.time(), usegmt=True)
                self.blobs[f"{key}/{path.relative_to(folder)}"] = {"data": path.read_bytes(), "date": date, "tag": '"0"', "metadata": {}}

    def stop(self):
        self.shutdown()
        self.server_close()
