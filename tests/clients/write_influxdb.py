"""Writes values with InfluxData's client of its version 2, which gathers them in batches and sends a batch again when it must.

    write_influxdb.py URL MEASUREMENT FIRST_SECOND SERIES VALUES BATCH

The token is SIGNALBOX_TOKEN. Value `i` of series `s` is i + 0.5 * s, `i` seconds after the first. Prints what the client gave up, and
how often it sent something again.
"""
import os
import sys

from influxdb_client import InfluxDBClient, Point, WriteOptions, WritePrecision

url, measurement = sys.argv[1:3]
first, series, values, batch = map(int, sys.argv[3:])
given_up, again = [], []
options = WriteOptions(batch_size=batch, flush_interval=1_000, retry_interval=200, max_retries=100, max_retry_delay=2_000, max_retry_time=120_000)
with InfluxDBClient(url=url, token=os.environ["SIGNALBOX_TOKEN"], org="any") as client:
    with client.write_api(
        write_options=options,
        error_callback=lambda _batch, _lines, error: given_up.append(error),
        retry_callback=lambda _batch, _lines, error: again.append(error),
    ) as writer:
        for index in range(values):
            for number in range(series):
                point = Point(measurement).tag("number", str(number)).field("v", index + 0.5 * number)
                writer.write("any", record=point.time(first + index, WritePrecision.S))
print(f"{len(again)} sent again")
print(*given_up, sep="\n")
sys.exit(len(given_up) > 0)
