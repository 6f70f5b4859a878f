"""`windtunnel collective`: the table that nccl-tests prints, of a model."""

from __future__ import annotations

import json

import pytest

from windtunnel import collective
from windtunnel.cli import main


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    status = main(["collective", *arguments])
    done = capfd.readouterr()
    return status, done.out, done.err


def test_a_system_is_asked_size_by_size(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capfd, "all_reduce", "--system", "alps", "--gpus", "128", "--factor", "1024")
    assert status == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["size", "time", "algbw", "busbw", "algorithm", "protocol", "channels"]
    assert [line[0] for line in lines[2:]] == ["8", "8192", "8388608", "8589934592"]
    assert "128 ranks on 32 hosts" in err
    assert "scales left out" in err


def test_bandwidths_are_those_of_nccl_tests(capfd: pytest.CaptureFixture[str]) -> None:
    for operation, factor in (("all_reduce", 2 * 15 / 16), ("all_gather", 15 / 16), ("sendrecv", 1.0)):
        arguments = ("--gpu", "H100-SXM", "--gpus", "16", "--nic", "ConnectX-7", "--from", "1 GiB", "--to", "1 GiB")
        status, out, _ = run(capfd, operation, *arguments, "--json")
        found = json.loads(out)
        (line,) = found["lines"]
        assert (status, found["ranks"], found["hosts"]) == (0, 16, 2)
        assert line["algbw"] == pytest.approx(2**30 / line["seconds"])
        assert line["busbw"] == pytest.approx(line["algbw"] * factor)
    assert "nearest kin (hopper GPUs, network connectx)" in found["constants"]


def busbw(capfd: pytest.CaptureFixture[str], *arguments: str) -> float:
    """GB/s of an all-reduce of 4 GiB."""
    status, out, err = run(capfd, "all_reduce", *arguments, "--from", "4 GiB", "--to", "4 GiB", "--json")
    assert status == 0, err
    return float(json.loads(out)["lines"][0]["busbw"]) / 1e9


def test_a_rack_is_one_domain_of_its_switches(capfd: pytest.CaptureFixture[str]) -> None:
    """72 GB200 of a rack stay on NVLink: CoreWeave measured 839 GB/s (NCCL 2.26.2)."""
    rack = ("--system", "gb200-nvl72", "--gpus")
    of_72 = busbw(capfd, *rack, "72")
    assert of_72 == pytest.approx(busbw(capfd, "--gpu", "GB200", "--gpus", "72", "--nic", "ConnectX-7"), rel=1e-9)
    assert of_72 == pytest.approx(839, rel=0.25)
    # And eight of it, on two trays, as much as eight of a host whose links are as fast.
    assert busbw(capfd, *rack, "8") == pytest.approx(busbw(capfd, "--system", "dgx-b200", "--gpus", "8"), rel=0.02)
    # Two racks of 16 trays each have the network between them, and NVLink's pace all the same.
    assert busbw(capfd, *rack, "128") > 400


def test_the_environment_decides(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ("all_reduce", "--gpu", "H100-SXM", "--from", "1 GiB", "--to", "1 GiB")
    assert " nvls " in run(capfd, *arguments)[1]
    assert " ring " in run(capfd, *arguments, "--env", "NCCL_ALGO=ring")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all_redcue", "--gpu", "H100-SXM"), "no operation `all_redcue`\n\nhint: did you mean `all_reduce`?"),
        (("all_reduce",), "expected `--system NAME` or `--gpu NAME`, found neither"),
        (("all_reduce", "--system", "alp"), "no system `alp` in data/systems\n\nhint: did you mean `alps`?"),
        (("all_reduce", "--gpu", "H100-SXM", "--gpus", "64"), "--nic: 64 GPUs are 8 hosts of 8"),
        (("all_reduce", "--gpu", "H100-SXM", "--gpus", "12"), "--gpus: expected at least 2 GPUs on whole hosts of 8"),
        (("all_reduce", "--gpu", "A1"), "no sheet `A1` in data/gpus"),
        (("all_reduce", "--gpu", "A100-80", "--from", "1 GiB", "--to", "1 MiB"), "--from, --to: expected bytes"),
        (("all_reduce", "--gpu", "A100-80", "--env", "NCCL_ALGO"), "--env: expected NAME=VALUE, found `NCCL_ALGO`"),
    ],
)
def test_what_cannot_be_asked_is_named(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    status, out, err = run(capfd, *arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_sizes_grow_by_a_factor() -> None:
    assert collective.sizes(8, 100) == [8, 16, 32, 64]
    assert collective.sizes(8, 8, 4) == [8]
