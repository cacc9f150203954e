import threading
import time

said = {}


def work(number):
    began, total, lines = time.monotonic(), 0, []
    for _ in range(5):
        total += sum(range(200_000))
        lines.append((time.monotonic() - began, time.perf_counter_ns()))
    said[number] = lines


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for number in range(4):
    print(number, said[number])
