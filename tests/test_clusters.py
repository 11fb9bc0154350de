"""Ray, submitit and datasets: their processes translate as one process does."""

import functools
import random
import sys
import warnings

import pyarrow
import pyarrow.parquet
import pytest
from commands import run

import nmt
from nmt.pipeline.ray_data import translate_dataset

pytestmark = pytest.mark.exhaustive
ABSENT = "{0} is not installed; scripts/setup --all installs it"
GREEDY = ["search=greedy", "device=cpu"]


def package(name):
    return pytest.importorskip(name, reason=ABSENT.format(name))


@pytest.fixture(scope="module")
def ray():
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_raylet_start_wait_time_s", "120")
        patch.setenv("RAY_worker_niceness", "0")  # as start_ray
        ray = package("ray")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield ray
        ray.shutdown()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Three chunks of lines, so that two jobs have work."""
    draw = random.Random(1)
    lines = [" ".join(draw.choices("abcdefgh", k=draw.randint(0, 4))) for _ in range(4100)]
    file = tmp_path_factory.mktemp("text") / "in.txt"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


@pytest.fixture(scope="module")
def expected(small_run, text):
    output = text.with_name("out.txt")
    words = [f"model={small_run}", f"input={text}", f"output={output}", *GREEDY]
    assert run("translate", *words).returncode == 0
    return output.read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_ray_tasks(ray, small_run, text, expected, tmp_path):
    words = [f"model={small_run}", f"input={text}", f"output={tmp_path}/out", *GREEDY]
    result = run("translate", *words, "launcher=ray", "jobs=2")
    assert result.returncode == 0, result.stderr.decode()
    assert (tmp_path / "out").read_bytes() == expected
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    output = f"output={tmp_path}/none/out"
    result = run("translate", *words[:2], output, *GREEDY, "launcher=ray", "jobs=2")
    assert result.returncode == 1
    assert result.stderr.count(b"cannot be created") == 1, result.stderr.decode()


@pytest.mark.filterwarnings("ignore")
def test_ray_data(ray, small_run, text, tmp_path):
    lines = nmt.load(small_run, device="cpu").translate(text.read_text().splitlines())
    translate_dataset(str(small_run), str(text), str(tmp_path / "out"), actors=2, device="cpu")
    files = sorted((tmp_path / "out").glob("*.parquet"))
    tables = [pyarrow.parquet.read_table(file) for file in files]
    rows = pyarrow.concat_tables(tables).to_pydict()
    assert rows == {"text": text.read_text().splitlines(), "translation": lines}


def test_array_of_submitit(small_run, text, expected, tmp_path):
    submitit = package("submitit")
    words = [f"model={small_run}", f"input={text}", f"output={tmp_path}/parts/", *GREEDY]
    command = [sys.executable, "-m", "nmt.translate", *words]
    executor = submitit.AutoExecutor(folder=tmp_path / "log", cluster="local")
    executor.update_parameters(timeout_min=10)
    array = submitit.helpers.CommandFunction(command, verbose=False)
    for job in executor.map_array(array, ["job=1/2", "job=2/2"]):
        job.result()
    parts = sorted((tmp_path / "parts").glob("part-*"))
    assert b"".join(part.read_bytes() for part in parts) == expected
    assert (tmp_path / "parts" / "_SUCCESS").exists()


@functools.cache
def loaded(model):
    return nmt.load(model, device="cpu")


def translated(batch, model):
    return {"translation": loaded(model).translate(batch["text"])}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("processes", [None, 2])
def test_map_of_datasets(small_run, text, processes):
    import datasets

    lines = text.read_text().splitlines()[:300]
    table = datasets.Dataset.from_dict({"text": lines}).map(
        translated,
        batched=True,
        batch_size=100,
        num_proc=processes,
        fn_kwargs={"model": str(small_run)},
    )
    assert list(table["translation"]) == loaded(str(small_run)).translate(lines)
