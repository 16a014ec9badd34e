"""The controller: runs the claimed instances, sends their values, and writes requested values to outputs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from signalbox_plugins.discovery import built_in_plugins

from .backoff import Backoff
from .buffer import Buffer
from .claimant import Claimant
from .orders import Orders
from .packages import PackageError, Packages
from .running import Running
from .service import Away, Instance, Package, Refused, Service
from .settings import Settings
from .telemetry import Telemetry

_LOG = logging.getLogger("signalbox.controller")
_LAST_SECONDS = 5.0
# Outputs wait for their safe state so long at most.
_CHECK_SECONDS = 3.0
_CONFLICT = 409
# Values that are not taken, of a deleted event for example, are reported this often.
_UNTAKEN_SECONDS = 600.0
# Events with such values that an entry names.
_MOST_NAMED = 3
_Result = TypeVar("_Result")


class Controller:
    """Runs the instances of one Signalbox until it is stopped."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._service = Service(settings.url, settings.token, settings.timeout)
        self._claimant = Claimant(settings.state)
        self._buffer = Buffer(settings.buffer_file, settings.buffer)
        self._orders = Orders(self._service, self._buffer)
        self._telemetry = Telemetry(settings, self._service)
        self._packages = Packages(settings.state / "packages", self._service)
        self._running: dict[str, Running] = {}
        self._arrived = asyncio.Event()
        self._was_away = False
        self._dropped = 0
        self._untaken = Counter[str]()
        self._untaken_again = 0.0
        # A thread each, so that they arrive in order: the call of a cancelled task is still made.
        self._claiming = ThreadPoolExecutor(1)
        self._reporting = ThreadPoolExecutor(1)

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set; then outputs are in their safe state, and what was measured is sent or on disk."""
        loops = [self._sync_always(), self._send_always(), self._obey_always(), self._report_always()]
        tasks = [asyncio.create_task(loop) for loop in loops]
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (stopping, *tasks):
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            lost = await self._lost_at_the_end()
            await asyncio.gather(*(running.stop(id in lost) for id, running in self._running.items()))
            for id in lost:
                del self._running[id]
            await self._say_goodbye()
            await self._telemetry.close()
            self._buffer.close()
            for thread in (self._claiming, self._reporting):
                thread.shutdown(wait=False, cancel_futures=True)
        for result in ended:
            if isinstance(result, Exception):
                raise result

    # Instances.

    async def _sync_always(self) -> None:
        backoff = Backoff(self._settings.poll)
        while True:
            try:
                await self._sync()
            except Away as error:
                self._note_away(error)
                await backoff.wait(error.seconds)
                continue
            except Refused as error:
                _LOG.error("the list of instances cannot be read: %s", error)
            backoff.reset()
            await asyncio.sleep(self._settings.sync)

    async def _sync(self) -> None:
        enabled = {instance.id: instance for instance in await asyncio.to_thread(self._service.instances)}
        instances = {id: one for id, one in enabled.items() if self._is_named(one)}
        # No controller runs these. Outputs are safe before claims are returned: the next claimant writes its orders.
        await asyncio.gather(*(self._stop(id) for id in list(self._running) if id not in enabled))
        mine = await self._claim([*instances, *(id for id in self._running if id not in instances)])
        await asyncio.gather(*(self._stop(id, is_lost=True) for id in list(self._running) if id not in mine))
        # Renamed, so that another controller may run them: returned with the next claim.
        await asyncio.gather(*(self._stop(id) for id in list(self._running) if id not in instances))
        packages = await asyncio.to_thread(self._service.packages)
        for instance in instances.values():
            if instance.id in mine:
                await self._ensure(instance, packages)
        await asyncio.to_thread(self._packages.keep_only, packages)

    def _is_named(self, instance: Instance) -> bool:
        """Whether the settings let this controller run it."""
        return not self._settings.instances or instance.name in self._settings.instances

    async def _claim(self, instances: list[str]) -> set[str]:
        """Claims instances; returns those that no other controller runs."""
        try:
            mine = await _call(self._claiming, self._service.claim, self._claimant, instances)
        except Refused as error:
            if error.status != _CONFLICT:
                raise
            # A copy of this controller, with a copy of its folder, has taken over.
            _LOG.error("nothing is run here: %s", error)
            return set()
        await asyncio.to_thread(self._claimant.confirm)
        return mine

    async def _lost_at_the_end(self) -> set[str]:
        """The instances that another controller has taken over since the last look: a copy takes over at once. Without
        an answer there are none, so that a stop is safe."""
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                enabled = {instance.id for instance in await asyncio.to_thread(self._service.instances)}
                claimed = [id for id in self._running if id in enabled]
                return set(claimed) - (await self._claim(claimed) if claimed else set())
        except (Away, Refused, TimeoutError) as error:
            _LOG.warning("Signalbox does not say whether another controller has taken over: %s", error)
            return set()

    async def _ensure(self, instance: Instance, packages: list[Package]) -> None:
        """Runs an instance as it is to be run."""
        try:
            folder = await self._folder(instance, packages)
        except (PackageError, Refused) as error:
            _LOG.error("%s cannot be run: %s", instance.name, error)
            await self._stop(instance.id)
            await _call(self._reporting, self._service.report, instance.id, "error", str(error))
            return
        running = self._running.get(instance.id)
        if running is not None and (running.instance, running.folder) == (instance, folder):
            return
        if running is not None:
            await running.stop()
        _LOG.info("%s: started", instance.name)
        self._running[instance.id] = Running(instance, folder, self._settings, self._arrived.set)

    async def _folder(self, instance: Instance, packages: list[Package]) -> Path | None:
        """Where the instance's plugin is; none for those that come with the controller."""
        if instance.plugin in built_in_plugins():
            return None
        for package in packages:
            if instance.plugin in package.plugins:
                return await asyncio.to_thread(self._packages.fetch, package)
        raise PackageError(f"no package offers the plugin {instance.plugin}")

    async def _stop(self, id: str, is_lost: bool = False) -> None:
        running = self._running.pop(id, None)
        if running is not None:
            await running.stop(is_lost)
            _LOG.info("%s: %s", running.instance.name, "left to another controller" if is_lost else "stopped")
            if not is_lost:
                # The other controller reports it otherwise.
                await self._try_to(self._service.report, id, "inactive", None)

    # Values.

    async def _send_always(self) -> None:
        backoff = Backoff(self._settings.poll)
        while True:
            try:
                if not await self._send_one():
                    await self._arrived.wait()
                    self._arrived.clear()
            except Away as error:
                self._note_away(error)
                await backoff.wait(error.seconds)
            else:
                backoff.reset()

    async def _send_one(self) -> bool:
        """Sends the next batch, if there is one."""
        batch = self._buffer.next(self._settings.batch)
        if batch is None:
            return False
        try:
            untaken = await self._telemetry.send(batch)
        except Refused as error:
            _LOG.error("%d values were refused and are dropped: %s", len(batch.values), error)
            self._untaken[str(error)] += len(batch.values)
        else:
            if self._was_away:
                self._was_away = False
                _LOG.info("Signalbox is back; %d values wait", len(self._buffer))
            for reason, count in untaken.items():
                _LOG.warning("%d values were not taken: %s", count, reason)
            self._untaken += untaken
        self._buffer.done(batch)
        return True

    # Orders for outputs.

    async def _obey_always(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll)
            channels = [channel for running in self._running.values() for channel in running.instance.channels]
            if not any(channel.is_output for channel in channels):
                continue
            try:
                orders = await self._orders.poll(channels)
            except (Away, Refused) as error:
                self._note_away(error)
                continue
            for running in list(self._running.values()):
                running.obey(orders)

    # Statuses of instances.

    async def _report_always(self) -> None:
        """Reports changes soon, and all statuses periodically: an unconfirmed status expires."""
        while True:
            for _ in range(max(int(self._settings.sync / self._settings.poll), 1)):
                await asyncio.sleep(self._settings.poll)
                await self._report(lambda running: running.changed.is_set())
            await self._report(lambda running: True)
            await self._report_dropped()
            await self._report_untaken()

    async def _report(self, is_due: Callable[[Running], bool]) -> None:
        for id, running in list(self._running.items()):
            if is_due(running):
                running.changed.clear()
                status, error = running.status, running.error
                if not await self._try_to(self._service.report, id, status, error):
                    running.changed.set()

    async def _report_dropped(self) -> None:
        """Says how many values are lost because the buffer was full: here at once, to people when Signalbox is back."""
        dropped = self._buffer.dropped
        if dropped > self._dropped:
            _LOG.warning("the buffer is full: %d values are lost and not reported yet", dropped)
        message = f"{dropped} values are lost: the controller's buffer of {self._settings.buffer} was full"
        if dropped and await self._try_to(self._service.log, message, "error"):
            self._buffer.forget_dropped(dropped)
            dropped = 0
        self._dropped = dropped

    async def _report_untaken(self) -> None:
        """Says which values Signalbox did not take: the instance stays connected, and only the controller knows."""
        if not self._untaken or time.monotonic() < self._untaken_again:
            return
        untaken, self._untaken = self._untaken, Counter[str]()
        named = "; ".join(f"{count} of {reason}" for reason, count in untaken.most_common(_MOST_NAMED))
        others = len(untaken) - _MOST_NAMED
        more = f"; and of {others} more" if others > 0 else ""
        message = f"{untaken.total()} values are lost, since Signalbox did not take them: {named}{more}"
        if await self._try_to(self._service.log, message, "error"):
            self._untaken_again = time.monotonic() + _UNTAKEN_SECONDS
        else:
            self._untaken += untaken

    async def _say_goodbye(self) -> None:
        """Sends what is left and says that nothing runs any more, but for a few seconds at most."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                while await self._send_one():
                    pass
                for id in self._running:
                    await _call(self._reporting, self._service.report, id, "inactive", None)
                await self._claim([])
                await asyncio.to_thread(self._service.log, "Controller stopped", "warning")
        except (Away, Refused, TimeoutError) as error:
            _LOG.warning("Signalbox does not answer at the end (%s): %d values stay on disk", error, len(self._buffer))

    async def _try_to(self, call: Callable[..., None], *arguments: object) -> bool:
        try:
            await _call(self._reporting, call, *arguments)
        except (Away, Refused) as error:
            self._note_away(error)
            return False
        return True

    def _note_away(self, error: Exception) -> None:
        if not self._was_away:
            self._was_away = True
            _LOG.warning("Signalbox does not answer: %s; values are kept on disk", error)


async def _call(thread: Executor, call: Callable[..., _Result], *arguments: object) -> _Result:
    return await asyncio.get_running_loop().run_in_executor(thread, call, *arguments)
