"""Threads that compute, read clocks and draw random numbers at the same time."""
import hashlib, threading, time, uuid

results = [[] for _ in range(4)]


def work(number):
    for step in range(300):
        results[number].append(time.time_ns())
        hashlib.sha256(uuid.uuid4().bytes * 1000).digest()
        sum(range(200))


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(timeout=60)
for result in results:
    print(result[-1], hashlib.sha256(repr(result).encode()).hexdigest())
