"""The tests of HIPS's autograd, fetched when these run, on tfopt's tape.

Skipped unless TFOPT_FETCH_TESTS is set: a run of tests fetches nothing by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

if not os.environ.get("TFOPT_FETCH_TESTS"):
    pytest.skip("it fetches tests of others (TFOPT_FETCH_TESTS=1)", allow_module_level=True)

HERE = Path(__file__).parent
VERSION = "1.9.1"

LISTS = "NumPy makes an array of a list, or of np.r_'s parts, which leaves the tape with a warning"
OWN = "is about a function of autograd's own"
EIG = "numpy.linalg.eig has no rule"

#: Files, and their tests that fail here, with the reason.
EXPECTED: dict[str, dict[str, str]] = {
    "test_binary_ops.py": {"test_comparison_grads": "expects zeros for truth values"},
    "test_complex.py": {},
    "test_fft.py": {"test_rfftn_odd_not_implemented": "which is implemented here"},
    "test_graphs.py": {"test_grad_const": "asks for the gradient of a number"},
    "test_linalg.py": {
        "test_pinv": OWN,
        "test_norm_list_of_boxes": LISTS,
        "test_eig_real": EIG,
        "test_eig_complex": EIG,
        "test_eig_batched": EIG,
    },
    "test_numpy.py": {
        **dict.fromkeys(
            (
                "test_mean_list_of_boxes", "test_std_list_of_boxes", "test_var_list_of_boxes",
                "test_simple_append_list_2D", "test_r_basic", "test_r_double", "test_no_relation",
                "test_r_no_relation", "test_r_node_and_const", "test_r_mixed", "test_r_slicing",
                "test_c_", "test_c_mixed",
            ),
            LISTS,
        ),
        "test_make_diagonal": OWN,
        "test_diagonal": OWN,
    },
    "test_scalar_ops.py": {},
    "test_systematic.py": {},
    "test_truediv.py": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their tests, unpacked from the source distribution."""
    folder = tmp_path_factory.mktemp("autograd")
    command = [sys.executable, "-m", "pip", "download", f"autograd=={VERSION}", "--no-deps",
               "--no-binary", "autograd", "-q", "-d", str(folder)]  # fmt: skip
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(folder.glob("autograd-*.tar.gz"))
    if not archives:
        pytest.skip(f"autograd's tests cannot be fetched: {fetched.stderr.strip()[-200:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"autograd-{VERSION}" / "tests"


@pytest.mark.parametrize("name", EXPECTED)
def test_their_tests_pass(suite: Path, name: str) -> None:
    report = suite / f"{name}.xml"
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1]), str(suite)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "hips_shim", "-p", "no:cacheprovider",
               "--noconftest", "-c", os.devnull, "--rootdir", str(suite), "-W", "ignore",
               f"--junitxml={report}", str(suite / name)]  # fmt: skip
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert report.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {
        case.get("name"): found.get("message", "")[:200]
        for case in cases
        for found in (*case.iter("failure"), *case.iter("error"))
    }
    assert cases and set(failed) == set(EXPECTED[name]), failed
