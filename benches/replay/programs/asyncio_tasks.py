"""Tasks that sleep, time out and run programs."""
import asyncio, random, time, uuid


async def task(number):
    await asyncio.sleep(random.random() / 5)
    program = await asyncio.create_subprocess_exec("date", "+%s.%N", stdout=asyncio.subprocess.PIPE)
    said, _ = await program.communicate()
    return number, uuid.uuid4().hex, time.time_ns(), said.decode().strip()


async def main():
    for result in await asyncio.gather(*map(task, range(3))):
        print(*result)
    try:
        await asyncio.wait_for(asyncio.sleep(100), 0.3)
    except asyncio.TimeoutError:
        print("timed out", asyncio.get_running_loop().time())


asyncio.run(main())
