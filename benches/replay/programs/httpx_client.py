import asyncio, sys, httpx

plain, secure = sys.argv[1:]


async def main():
    async with httpx.AsyncClient() as client:
        for answer in await asyncio.gather(*(client.get(f"{secure}/page?{number}") for number in range(6))):
            print(answer.text, end="")


asyncio.run(main())
print(httpx.get(f"{plain}/page").text, end="")
