"""The server in operation: several processes, readiness, requests whose client has gone, load, keys, ids and metrics."""

import asyncio
import json
import logging
import os
import shutil
import signal
import struct
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

pytest.importorskip("starlette", reason="the server needs pip install '.[serve]'")
httpx = pytest.importorskip("httpx2", reason="tests of the server need httpx2")
from starlette.testclient import TestClient
from test_serve import end, served, start

from nmt.foundation.errors import UserError
from nmt.foundation.json_log import JsonFormatter
from nmt.loading import load, translator
from nmt.serving import monitoring
from nmt.serving.batcher import Batcher
from nmt.serving.limits import KeyFile, Refused
from nmt.storage import checkpoint as ckpt

pytestmark = pytest.mark.usefixtures("unchecked")  # searches: test_search.py executes signatures


@pytest.fixture(scope="module")
def pair(small_run):
    return dict(zip(("source", "target"), load(small_run).languages, strict=True))


@pytest.fixture(scope="module")
def server(small_run):
    return served(f"model={small_run}", "names=[reverse]")


@pytest.fixture(scope="module")
def client(server):
    with TestClient(server.app()) as client:
        yield client


def test_mapped_weights_are_the_file_s_own_pages(small_run, tmp_path):
    """The mapped file may be replaced; the weights stay."""
    file = Path(shutil.copy(small_run / "best.safetensors", tmp_path))
    plain, mapped = translator(str(file)), translator(str(file), mapped=True)
    assert str(file) in Path("/proc/self/maps").read_text()
    (tmp_path / "new").write_bytes(b"damaged")
    (tmp_path / "new").replace(file)
    parameters = zip(plain.networks.models, mapped.networks.models, strict=True)
    for one, other in parameters:
        assert all(map(torch.equal, one.parameters(), other.parameters()))
    assert mapped.translate(["a b c", "d"]) == plain.translate(["a b c", "d"])


