"""Sends bodies that the service refuses before it has read them, with aiohttp, and prints the statuses that arrive.

    refused_aiohttp.py METHOD URL BYTES TIMES [HEADER=VALUE ...]
"""

import asyncio
import sys

import aiohttp


async def main() -> None:
    method, url, size, times, *headers = sys.argv[1:]
    sent = dict(header.split("=", 1) for header in headers)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        for _ in range(int(times)):
            try:
                async with client.request(method, url, data=bytes(int(size)), headers=sent) as answer:
                    print(answer.status)
            except aiohttp.ClientError as error:
                print(repr(error))


asyncio.run(main())
