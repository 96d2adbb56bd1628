"""`tfopt train --dask`, `--workers`: the file that is written without a cluster."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest
from common.dask_cluster import by_hand, processes, tasks
from distributed import default_client

from tfopt.cli import cluster, train

#: Too few epochs to come to the end.
FLAGS = ["--tol", "1e-9", "--epochs", "4", "--blocks", "3"]


@pytest.fixture(scope="module")
def client():
    with processes(1) as client:
        yield client


@pytest.fixture
def data(folder):
    """Forty rows of three features, of three classes."""
    random = np.random.default_rng(0)
    rows = []
    for label in random.integers(3, size=40):
        values = label * np.array([-1, 0, 1]) + random.standard_normal(3)
        rows.append(f"{label} " + " ".join(f"{j}:{x:g}" for j, x in enumerate(values, 1)))
    path = folder / "data.svm"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_an_address_where_nobody_answers(cli, data, monkeypatch):
    """First, for the client that asked there must not be what this process asks later.

    Nor may it be collected while another one starts: distributed's lock is taken twice then, once
    in each of two threads, and the start fails after ten seconds.
    """
    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT", 1)
    monkeypatch.setattr(train, "_read_parts", None)
    for address, message in [
        ("tcp://127.0.0.1:1", "no Dask scheduler answers within 1 s"),
        ("carrier://pigeon", "is not an address such as tcp://host:port"),
    ]:
        outcome = cli("train", data, *FLAGS, "--dask", address)
        assert (outcome.code, outcome.err) == (1, f"{address}: {message}\n")
        with pytest.raises(ValueError, match="No clients found"):
            default_client()
    gc.collect()


@pytest.fixture
def there(client):
    return ["--dask", client.scheduler.address]


@pytest.mark.parametrize("flags", [["--l1", "0.01"], ["--bias", "1"], ["--loss", "squared"]])
def test_a_cluster_changes_no_bytes(cli, data, folder, client, there, flags):
    """Nor does the number of its workers: here one, and two of another that is started for it."""
    own = [["--workers", "2"]] if "--l1" in flags else []
    files = []
    for k, where in enumerate([[], there, *own]):
        outcome = cli("train", data, *FLAGS, *flags, *where, "--model", f"{k}.npz", "--json")
        assert outcome.code in (0, 3), outcome.err
        assert outcome.json()["settings"]["blocks"] == 3
        files.append((folder / f"{k}.npz").read_bytes())
    assert len(set(files)) == 1
    assert tasks(client) == []


def test_there_are_no_more_blocks_than_rows_and_eight_unless_given(cli, tiny, folder, there):
    files = []
    for flags in (["--blocks", "8"], there, ["--blocks", "100"]):
        result = cli("train", tiny, *flags, "--epochs", "2", "--json").json()
        files.append((result["scores"], result["certificate"]))
    assert files[0] == files[1] == files[2]


@pytest.fixture
def stopped(cli, data, there, monkeypatch):
    """Stop a run on a cluster once it has a checkpoint; return its arguments."""
    arguments = ["train", data, *FLAGS, *there, "--checkpoint-every", "3"]
    with monkeypatch.context() as patches:
        patches.setattr(train, "write_model", interrupt)
        assert cli(*arguments).code == 130
    return arguments


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_run_that_was_stopped_goes_on(cli, data, folder, stopped):
    saved = folder / "model.checkpoint"
    names = sorted(path.name for path in saved.iterdir())
    assert names[-2:] == ["manifest.npz", "run.npz"] and len(names) == 5
    outcome = cli(*stopped, "--resume")
    assert outcome.code in (0, 3), outcome.err
    assert not saved.exists()
    assert cli("train", data, *FLAGS, "--model", "alone.npz").code in (0, 3)
    assert (folder / "model.npz").read_bytes() == (folder / "alone.npz").read_bytes()
    again = cli(*stopped, "--resume", "--checkpoint", "other")
    assert again.err.startswith("other: not there, so training begins anew\n")
    assert not (folder / "other").exists()


def test_another_run_does_not_go_on_there(cli, data, folder, stopped):
    saved = folder / "model.checkpoint"
    kept = {path: path.read_bytes() for path in saved.iterdir()}
    outcome = cli(*stopped, "--resume", "--seed", "3")
    assert (
        outcome.err == f"{saved}: belongs to a run with other settings: seed was 0 and is 3 now\n"
    )
    data.write_text(data.read_text() + "1 1:1\n")
    outcome = cli(*stopped, "--resume")
    assert outcome.err == f"{saved}: belongs to a run on other train data\n"
    assert kept == {path: path.read_bytes() for path in saved.iterdir()}
    (saved / "run.npz").unlink()
    for flags in ([], ["--resume"]):  # a library's checkpoint, it seems
        outcome = cli(*stopped, *flags)
        assert outcome.err == f"{saved}: is not a run of tfopt train\n"
    assert (saved / "manifest.npz").exists()


def test_a_scheduler_that_is_lost_is_one_line(shell, data, folder, tmp_path):
    epochs = ["--tol", "1e-300", "--epochs", "1000000"]
    with by_hand(tmp_path) as (client, scheduler):
        flags = [*epochs, "--dask", client.scheduler.address, "--checkpoint-every", "1"]
        flags += ["--model", "model.npz"]
        killer = threading.Thread(target=kill_after, args=[scheduler, folder / "model.checkpoint"])
        killer.start()
        done = shell("tfopt", "train", data, *flags)
        killer.join()
    assert done.code == 1
    assert done.err == (
        "the connection to the scheduler is lost; --resume goes on from the last checkpoint\n"
    )


def kill_after(process, saved):
    """Kill a process once a fit is saved."""
    while not (saved / "manifest.npz").exists():
        time.sleep(0.01)
    process.kill()


def test_what_is_refused_on_a_cluster_is_one_line(cli, folder, there, client):
    (folder / "negative").write_text("-1 1:1\n2 1:2\n3 1:1\n")
    outcome = cli("train", "negative", *FLAGS, *there, "--loss", "poisson")
    assert outcome.code == 1
    assert outcome.err.startswith("negative: ") and "non-negative" in outcome.err
    assert outcome.err.count("\n") == 1
    assert tasks(client) == []
