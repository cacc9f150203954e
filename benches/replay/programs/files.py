"""A program of some length: many modules, many files written, read and searched."""
import argparse, asyncio, csv, decimal, email.message, hashlib, html.parser, http.client, json, logging, pathlib, random
import re, sqlite3, ssl, tempfile, time, unittest, urllib.request, uuid, xml.etree.ElementTree, zipfile

out, found = pathlib.Path("out"), hashlib.sha256()
for number in range(500):
    value = {"id": str(uuid.uuid4()), "time": time.time(), "values": [random.random() for _ in range(100)]}
    (out / f"{number}.json").write_text(json.dumps(value))
for path in sorted(out.glob("*.json")):
    text = path.read_text()
    found.update(text.encode())
    found.update(str(sorted(json.loads(text)["values"])).encode())
    found.update(" ".join(re.findall(r"0\.1\d+", text)).encode())
with sqlite3.connect(out / "database") as database:
    database.execute("create table files (name, size)")
    database.executemany("insert into files values (?, ?)", ((path.name, path.stat().st_size) for path in out.iterdir()))
print(found.hexdigest(), time.time_ns())
