"""Sends bodies that the service refuses before it has read them, with httpx, and prints the statuses that arrive.

    refused.py METHOD URL BYTES TIMES [HEADER=VALUE ...]
"""

import asyncio
import sys

import httpx


async def main() -> None:
    method, url, size, times, *headers = sys.argv[1:]
    body = bytes(int(size))
    async with httpx.AsyncClient(timeout=60) as client:
        for _ in range(int(times)):
            try:
                sent = dict(header.split("=", 1) for header in headers)
                answer = await client.request(method, url, content=body, headers=sent)
                print(answer.status_code)
            except httpx.HTTPError as error:
                print(repr(error))


asyncio.run(main())
