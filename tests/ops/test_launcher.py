"""Each chunk runs once, with the same bits on any number of threads; forks and spawns work."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from edge_lists import complete, directed

from zoo.ops import cfconv  # noqa: F401  (registers the ops)
from zoo.ops.launcher import CHUNKS, launch

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(autouse=True)
def threads_restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def results(*, seed: int, features: int = 5):
    """All three ops on a symmetric graph and a directed one."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for case in (complete([6] * 40, seed=seed), directed(nodes=300, edges=900, seed=seed)):
        x, grad = (torch.randn(case.nodes, features, generator=random) for _ in range(2))
        table = torch.randn(9, 2, features, generator=random)
        graph = (*case.graph, 5.0, 0, case.symmetric)
        distance = case.distance.float()
        found.append(torch.ops.zoo.cfconv(x, table, distance, None, *graph, False))
        found.append(torch.ops.zoo.cfconv(x, table, distance, None, *graph, True))
        found.append(torch.ops.zoo.cfconv_filters(grad, x, distance, None, *graph, 9))
        found.append(torch.ops.zoo.cfconv_pairs(grad, x, table, distance, *graph))
    return found


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("chunks", [1, 2, CHUNKS])
def test_every_chunk_is_run_once(threads, chunks):
    torch.set_num_threads(threads)
    runs = np.zeros(chunks, np.int64)

    def kernel(out, chunk):
        out[chunk] += 1

    launch(kernel, runs, chunks=chunks)
    assert runs.tolist() == [1] * chunks


def test_same_bits_on_any_number_of_threads():
    torch.set_num_threads(1)
    expected = results(seed=0)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        for _ in range(5):
            for ours, theirs in zip(results(seed=0), expected, strict=True):
                assert torch.equal(ours, theirs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bad_chunk", [0, CHUNKS - 1])
def test_an_error_in_a_kernel_is_raised_and_the_next_launch_works(threads, bad_chunk):
    torch.set_num_threads(threads)

    def kernel(chunk):
        if chunk == bad_chunk:
            raise ZeroDivisionError(f"chunk {chunk}")

    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match=f"chunk {bad_chunk}"):
            launch(kernel)
    runs = np.zeros(CHUNKS, np.int64)
    launch(lambda out, chunk: out.__setitem__(chunk, chunk), runs)
    assert runs.tolist() == list(range(CHUNKS))


def test_an_error_in_a_helper_thread_is_raised():
    torch.set_num_threads(2)
    both = threading.Barrier(2)

    def kernel(chunk):
        both.wait(200)  # so that both threads have a chunk
        if threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError("in a helper")

    with pytest.raises(ZeroDivisionError, match="in a helper"):
        launch(kernel, chunks=2)


def test_a_parked_helper_keeps_nothing_alive():
    import gc
    import weakref

    torch.set_num_threads(2)
    values = np.zeros(3)
    known = weakref.ref(values)
    launch(lambda _, __: None, values)
    del values
    gc.collect()
    # the helper drops its last reference just after it reports: give it a turn
    for _ in range(1000):
        if known() is None:
            break
        threading.Event().wait(0.02)
    assert known() is None


def test_two_python_threads_at_once():
    torch.set_num_threads(2)
    expected = [results(seed=s) for s in range(2)]
    wrong = []

    def work(seed):
        try:
            for _ in range(20):
                same = map(torch.equal, results(seed=seed), expected[seed])
                if not all(same):
                    wrong.append(seed)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(500)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


SCRIPT = """
import multiprocessing, os, signal, sys
sys.path.insert(0, sys.argv[1])
import torch
from edge_lists import complete
from zoo.ops import cfconv, launcher

def compute():
    case = complete([6] * 30)
    x, table = torch.ones(case.nodes, 4), torch.linspace(0, 1, 9 * 2 * 4).view(9, 2, 4)
    args = (x, table, case.distance.float(), None, *case.graph, 5.0, 0, True, False)
    return torch.ops.zoo.cfconv(*args).sum(0).tolist()

def child(queue):
    torch.set_num_threads(2)
    queue.put((compute(), launcher._workers))

if __name__ == "__main__":
    torch.set_num_threads(2)
    expected = compute()
    assert launcher._workers == 1
    pid = os.fork()
    if pid == 0:
        signal.alarm(500)  # a deadlocked child dies
        same = compute() == expected and launcher._workers == 1
        os._exit(0 if same else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert compute() == expected
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=500) == (expected, 1)
    process.join(500)
    assert process.exitcode == 0
    print("done")
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_a_fork_after_use_and_a_spawned_worker(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, str(script), str(SUPPORT)], capture_output=True, text=True, timeout=1500
    )
    assert run.stdout == "done\n", run.stderr
