"""Streams of Anthropic's package, of each client that it has."""
import asyncio, sys, anthropic

plain, secure = sys.argv[1:]
ASKED = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}


async def main():
    async with anthropic.AsyncAnthropic(base_url=secure, api_key="key") as client:
        async for event in await client.messages.create(stream=True, **ASKED):
            print(event.type, getattr(event, "delta", None))


for base in (plain, secure):
    with anthropic.Anthropic(base_url=base, api_key="key").messages.stream(**ASKED) as stream:
        print(list(stream.text_stream), stream.get_final_message().id)
asyncio.run(main())
