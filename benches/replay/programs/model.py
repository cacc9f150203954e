"""Streamed answers of models, as their SDKs ask for them; and, with `agent`, a loop of 30 calls with tools."""
import json, subprocess, sys, time, urllib.request, uuid


def ask(url, messages, tools=()):
    body = {"model": "m", "stream": True, "messages": messages, "tools": list(tools)}
    fields = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4()), "Authorization": "Bearer key"}
    text, stop = "", None
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), fields)) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            choice = event["choices"][0] if "choices" in event else {}
            delta = choice.get("delta") or event.get("delta") or {}
            text += delta.get("text") or delta.get("content") or ""
            stop = choice.get("finish_reason") or delta.get("stop_reason") or stop
    return text, stop


def agent(url):
    messages = [{"role": "user", "content": "begin"}]
    while True:
        text, stop = ask(url, messages, [{"name": "sh"}])
        print(time.time_ns(), text, stop)
        if stop != "tool_use":
            return
        command = f"echo '{text}' >>out/log; date +%s.%N; wc -l <out/log; head -c 4 /dev/urandom | od -An -tx1"
        said = subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": said}]


if sys.argv[1] == "agent":
    agent(sys.argv[3] + "/v1/messages")
else:
    for place in ("/v1/messages", "/v1/chat/completions"):
        print(*ask(sys.argv[3] + place, [{"role": "user", "content": "hello"}]))
