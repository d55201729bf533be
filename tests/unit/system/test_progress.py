"""Seconds by stage, and bytes that several threads report."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from relink.system.progress import Clock, Count


def test_bytes_of_many_threads_add_up() -> None:
    told: list[tuple[int, int]] = []
    count = Count(10_000, lambda done, total: told.append((done, total)))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count.add, [7] * 1000))
    assert count.done == 7000
    assert [done for done, _ in told] == list(range(7, 7001, 7)), "the sums are told in order"


def test_never_more_than_there_are() -> None:
    told: list[tuple[int, int]] = []
    count = Count(10, lambda done, total: told.append((done, total)))
    count.add(8)
    count.add(8)
    assert told == [(8, 10), (10, 10)]
    assert count.done == 16


def test_stages() -> None:
    begun: list[str] = []
    clock = Clock(begun.append)
    for name in ("read", "plan", "read"):
        with clock.stage(name):
            time.sleep(0.01)
    assert begun == ["read", "plan", "read"]
    assert list(clock.timings) == ["read", "plan"]
    assert clock.timings["read"] > 0.015
    assert 0.005 < clock.timings["plan"] < clock.timings["read"]


def test_a_stage_that_fails_has_no_time() -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="so"), clock.stage("read"):
        raise ValueError("so")
    assert clock.timings == {}
