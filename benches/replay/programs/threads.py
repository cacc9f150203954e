"""Threads that read clocks, draw random numbers and wait for each other."""
import concurrent.futures, queue, threading, time, uuid

results, jobs = [[] for _ in range(4)], queue.Queue()


def work(number):
    for step in range(20):
        results[number].append((time.time_ns(), uuid.uuid4().hex))
        time.sleep(0.001 * (number + 1))
    jobs.put(number)


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
print("done", sorted(jobs.get(timeout=60) for _ in threads))
for thread in threads:
    thread.join()
for result in results:
    print(result[0], result[-1])
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(list(pool.map(lambda number: number * number, range(50)))[-1])
with open("out/threads.txt", "w") as file:
    file.write(repr(results))
