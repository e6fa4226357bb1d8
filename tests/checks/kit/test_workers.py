"""Workers end with the process that started them, even if that process is killed."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from kafka_eos_checks.kit.workers import worker_pool

STARTS_TWO = """
import time
from multiprocessing import active_children, get_context
from pathlib import Path
from kafka_eos_checks.kit.workers import left_behind, worker_pool

def leave_rows():
    left_behind.add(str(Path(__file__).with_name("rows")))

if __name__ == "__main__":
    pool = {pool}
    pool.map(time.sleep, [0, 0])
    busy = pool.map_async(time.sleep, [60, 60], chunksize=1)
    time.sleep(0.5)
    print(*(child.pid for child in active_children()), flush=True)
    busy.wait()
"""
MOST_SECONDS = 30  # until a worker notices the end of its parent


def runs(pid: int) -> bool:
    """Whether a process runs: a zombie that nobody has waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def workers_left(pool: str, folder: Path, seconds: float) -> list[int]:
    """The workers that still run some seconds after their parent was killed; they are ended then."""
    program = folder / "starts_two.py"
    program.write_text(STARTS_TWO.format(pool=pool), encoding="utf-8")
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(workers) == 2
    until = time.monotonic() + seconds
    while any(map(runs, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    left = [pid for pid in workers if runs(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    assert workers_left("worker_pool(2)", tmp_path, MOST_SECONDS) == []


def test_workers_remove_what_their_killed_parent_would_leave_behind(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    assert workers_left("worker_pool(2, leave_rows)", tmp_path, MOST_SECONDS) == []
    assert not folder.exists()


def test_other_workers_would_stay_until_their_task_is_done(tmp_path: Path) -> None:
    assert workers_left('get_context("spawn").Pool(2)', tmp_path, 1.0) != []


def test_a_worker_gets_the_initial_value_of_its_parent() -> None:
    with worker_pool(1, partial(sys.setrecursionlimit, 4321)) as pool:
        assert pool.apply(sys.getrecursionlimit) == 4321
