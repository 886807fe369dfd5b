"""Places for artifacts: a directory, and servers of S3, Azure and Google Cloud on loopback."""

import base64
import email.utils
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What Azurite accepts, as its documentation says.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def azurite():
    """The program, or None."""
    modules = pathlib.Path(os.environ.get("PHALANX_AZURITE", ROOT / "target" / "azurite"))
    program = modules / "node_modules" / ".bin" / "azurite-blob"
    return program if program.exists() and shutil.which("node") else None


class Directory:
    """A directory of this machine."""

    port = None

    def __init__(self, path):
        self.path = path
        self.url = f"file://{path}"

    def env(self, port=None):
        return {}

    def put(self, key, content):
        target = self.path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def get(self, key):
        return (self.path / key).read_bytes()

    def keys(self, prefix=""):
        found = [str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file()]
        return sorted(key for key in found if key.startswith(prefix))


class S3Server:
    """moto's server, which speaks S3. It handles one request at a time: like S3, and unlike its threads, it then creates
    an object that is not there once."""

    def __init__(self):
        import boto3
        from moto.server import ThreadedMotoServer

        class Serial(ThreadedMotoServer):
            def _server_entry(self):
                import io

                from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
                from werkzeug.serving import make_server

                app = DomainDispatcherApplication(create_backend_app)
                turn = threading.Lock()

                def one_at_a_time(environ, start):
                    # The body first, so that a slow client holds up nobody.
                    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
                    # Google's interface for XML is that of S3, but for who asks and what is not to be there.
                    if not environ.get("HTTP_AUTHORIZATION", "").startswith("AWS4"):
                        environ["HTTP_AUTHORIZATION"] = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
                    if environ.get("HTTP_X_GOOG_IF_GENERATION_MATCH") == "0":
                        environ["HTTP_IF_NONE_MATCH"] = "*"
                    with turn:
                        return list(app(environ, start))

                self._server = make_server(self._ip_address, self._port, one_at_a_time, True)
                self._server_ready_event.set()
                self._server.serve_forever()

        self.server = Serial(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        self.port = self.server.get_host_and_port()[1]
        self.client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
        self.client.create_bucket(Bucket="models")

    def stop(self):
        self.server.stop()

    def place(self, prefix):
        return S3(self, prefix)


class S3:
    def __init__(self, server, prefix):
        self.client, self.port, self.prefix = server.client, server.port, prefix
        self.url = f"s3://models/{prefix}"

    def env(self, port=None):
        endpoint = f"http://127.0.0.1:{port or self.port}"
        return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}

    def put(self, key, content):
        self.client.put_object(Bucket="models", Key=f"{self.prefix}/{key}", Body=content)

    def get(self, key):
        return self.client.get_object(Bucket="models", Key=f"{self.prefix}/{key}")["Body"].read()

    def keys(self, prefix=""):
        listed = self.client.list_objects_v2(Bucket="models", Prefix=f"{self.prefix}/{prefix}").get("Contents", [])
        return sorted(found["Key"].removeprefix(f"{self.prefix}/") for found in listed)

    def unfinished(self):
        return self.client.list_multipart_uploads(Bucket="models").get("Uploads", [])


class Google(S3):
    """The same server by the names that Google uses, with a key that asks for no tokens."""

    def __init__(self, server, prefix, directory):
        super().__init__(server, prefix)
        self.directory = directory
        self.url = f"gs://models/{prefix}"

    def env(self, port=None):
        key = self.directory / f"key-{port or self.port}.json"
        base = f"http://127.0.0.1:{port or self.port}"
        key.write_text(json.dumps({"private_key": "k", "private_key_id": "i", "client_email": "e", "disable_oauth": True, "gcs_base_url": base}))
        return {"GOOGLE_SERVICE_ACCOUNT": str(key)}


class AzureServer:
    """Azurite, Microsoft's own emulator."""

    def __init__(self, directory):
        start = [str(azurite()), "--location", str(directory), "--blobHost", "127.0.0.1", "--blobPort", "0", "--skipApiVersionCheck", "--disableTelemetry", "--loose"]
        self.process = subprocess.Popen(start, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            if "listens on" in line:
                self.port = int(line.rsplit(":", 1)[1].strip().rstrip("./"))
                break
        else:
            raise RuntimeError("Azurite did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.request("PUT", "models", {"restype": "container"})

    def stop(self):
        self.process.kill()
        self.process.wait()

    def request(self, method, path, query=None, headers=None, content=b""):
        """A signed request; gives the body of the answer."""
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02", **(headers or {})}
        named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        asked = "".join(f"\n{name}:{value}" for name, value in sorted((query or {}).items()))
        length = str(len(content)) if content else ""
        whole = f"/{AZURE_ACCOUNT}/{path}"
        to_sign = f"{method}\n\n\n{length}\n\n\n\n\n\n\n\n\n{named}/{AZURE_ACCOUNT}{whole}{asked}"
        signature = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), to_sign.encode(), hashlib.sha256)).decode()
        headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{signature}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        question = "&".join(f"{name}={value}" for name, value in (query or {}).items())
        connection.request(method, f"{whole}?{question}" if question else whole, content or None, headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status < 300, (answer.status, body)
        return body

    def place(self, prefix):
        return Azure(self, prefix)


class Azure:
    def __init__(self, server, prefix):
        self.server, self.port, self.prefix = server, server.port, prefix
        self.url = f"az://models/{prefix}"

    def env(self, port=None):
        endpoint = f"http://127.0.0.1:{port or self.port}/{AZURE_ACCOUNT}"
        return {"AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY}

    def put(self, key, content):
        self.server.request("PUT", f"models/{self.prefix}/{key}", headers={"x-ms-blob-type": "BlockBlob"}, content=content)

    def get(self, key):
        return self.server.request("GET", f"models/{self.prefix}/{key}")

    def keys(self, prefix=""):
        listed = self.server.request("GET", "models", {"comp": "list", "prefix": f"{self.prefix}/{prefix}", "restype": "container"})
        names = re.findall(r"<Name>([^<]*)</Name>", listed.decode())
        return sorted(name.removeprefix(f"{self.prefix}/") for name in names)


class Throttle:
    """Passes connections on to a port and counts bytes; it can stop in the middle."""

    def __init__(self, port, *, up=None, down=None):
        self.to, self.limits = port, {"up": up, "down": down}
        self.passed = {"up": 0, "down": 0}
        self.reached, self.ended = threading.Event(), threading.Event()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            for source, sink, way in ((client, server, "up"), (server, client, "down")):
                threading.Thread(target=self.move, args=(source, sink, way), daemon=True).start()

    def move(self, source, sink, way):
        try:
            while piece := source.recv(1 << 16):
                with self.lock:
                    self.passed[way] += len(piece)
                    stops = self.limits[way] is not None and self.passed[way] > self.limits[way]
                if stops:
                    self.reached.set()
                    self.ended.wait()
                    break
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.ended.set()
        self.listener.close()
