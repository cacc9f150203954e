import asyncio, sys, aiohttp

plain, secure = sys.argv[1:]


async def get(session, url):
    async with session.get(url) as answer:
        return await answer.text()


async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        for text in await asyncio.gather(*(get(session, f"{secure}/page?{number}") for number in range(6))):
            print(text, end="")


asyncio.run(main())
