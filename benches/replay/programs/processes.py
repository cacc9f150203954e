"""A pool of processes, by fork and by spawn, and a pipe between two."""
import multiprocessing, os, time, uuid


def work(number):
    return number, uuid.uuid4().hex, time.time_ns() > 0


def child(pipe):
    pipe.send((time.time_ns(), uuid.uuid4().hex, os.getpid()))


if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=child, args=(theirs,))
    process.start()
    print(*ours.recv())
    process.join()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(sum(number for number, _, _ in pool.map(work, range(20))))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, range(3)))
