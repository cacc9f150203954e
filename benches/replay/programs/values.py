"""What differs in each run of Python: clocks, identifiers, randomness, the order of sets, addresses."""
import datetime, os, random, secrets, tempfile, time, uuid

values = {
    "time": time.time_ns(), "monotonic": time.monotonic_ns(), "now": datetime.datetime.now().isoformat(),
    "uuid1": uuid.uuid1(), "uuid4": uuid.uuid4(), "random": random.random(), "sample": random.sample(range(1000), 5),
    "secrets": secrets.token_hex(), "urandom": os.urandom(8).hex(), "set": set("the order of a set of strings".split()),
    "id": id(object()), "pid": os.getpid(), "temporary": tempfile.mkdtemp(), "hash": hash("text"),
}
start = time.perf_counter()
time.sleep(0.5)
values["elapsed"] = time.perf_counter() - start
with open("out/values.txt", "w") as file:
    for name, value in values.items():
        print(name, value)
        print(name, value, file=file)
