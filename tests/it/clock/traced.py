# Each allocation takes a lock, from as many places as there are that allocate.
import time, timeit, tracemalloc
tracemalloc.start()
for turn in range(3):
    print(timeit.timeit('x = [bytes(9)]', number=50), timeit.timeit('x = 1', number=1000))
    print(time.perf_counter(), time.monotonic_ns())
