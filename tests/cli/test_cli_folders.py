"""`tfopt train FOLDER`: as one file here, or each file a block, on the workers of a cluster."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from common.dask_cluster import kill_one, processes, tasks

from tfopt.cli import files, train
from tfopt.cli.files import CommandError, File, files_in, open_url
from tfopt.dask import cluster as dask_cluster
from tfopt.dask.linear.executor import DaskExecutor
from tfopt.linear_model._blocks.checkpoints import BlockFitCheckpoints
from tfopt.linear_model._blocks.execution import WorkerLostError

#: Too few epochs to come to the end.
FLAGS = ["--tol", "1e-9", "--epochs", "4", "--quiet"]


@pytest.fixture(scope="module")
def client():
    with processes(2) as client:
        yield client


@pytest.fixture
def there(client):
    return ["--dask", client.scheduler.address]


@pytest.fixture(params=["here", "there"])
def where(request, client, there):
    """Say where to fit, and see to it that nothing is left on the cluster."""
    yield there if request.param == "there" else []
    assert tasks(client) == []


def lines(n_rows, n_classes, n_features, first=1):
    """Return LIBSVM rows of so many features, counted from `first`."""
    random = np.random.default_rng(n_rows)
    labels = [*range(n_classes), *random.integers(n_classes, size=n_rows - n_classes)]
    for label in labels:
        values = label * np.linspace(-1, 1, n_features) + random.standard_normal(n_features)
        yield f"{label} " + " ".join(f"{j}:{x:g}" for j, x in enumerate(values, first)) + "\n"


@pytest.fixture
def day(folder):
    """Sixty rows of three classes in four files, of which one alone tells that indices begin at 0.

    Another has fewer features, and one has none; beside them are files that are no data.
    """
    path = folder / "day"
    (path / "later").mkdir(parents=True)
    (path / "a").write_text("# head\n" + "".join(lines(14, 3, 3)))
    (path / "b").write_text("".join(lines(9, 3, 2)))
    (path / "c").write_text("1\n2\n")
    (path / "later" / "d.gz").write_bytes(gzip.compress("".join(lines(35, 3, 5, 0)).encode()))
    for name in ("_SUCCESS", ".crc", "later/_log"):
        (path / name).write_text("no data")
    return path


@pytest.fixture
def two(folder):
    """Forty rows of two classes: in a file, and in a folder in the blocks that would be cut."""
    text = list(lines(40, 2, 3))
    (folder / "one").write_text("".join(text))
    (folder / "two").mkdir()
    for name, a, b in (("x", 0, 14), ("y", 14, 27), ("z", 27, 40)):
        (folder / "two" / name).write_text("".join(text[a:b]))
    return folder / "two"


# ---- one model, one report


#: To have the files of a folder as blocks, as on a cluster.
FILES = ["--blocks", "files"]


@pytest.mark.parametrize("flags", [["--l1", "0.01"], ["--bias", "1"], ["--loss", "squared"]])
def test_a_cluster_changes_no_bytes(cli, day, folder, client, there, flags):
    """Nor does the way that the folder is named."""
    files, results = [], []
    for k, where in enumerate([FILES, there, [*there, *FILES]]):
        name = f"file://{day}" if k == 1 else day
        arguments = ["--test", "day", "--model", f"{k}.npz", "--json"]
        outcome = cli("train", name, *FLAGS, *flags, *where, *arguments)
        assert outcome.code in (0, 3), outcome.err
        results.append(outcome.json())
        files.append((folder / f"{k}.npz").read_bytes())
    assert len(set(files)) == 1
    for result in results:
        assert result["rows"] == {"train": 60, "test": 60}
        assert (result["features"], result["zero_based"]) == (5, True)
        assert result["settings"]["blocks"] == 4
        scores = [result["scores"][part] for part in ("train", "test")]
        assert scores[0] == scores[1] == pytest.approx(results[0]["scores"]["test"], rel=1e-12)
        assert result["certificate"] == results[0]["certificate"]
    assert tasks(client) == []


def test_the_number_of_workers_changes_no_bytes(cli, day, folder, there):
    files = []
    with processes(1) as alone:
        for k, where in enumerate([there, ["--dask", alone.scheduler.address]]):
            assert cli("train", "day", *FLAGS, *where, "--model", f"{k}.npz").code in (0, 3)
            files.append((folder / f"{k}.npz").read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("blocks", [None, 3, "files"])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared"])
def test_a_folder_is_the_file(cli, two, folder, loss, blocks):
    """All at once, by all solvers, unless blocks are asked for, which its files may be."""
    flags = [*FLAGS, "--loss", loss, "--json"]
    of_folder = ["--blocks", str(blocks)] if blocks else []
    of_file = ["--blocks", "3"] if blocks else []
    parts = cli("train", "two", *flags, *of_folder, "--model", "two.npz").json()
    whole = cli("train", "one", *flags, *of_file, "--model", "one.npz").json()
    assert (folder / "two.npz").read_bytes() == (folder / "one.npz").read_bytes()
    assert parts["settings"] == whole["settings"]
    assert parts["settings"]["blocks"] == (3 if blocks else None)
    assert parts["scores"]["train"] == pytest.approx(whole["scores"]["train"], rel=1e-12)
    assert ("auc" in parts["scores"]["train"]) == (loss != "squared")
    assert parts["losses"]["train"] == pytest.approx(whole["losses"]["train"])


def test_tables_with_text_are_encoded_alike_everywhere(cli, folder, there):
    """By the values of all files, wherever these are, and a class weighs as much."""
    random = np.random.default_rng(0)
    title, rows = "label,colour,size,other\n", []
    for colour, size in zip(random.integers(3, size=90), random.standard_normal(90), strict=True):
        label = "yes" if size + (colour == 0) + random.normal(0, 0.5) > 0 else "no"
        other = random.choice(["", "1.5", "2"])
        rows.append(f"{label},{('red', 'green', 'blue')[colour]},{size:.4f},{other}\n")
    (folder / "one.csv").write_text(title + "".join(rows))
    (folder / "tables").mkdir()
    for name, a, b in (("a", 0, 30), ("b", 30, 61), ("c", 61, 90)):
        (folder / "tables" / f"{name}.csv").write_text(title + "".join(rows[a:b]))
    flags = ["--label", "label", "--format", "csv", "--class-weight", "balanced", *FLAGS]
    models = []
    for k, (name, where) in enumerate(
        [("one.csv", []), ("tables", []), ("tables", FILES), ("tables", there)]
    ):
        assert cli("train", name, *flags, *where, "--model", f"{k}.npz").code in (0, 3)
        models.append((folder / f"{k}.npz").read_bytes())
    assert models[0] == models[1] != models[2] == models[3]


def test_a_folder_here_is_fitted_by_what_blocks_lack(cli, two, folder):
    """The hinge of many features, by the interior-point method, in a few iterations."""
    for path in two.iterdir():
        path.unlink()
    for name, seed in (("x", 40), ("y", 50)):
        (two / name).write_text("".join(lines(seed, 2, 70)))
    flags = ["--loss", "hinge", "--epochs", "40", "--tol", "1e-6", "--quiet", "--json"]
    assert cli("train", "two", *flags).code == 0
    assert cli("train", "two", *flags, *FILES).code == 3


def test_blocks_stay_where_they_were_read(cli, folder, client, there):
    (folder / "large").mkdir()
    for name in "abcd":
        (folder / "large" / name).write_text("".join(lines(400, 2, 20)))
    assert cli("train", "large", *FLAGS, *there).code in (0, 3)
    travelled = client.run(lambda dask_worker: max_received(dask_worker))
    assert max(travelled.values()) < 400 * 20


def max_received(dask_worker):
    """Return the bytes of the most that came from another worker at once."""
    return max((entry["total"] for entry in dask_worker.transfer_incoming_log), default=0)


# ---- what is refused


def refused(outcome, message):
    assert (outcome.code, outcome.err, outcome.out) == (1, message + "\n", "")


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("1 1:2\n\n2 1:2 2:x\n", [], ":3:7: the value is not a number '2:x'"),
        ("# nothing\n", [], ": no data rows"),
        ("1 0:2\n", ["--zero-based", "no"], ":1:3: index 0 in a one-based file '0:2'"),
        (b"\x1f\x8b\x08", [], ":1: the compressed data end too early"),
    ],
    ids=["line", "empty", "base", "gzip"],
)
def test_names_the_file_and_the_line(cli, two, where, text, flags, message):
    for name in "yz":
        (two / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(cli("train", "two/", *FLAGS, *flags, *where), f"two/y{message}")
    refused(cli("train", "one", "--test", "two", *FLAGS, *flags, *where), f"two/y{message}")


def test_a_label_that_training_has_not(cli, day, two, where):
    (day / "later" / "d.gz").unlink()
    outcome = cli("train", two, "--test", "day", *FLAGS, *where)
    refused(outcome, "day/a:4: the label does not occur in the training data '2'")


def test_labels_of_one_class(cli, two, where):
    for path in two.iterdir():
        path.write_text("3 1:1\n")
    message = "hinge loss needs two classes or more, the labels have 1: 3"
    refused(cli("train", "two", *FLAGS, "--loss", "hinge", *where), f"two: {message}")


def test_a_file_that_has_vanished(cli, two, where, monkeypatch):
    def listed(folder):
        return [*files_in(folder), File(str(two / "zz"), "two/zz")]

    monkeypatch.setattr(files, "files_in", listed)
    refused(cli("train", "two", *FLAGS, *where), "two/zz: No such file or directory")


def test_what_does_not_go_with_a_folder(cli, two, folder, there):
    for arguments, message in [
        (
            ["two", *FLAGS, *there, "--blocks", "3"],
            "two: is a folder, whose files are the blocks on a cluster: leave out --blocks",
        ),
        (
            ["one", *FLAGS, *FILES],
            "one: is not a folder of blocks: give --blocks N",
        ),
        (["two", *FLAGS, "--model", "two/m"], "two/m: is in two, where all files are data"),
    ]:
        refused(cli("train", *arguments), message)
    for path in two.iterdir():
        path.rename(path.with_name(f"_{path.name}"))
    refused(cli("train", "two", *FLAGS), "two: there are no files in this folder")
    refused(
        cli("train", f"file://{two}", *FLAGS), f"file://{two}: there are no files in this folder"
    )


def test_urls_that_cannot_be_opened(cli, folder):
    refused(
        cli("train", "carrier://pigeon", *FLAGS), "carrier://pigeon: Protocol not known: carrier"
    )
    refused(cli("train", f"file://{folder}/no"), f"file://{folder}/no: No such file or directory")
    with pytest.raises(CommandError, match="Is a directory"):
        open_url(f"file://{folder}")


# ---- losses


@pytest.fixture
def after_two_epochs(monkeypatch):
    """Have something done once, in the second epoch of a fit."""
    after, done = BlockFitCheckpoints.after_iteration, []

    def have(action):
        def act(journal, number):
            after(journal, number)
            if number == 2 and not done:
                done.append(number)
                action()

        monkeypatch.setattr(BlockFitCheckpoints, "after_iteration", act)
        return done

    return have


def test_a_worker_that_is_killed_changes_no_bytes(
    cli, day, folder, client, there, after_two_epochs
):
    done = after_two_epochs(lambda: kill_one(client))
    for name, where in (("alone", FILES), ("killed", there)):
        outcome = cli("train", day, *FLAGS, *where, "--model", f"{name}.npz")
        assert outcome.code in (0, 3), outcome.err
    assert done
    assert (folder / "killed.npz").read_bytes() == (folder / "alone.npz").read_bytes()
    assert tasks(client) == []


def test_workers_that_die_while_they_read(cli, two, client, there, monkeypatch):
    """Files are read anew, some times."""
    persist, losses = DaskExecutor.persist, [2]

    def lossy(executor, *arguments):
        persist(executor, *arguments)
        if losses[0]:
            losses[0] -= 1
            raise WorkerLostError("lost")

    monkeypatch.setattr(DaskExecutor, "persist", lossy)
    assert cli("train", "two", *FLAGS, *there).code in (0, 3)
    losses[0] = 5
    outcome = cli("train", "two", *FLAGS, *there)
    refused(outcome, "workers died again and again, or the whole cluster is gone")
    assert tasks(client) == []


# ---- runs that stop


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_run_that_was_stopped_goes_on(cli, day, folder, there, monkeypatch):
    arguments = ["train", "day", *FLAGS, *there, "--checkpoint-every", "3"]
    with monkeypatch.context() as patches:
        patches.setattr(train, "write_model", interrupt)
        assert cli(*arguments).code == 130
    text = (day / "b").read_text()
    (day / "b").write_text(text + "1 1:1\n")
    saved = folder / "model.checkpoint"
    refused(cli(*arguments, "--resume"), f"{saved}: belongs to a run on other train data")
    (day / "b").write_text("# the same rows\n" + text)
    outcome = cli(*arguments, "--resume")
    assert outcome.code in (0, 3), outcome.err
    assert not saved.exists()
    assert cli("train", "day", *FLAGS, *FILES, "--model", "alone.npz").code in (0, 3)
    assert (folder / "model.npz").read_bytes() == (folder / "alone.npz").read_bytes()
    refused(
        cli(*arguments, "--checkpoint", "day/saved"),
        "day/saved: is in day, where all files are data",
    )


def test_a_cluster_without_workers(cli, two, there, monkeypatch):
    monkeypatch.setattr(dask_cluster, "worker_threads", lambda client: {})
    monkeypatch.setattr(dask_cluster, "WORKER_TIMEOUT", 0)
    refused(cli("train", "two", *FLAGS, *there), "the cluster has had no workers for 0 s")


def test_a_file_that_was_changed_is_not_read_again(cli, two, client, there, after_two_epochs):
    def change():
        for path in two.iterdir():
            path.write_text(path.read_text() + "1 1:1\n")
        kill_one(client)

    after_two_epochs(change)
    outcome = cli("train", "two", *FLAGS, *there)
    assert outcome.code == 1
    assert outcome.err in [f"two/{name}: has changed since it was read first\n" for name in "xyz"]
    assert tasks(client) == []
