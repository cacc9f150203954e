import asyncio
import time

start = time.monotonic()


async def tool(name, seconds):
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"sleep {seconds}; echo done", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    print(name, output, process.returncode, time.monotonic() - began, time.time())


async def main():
    for turn in range(3):
        print(await asyncio.gather(*(tool(name, seconds) for name, seconds in (("a", 0.9), ("b", 0.3), ("c", 0.6)))))
        await asyncio.sleep(0.02)
        try:
            await asyncio.wait_for(tool("slow", 9), timeout=0.1)
        except asyncio.TimeoutError:
            print("timeout", time.monotonic() - start, asyncio.get_running_loop().time(), time.perf_counter_ns())


asyncio.run(main())
