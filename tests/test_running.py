"""The page about running the server: its nginx, systemd and container files, as far as this machine can run them."""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT

httpx = pytest.importorskip("httpx2", reason="tests of the server need httpx2")
pytest.importorskip("starlette", reason="the server needs pip install '.[serve]'")
load_script = pytest.importorskip("load", reason="scripts/load.py needs psutil")

from nmt.configuration.configure import configure
from nmt.loading import load

PAGE = (ROOT / "nmt/serving/running.md").read_text(encoding="utf-8")


def block(language):
    """The only code block in a language."""
    [text] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return text


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


@pytest.fixture
def public_run(small_run, tmp_path):
    """A copy of a run that every user may read."""
    folder = Path("/tmp") / f"nmt-running-{os.getpid()}"
    folder.mkdir(mode=0o755)
    shutil.copy(small_run / "best.safetensors", folder)
    (folder / "best.safetensors").chmod(0o644)
    yield folder
    shutil.rmtree(folder)


def unit():
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str
    parsed.read_string(block("ini"))
    return parsed


def dockerfile():
    """Instructions and their arguments."""
    return [tuple(line.split(maxsplit=1)) for line in block("dockerfile").splitlines()]


def test_the_commands_of_the_page_compose(small_run, tmp_path):
    (tmp_path / "keys").write_text("key\n")
    words = shlex.split(unit()["Service"]["ExecStart"])[3:]
    known = {"/srv/nmt": str(small_run), "%i": "8001", "%d/keys": str(tmp_path / "keys")}
    settings = configure("serve", [f"{key}={known.get(value, value)}" for key, value in (word.split("=", 1) for word in words)])  # fmt: skip
    assert (settings.port, settings.proxies, settings.drain) == (8001, ["127.0.0.1"], 2)
    stages = dict(dockerfile())
    arguments = [*json.loads(stages["ENTRYPOINT"])[3:], "model=/model", "drain=10"]
    assert configure("serve", arguments).host == "0.0.0.0"
    limits = configure("serve", ["model=/model"])
    assert "client_max_body_size 1m;" in block("nginx")
    assert limits.max_bytes <= 2**20
    assert "proxy_read_timeout 70s;" in block("nginx")
    assert limits.max_seconds < 70


@pytest.mark.exhaustive
@needs("nginx")
def test_nginx_before_two_servers(small_run, tmp_path, request):
    """Behind the prefix /mt/: requests with an id, the page, a killed server, large and slow bodies. Only the
    server with `proxies=` uses forwarded addresses."""
    import socket

    ports = [load_script.free_port(), load_script.free_port()]
    options = [[f"model={small_run}", "proxies=[127.0.0.1]"], [f"model={small_run}"]]
    servers = []
    request.addfinalizer(lambda: [(server.kill(), server.wait()) for server in servers])
    for port, overrides in zip(ports, options, strict=True):
        with (tmp_path / str(port)).open("w") as errors:
            command = [sys.executable, "-m", "nmt.serve", f"port={port}", *overrides]
            servers.append(subprocess.Popen(command, cwd=ROOT, stderr=errors))
    translator = load(small_run)
    languages = dict(zip(("source", "target"), translator.languages, strict=True))
    expected = translator.translate("a b c")
    body = {"q": "a b c", **languages}
    with load_script.nginx(tmp_path, ports) as address, httpx.Client() as client:
        load_script.wait_until_ready(client, ports)
        for number in range(4):
            answer = client.post(f"{address}/translate", json=body, headers={"X-Request-ID": f"id{number}"})  # fmt: skip
            assert answer.json() == {"translatedText": expected}
            assert answer.headers["x-request-id"] == f"id{number}"
        assert len(client.post(f"{address}/translate", json=body).headers["x-request-id"]) == 32
        scripts = re.findall(r'src="([\w./]+js)"', client.get(f"{address}/").text)
        assert [client.get(f"{address}/{name}").status_code for name in scripts] == [200]
        described = client.get(f"{address}/openapi.json")
        assert str(described.url.join(described.json()["servers"][0]["url"])) == f"{address}/"
        assert client.get(f"{address}/metrics").status_code == 404
        assert client.post(f"{address}/translate", content=b"x" * 2_000_000).status_code == 413
        host, port = address.removeprefix("http://").removesuffix("/mt").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"POST /mt/translate HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
            slow.settimeout(20)
            assert slow.recv(100)[:12] in (b"HTTP/1.1 408", b"")
        forwarded = {"X-Forwarded-For": "203.0.113.9"}
        for port in ports:
            client.post(f"http://127.0.0.1:{port}/translate", json=body, headers=forwarded)
        servers[0].kill()
        for _ in range(6):
            assert client.post(f"{address}/translate", json=body).json() == {"translatedText": expected}  # fmt: skip
    servers[1].send_signal(signal.SIGTERM)
    assert [server.wait(40) for server in servers] == [-signal.SIGKILL, 0]
    log = "".join((tmp_path / str(port)).read_text() for port in ports)
    assert "127.0.0.1 POST '/translate' 200" in log
    assert "id id1" in log
    assert ["203.0.113.9 POST" in (tmp_path / str(port)).read_text() for port in ports] == [
        True,
        False,
    ]


