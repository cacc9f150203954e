"""Streams of OpenAI's package, of each client that it has."""
import asyncio, sys, openai

plain, secure = sys.argv[1:]
ASKED = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


def show(chunk):
    choice = chunk.choices[0]
    print(chunk.id, chunk.created, choice.delta.content, choice.finish_reason)


async def main():
    async with openai.AsyncOpenAI(base_url=secure + "/v1", api_key="key") as client:
        async for chunk in await client.chat.completions.create(**ASKED):
            show(chunk)


for base in (plain, secure):
    for chunk in openai.OpenAI(base_url=base + "/v1", api_key="key").chat.completions.create(**ASKED):
        show(chunk)
asyncio.run(main())
