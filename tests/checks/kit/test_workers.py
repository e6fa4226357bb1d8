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
FORKS_TWO = """
import time
from multiprocessing import active_children
from kafka_eos_checks.kit.workers import worker_executor

if __name__ == "__main__":
    with worker_executor(2) as executor:
        busy = [executor.submit(time.sleep, 60) for _ in range(2)]
        time.sleep(0.5)
        print(*(child.pid for child in active_children()), flush=True)
"""
TELLS_TIME = """
import resource
import sys
import time
from kafka_eos_checks.kit.workers import forked_from, worker_executor

def work(modules):
    began = time.process_time()
    while time.process_time() < began + 0.5:
        pass
    return [name in sys.modules for name in modules]

if __name__ == "__main__":
    with forked_from("sndhdr_that_is_not_there", "plistlib"), worker_executor(1) as executor:
        told = executor.submit(work, ["plistlib", "sndhdr_that_is_not_there"]).result()
    own, others = (sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(told, "plistlib" in sys.modules, others > 0.5)
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
    program.write_text(STARTS_TWO.format(pool=pool) if pool else FORKS_TWO, encoding="utf-8")
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


def test_forked_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    assert workers_left("", tmp_path, MOST_SECONDS) == []


def test_forked_workers_have_the_modules_imported_before_and_their_time_counts(tmp_path: Path) -> None:
    program = tmp_path / "tells_time.py"
    program.write_text(TELLS_TIME, encoding="utf-8")
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout.split("\n") == ["[True, False] False True", ""]


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