@pytest.mark.exhaustive
@needs("systemd-analyze")
def test_the_unit_is_valid(tmp_path):
    text = block("ini").replace("/opt/nmt/.venv/bin/python", sys.executable)
    (tmp_path / "nmt@.service").write_text(text)
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "nmt@.service")], capture_output=True, text=True)  # fmt: skip
    ours = [line for line in result.stderr.splitlines() if "nmt@" in line]
    assert ours == []


def everyone_may_run(path):
    """Whether users without rights may run a program: all its folders are open."""
    path = Path(path).resolve()
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))


def built(folder):
    """The image's packages: COPY and the last RUN, executed with `folder` in place of /."""
    for name, line in dockerfile():
        if name == "COPY":
            *sources, target = line.split()
            place = folder / target.lstrip("/")
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(
                        ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__")
                    )
                else:
                    place.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, place)
    words = shlex.split([line for name, line in dockerfile() if name == "RUN"][-1])
    assert words == ["pip", "install", "--no-cache-dir", "/opt/nmt[serve]"]
    packages = folder / "packages"
    command = [sys.executable, "-m", "pip", *words[1:3], "--no-deps", "--target", str(packages), str(folder / "opt/nmt")]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode and "hatchling" in result.stderr:
        pytest.skip("needs the package index for hatchling")
    assert result.returncode == 0, result.stderr
    return packages


@pytest.mark.exhaustive
def test_the_container_s_commands(public_run, tmp_path):
    """The server starts, is healthy, translates, stops, and writes nothing but its cache."""
    stages = dict(dockerfile())
    packages = built(tmp_path)
    port = load_script.free_port()
    variable, folder = stages["ENV"].split("=")
    assert folder.startswith("/tmp/")
    cache = public_run / "cache"
    cache.mkdir()
    rights = {}
    if os.geteuid() == 0 and everyone_may_run(sys.executable) and everyone_may_run(packages):
        rights = {"user": int(stages["USER"]), "group": int(stages["USER"])}
        os.chown(cache, *rights.values())
    environment = {variable: str(cache), "PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    entry = [sys.executable, *json.loads(stages["ENTRYPOINT"])[1:]]
    command = [*entry, f"model={public_run}", f"port={port}"]
    (tmp_path / "empty").mkdir()
    server = subprocess.Popen(command, cwd=tmp_path / "empty", env=environment, stderr=subprocess.PIPE, text=True, **rights)  # fmt: skip
    check = [sys.executable, *json.loads(stages["HEALTHCHECK"].partition("CMD ")[2])[1:]]
    check[-1] = check[-1].replace(":8000/", f":{port}/")
    assert subprocess.run(check, capture_output=True).returncode == 1  # not yet
    with httpx.Client() as client:
        load_script.wait_until_ready(client, [port])
        assert subprocess.run(check, capture_output=True).returncode == 0
        translator = load(public_run)
        languages = dict(zip(("source", "target"), translator.languages, strict=True))
        answer = client.post(f"http://127.0.0.1:{port}/translate", json={"q": "a b", **languages})
    assert answer.json() == {"translatedText": translator.translate("a b")}
    server.terminate()
    output = server.communicate(timeout=40)[1]
    assert server.returncode == 0, output
    assert "Traceback" not in output
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.exhaustive
@needs("docker")
def test_the_docker_file_is_valid(tmp_path):
    (tmp_path / "Dockerfile").write_text(block("dockerfile"))
    result = subprocess.run(["docker", "build", "--check", str(tmp_path)], capture_output=True, text=True)  # fmt: skip
    if "daemon" in result.stderr or "unknown flag" in result.stderr:
        pytest.skip("needs a running Docker")
    assert result.returncode == 0, result.stderr


@pytest.mark.exhaustive
@pytest.mark.skipif(
    shutil.which("opentelemetry-instrument", path=str(Path(sys.executable).parent)) is None,
    reason="needs pip install '.[opentelemetry]'",
)
def test_opentelemetry_traces_requests(small_run, tmp_path):
    port = load_script.free_port()
    program = str(Path(sys.executable).parent / "opentelemetry-instrument")
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none", "PYTHONPATH": str(ROOT)}  # fmt: skip
    command = [program, sys.executable, "-m", "nmt.serve", f"model={small_run}", f"port={port}"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    with httpx.Client() as client:
        load_script.wait_until_ready(client, [port])
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        client.get(f"http://127.0.0.1:{port}/models", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})  # fmt: skip
    server.terminate()
    assert f'"trace_id": "0x{trace}"' in server.communicate(timeout=60)[0]