def test_mapped_weights_are_not_read_into_memory(tmp_path):
    file = tmp_path / "model.safetensors"
    ckpt.write(file, {"config": {}}, {"model/w": torch.ones(1_000_000)})
    tracemalloc.start()
    mapped = ckpt.read(file, mapped=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert torch.equal(mapped.tensors["model/w"], torch.ones(1_000_000))
    assert peak < file.stat().st_size / 2


@pytest.mark.parametrize(("headers", "request_id"), [
    ({"X-Request-ID": "order-7/a"}, "order-7/a"),
    ({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "4bf92f3577b34da6a3ce929d0e0e4736"),
    ({"X-Request-ID": "a b"}, None), ({"X-Request-ID": "x" * 129}, None), ({"traceparent": "00-1-2-3"}, None),
])  # fmt: skip
def test_a_request_keeps_its_id(client, caplog, monkeypatch, headers, request_id):
    monkeypatch.setattr(logging.getLogger("nmt"), "propagate", True)
    caplog.set_level(logging.INFO, "nmt")
    answer = client.get("/models", headers=headers)
    returned = answer.headers["x-request-id"]
    assert returned == (request_id or returned)
    assert request_id or len(returned) == 32
    [line] = [record for record in caplog.records if record.name == "nmt.serve.access"]
    written = json.loads(JsonFormatter().format(line))
    assert [written[key] for key in ("request_id", "status", "path")] == [returned, 200, "/models"]
    assert line.getMessage().startswith("testclient GET '/models' 200 0.0")


def test_every_answer_has_an_id(client):
    for path, status in (("/nothing", 404), ("/translate", 405)):
        answer = client.get(path)
        assert (answer.status_code, len(answer.headers["x-request-id"])) == (status, 32)
    figures = client.get("/metrics").text
    assert 'nmt_requests_total{path="other",status="404"}' in figures


def metric(client, name):
    """The current value of a metric; 0 if it was not counted yet."""
    lines = client.get("/metrics").text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


def test_metrics_of_models_and_processes(client, pair, server):
    counts = {
        'nmt_batch_sentences_sum{model="reverse"}': 2.0,
        'nmt_reloads_total{model="reverse",result="loaded"}': 1.0,
    }
    before = {name: metric(client, name) for name in counts}  # of tests in any order
    assert client.post("/translate", json={"q": ["a b", "c d"], **pair}).status_code == 200
    server.models.all[0].reload()
    assert {name: metric(client, name) - before[name] for name in counts} == counts
    figures = client.get("/metrics").text
    for name in (
        'nmt_queue_sentences{model="reverse"} 0.0', "nmt_open_requests 0.0",
        f'process_open_fds{{pid="{os.getpid()}"}}', "process_cpu_seconds_total",
    ):  # fmt: skip
        assert name in figures


def test_ready_until_the_server_stops(small_run, pair):
    server = served(f"model={small_run}")
    with TestClient(server.app()) as client:
        assert client.get("/ready").json() == {"status": "ready"}
        server._stopping.set()
        assert client.get("/ready").status_code == 503
        answer = client.post("/translate", json={"q": "a", **pair})  # still answered
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert client.get("/health").json()["status"] == "ok"


def test_keys_are_read_again(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("nmt"), "propagate", True)
    path = tmp_path / "keys"
    path.write_text("# ours\nfirst\n")
    keys = KeyFile(path)
    assert keys.current() == ["first"]
    path.write_text("second\nthird\n")
    assert keys.current() == ["second", "third"]
    path.write_text("")
    assert keys.current() == ["second", "third"]
    path.unlink()
    assert keys.current() == ["second", "third"]
    assert caplog.text.count("the previous API keys stay valid") == 2
    path.write_text("# none\n")
    with pytest.raises(UserError, match="contains no API keys"):
        KeyFile(path)


def test_metrics_may_need_a_key(small_run, tmp_path):
    (tmp_path / "keys").write_text("valid\n")
    guarded = served(f"model={small_run}", f"keys={tmp_path}/keys", "metrics_key=true")
    with TestClient(guarded.app()) as client:
        assert client.get("/metrics").status_code == 403
        assert client.get("/metrics", headers={"Authorization": "Bearer valid"}).status_code == 200
        assert client.get("/ready").status_code == 200
    limited = served(
        f"model={small_run}", f"keys={tmp_path}/keys", "metrics_key=true", "per_minute=3"
    )
    with TestClient(limited.app()) as client:
        statuses = [client.get("/metrics").status_code for _ in range(5)]
        assert statuses == [403, 403, 403, 429, 429]
    with pytest.raises(UserError, match="metrics_key"):
        served(f"model={small_run}", "metrics_key=true")


def test_a_request_without_its_client_is_not_computed(server, pair, monkeypatch):
    """The sentences of a client that has gone leave the queue; the next request is computed."""
    batches, begun, go = [], threading.Event(), threading.Event()
    [model] = server.models.all

    def work(requests):
        batches.append([request.sentence for request in requests])
        begun.set()
        go.wait(10)
        return original(requests)

    original = model.translate_batch
    monkeypatch.setattr(model.batcher, "work", work)
    app = server.app()

    async def post(text, gone):
        body = json.dumps({"q": text, **pair}).encode()
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])
        sent = []

        async def receive():
            message = next(messages, None)
            if message is None:
                await gone.wait()
            return message or {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/translate", "query_string": b"", "headers": []}  # fmt: skip
        await app(scope, receive, send)
        return sent[0]["status"]

    async def all_of_it():
        never, gone = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(post("a", never))
        await asyncio.to_thread(begun.wait, 10)
        others = [asyncio.create_task(post(text, event)) for text, event in (("b", gone), ("c", never))]  # fmt: skip
        while len(model.batcher._waiting) < 2:
            await asyncio.sleep(0.01)
        gone.set()
        status = await others[0]
        go.set()
        return await asyncio.gather(first, others[1]), status

    assert asyncio.run(all_of_it()) == ([200, 200], 499)
    assert batches == [["a"], ["c"]]


def test_the_queue_expects_its_time():
    """Seconds per letter are measured; a queue that needs too long refuses new requests."""
    now = [0.0]

    def work(items):
        now[0] += 2.0 * sum(map(len, items))
        return items

    async def measured():
        batcher = Batcher(work, ThreadPoolExecutor(1), wait=0.0, most=9, size=len)
        assert batcher.expected_seconds == 0
        await batcher.do(["abc"])
        waiting = asyncio.create_task(batcher.do(["abcd", "e"]))
        await asyncio.sleep(0)
        expected = batcher.expected_seconds
        await waiting
        return expected, batcher.expected_seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.serving.batcher.time.monotonic", lambda: now[0])
        assert asyncio.run(measured()) == (10.0, 0.0)


def test_a_faster_batch_replaces_the_measured_speed_at_once():
    """The first batch of a server is slow, which must not refuse later requests."""
    now = [0.0]
    seconds = iter([40.0, 2.0, 7.0])

    def work(items):
        now[0] += next(seconds)
        return items

    async def measured():
        batcher = Batcher(work, ThreadPoolExecutor(1), wait=0.0, most=9, size=len)
        speeds = []
        for _ in range(3):
            await batcher.do(["a"])
            speeds.append(batcher._seconds_per_size)
        return speeds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.serving.batcher.time.monotonic", lambda: now[0])
        assert asyncio.run(measured()) == [40.0, 2.0, 3.0]


def test_a_long_queue_refuses(small_run, pair):
    server = served(f"model={small_run}", "max_seconds=5")
    with TestClient(server.app()) as client:
        batcher = server.models.all[0].batcher
        batcher._computing, batcher._seconds_per_size = 100, 0.065
        answer = client.post("/translate", json={"q": "a", **pair})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
        batcher._computing = 0
        assert client.post("/translate", json={"q": "a", **pair}).status_code == 200
    with pytest.raises(Refused, match="server busy"):
        batcher._computing, batcher._seconds_per_size = 100, 0.065
        server._check_load()


# As processes


def workers_of(url):
    """Process ids of the metrics."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return {int(line.split('"')[1]) for line in lines if line.startswith("process_open_fds{")}


def until(condition, seconds=60):
    stop = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < stop, "not within the time"
        time.sleep(0.1)


def answered(url, pair):
    """Whether a new connection translates."""
    try:
        return httpx.post(f"{url}/translate", json={"q": "a b c", **pair}).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.exhaustive
def test_several_processes(small_run, pair):
    """A killed process is replaced, SIGHUP replaces all, metrics count all, and SIGTERM first ends the readiness, then the processes."""
    process, url = start(f"model={small_run}", "workers=2", "drain=1.5")
    expected = load(small_run).translate("a b c")
    until(lambda: answered(url, pair) and len(workers_of(url)) == 2)
    before = workers_of(url)
    texts = {httpx.post(f"{url}/translate", json={"q": "a b c", **pair}).json()["translatedText"] for _ in range(5)}  # fmt: skip
    assert texts == {expected}
    os.kill(min(before), signal.SIGSTOP)
    time.sleep(2)  # now the supervisor waits for the answer of the stopped process
    os.kill(min(before), signal.SIGKILL)
    until(lambda: len(workers_of(url) - before) == 1)
    before = workers_of(url)
    process.send_signal(signal.SIGHUP)  # new processes, one by one
    answers = set()
    while workers_of(url) & before or len(workers_of(url)) < 2:
        answers.add(answered(url, pair))
    assert answers == {True}
    assert 'nmt_requests_total{path="/translate",status="200"} ' in httpx.get(f"{url}/metrics").text
    process.send_signal(signal.SIGTERM)
    time.sleep(0.7)
    assert httpx.get(f"{url}/ready").status_code == 503
    assert answered(url, pair)
    assert "Traceback" not in process.communicate(timeout=40)[1]
    assert process.returncode == 0
    assert not answered(url, pair)


@pytest.mark.exhaustive
def test_a_process_that_cannot_start_does_not_end_the_others(small_run, pair, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "run")
    process, url = start(f"model={folder}", "workers=2")
    until(lambda: answered(url, pair) and len(workers_of(url)) == 2)
    best = (folder / "best.safetensors").read_bytes()
    (folder / "damaged").write_bytes(best[:1000])
    (folder / "damaged").replace(folder / "best.safetensors")
    before = workers_of(url)
    os.kill(min(before), signal.SIGKILL)
    answers = []
    for _ in range(20):  # a process needs a few seconds until it fails to start
        time.sleep(0.5)
        answers.append(answered(url, pair))
    assert all(answers), answers
    assert max(before) in workers_of(url)
    (folder / "whole").write_bytes(best)
    (folder / "whole").replace(folder / "best.safetensors")
    until(lambda: len(workers_of(url) - before) == 1)
    process.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=40)[1]
    assert "a server process cannot start" in errors
    assert process.returncode == 0


@pytest.mark.exhaustive
def test_no_process_outlives_its_supervisor(small_run, pair):
    process, url = start(f"model={small_run}", "workers=2")
    until(lambda: answered(url, pair))
    process.kill()
    process.communicate(timeout=40)
    until(lambda: not answered(url, pair))


@pytest.mark.exhaustive
def test_drain_of_one_process(small_run, pair):
    process, url = start(f"model={small_run}", "drain=1.5")
    stopped = threading.Thread(target=end, args=(process,))
    stopped.start()
    time.sleep(0.5)
    assert httpx.get(f"{url}/ready").status_code == 503
    assert answered(url, pair)
    stopped.join()
    assert not answered(url, pair)


def test_metrics_are_read_again_while_a_process_starts(client, monkeypatch):
    """The file of a process that starts is empty at first."""
    generate = monitoring.generate_latest

    def first_fails(registry):
        monkeypatch.setattr(monitoring, "generate_latest", generate)
        raise struct.error("unpack_from requires a buffer of at least 4 bytes")

    monkeypatch.setattr(monitoring, "generate_latest", first_fails)
    assert "nmt_requests_total" in client.get("/metrics").text
