"""A RabbitMQ that stops, is killed, cut off, full, alarmed or reconfigured, between a database here and one there."""

from __future__ import annotations

import asyncio
import signal
from typing import ClassVar

from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.declaring import declare
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from tests.brokers import scripts
from tests.faults.cell import Cell
from tests.faults.clock import pause
from tests.faults.judge import Judgement
from tests.faults.rig import Rig
from tests.faults.town import PUBLISHER, QUEUE, USER, Town, topology


class BrokerCell(Cell):
    """Relays here publish, consumers there handle; each event must have its effect there once, in order."""

    quick = False
    needs_broker: ClassVar[bool] = True
    settings: ClassVar[dict[str, str]] = {"OUTBOX_PUBLISH_RETRIES": "forever"}
    consumers: ClassVar[dict[str, str]] = {}
    town: Town

    def missing(self) -> str | None:
        """Name the package."""
        return None if scripts() else "rabbitmq-server is not installed: apt-get install rabbitmq-server"

    async def play(self, rig: Rig) -> None:
        assert rig.broker is not None
        self.town = await Town.on(rig, rig.broker)
        self.town.settings = self.settings
        await self.town.start(self.consumers)
        await rig.start_writers()
        async for _ in rig.beats():
            await self.injure(rig)

    async def check(self, rig: Rig) -> None:
        await self.town.arrived()

    async def judge(self, rig: Rig, result: Judgement) -> None:
        await self.town.judge(result)

    async def leave(self, rig: Rig) -> None:
        await self.town.leave()


class BrokerStopped(BrokerCell):
    """It is stopped in order for a while, and started again."""

    how: ClassVar[signal.Signals] = signal.SIGTERM

    async def injure(self, rig: Rig) -> None:
        if rig.injected % 2 == 0:
            return
        await asyncio.to_thread(self.town.broker.stop, self.how)
        await self.town.is_missed()
        await self.town.handlers_go_on()
        await asyncio.to_thread(self.town.broker.start)
        await self.town.resumes()


class BrokerKilled(BrokerStopped):
    """It is killed in the middle of its work, and started again over what it had on its disk."""

    how: ClassVar[signal.Signals] = signal.SIGKILL


class BrokerRestarted(BrokerCell):
    """It is restarted in the middle of a batch, by an administrator who waits for nobody."""

    async def injure(self, rig: Rig) -> None:
        await asyncio.to_thread(self.town.broker.restart)
        await self.town.resumes()


class CutBeforeTheConfirm(BrokerCell):
    """Its answers are held back, and then the connections end: nobody knows what it has taken."""

    async def injure(self, rig: Rig) -> None:
        self.town.proxy.answers.clear()
        await pause(0.3)
        self.town.proxy.cut()
        self.town.proxy.answers.set()
        await self.town.resumes()


class ExchangeMissing(BrokerCell):
    """Somebody deletes the exchange; whoever publishes to it makes it again."""

    async def injure(self, rig: Rig) -> None:
        async with self.town.channel() as channel:
            await channel.exchange_delete("faults")
        await self.town.is_made_again("faults")
        await self.town.resumes()


class ChannelClosed(BrokerCell):
    """The broker closes the channel, and the exchange that was the reason is there again at once."""

    async def injure(self, rig: Rig) -> None:
        async with self.town.channel() as channel:
            await channel.exchange_delete("faults")
        link = Link(Address.parse(self.town.environment["RABBITMQ_URL"]), "faults")
        await declare(link, topology())
        await link.close()
        await self.town.resumes()


class QueueDeleted(BrokerCell):
    """Somebody deletes the queue; only while nothing lies in it or is on its way there.

    Of a queue that it deletes, a broker confirms what is on its way, and brings nothing back.
    """

    async def injure(self, rig: Rig) -> None:
        seats = [seat for seat in rig.fleet.relays if "FAULTS_CONSUME" not in seat.settings]
        for seat in seats:
            seat.send(signal.SIGSTOP)
        try:
            await self.town.is_emptied()
            async with self.town.channel() as channel:
                await channel.queue_delete(QUEUE)
        finally:
            for seat in seats:
                seat.send(signal.SIGCONT)
        await self.town.resumes()


class QueueFull(BrokerCell):
    """It holds twenty messages, and the consumers stand still for a while."""

    settings: ClassVar[dict[str, str]] = {"OUTBOX_PUBLISH_RETRIES": "forever", "FAULTS_QUEUE_LENGTH": "20"}
    consumers: ClassVar[dict[str, str]] = {"FAULTS_PREFETCH": "5"}

    async def injure(self, rig: Rig) -> None:
        seats = [seat for seat in rig.fleet.relays if "FAULTS_CONSUME" in seat.settings]
        for seat in seats:
            seat.send(signal.SIGSTOP)
        await self.town.handlers_go_on()
        for seat in seats:
            seat.send(signal.SIGCONT)


class MemoryAlarm(BrokerCell):
    """An alarm blocks every connection that publishes."""

    async def injure(self, rig: Rig) -> None:
        if rig.injected % 2 == 0:
            return
        await self.town.control("set_vm_memory_high_watermark", "0.0000001")
        try:
            await self.town.is_missed()
            await self.town.handlers_go_on()
        finally:
            await self.town.control("set_vm_memory_high_watermark", "0.4")
        await self.town.resumes()


class Unroutable(BrokerCell):
    """Events of a type for which there is no queue: dead after their attempts, and nobody else is touched."""

    settings: ClassVar[dict[str, str]] = {"OUTBOX_PUBLISH_RETRIES": "2"}

    async def injure(self, rig: Rig) -> None:
        await self.town.put("faults.unheard_of")

    async def check(self, rig: Rig) -> None:
        await super().check(rig)
        dead = await rig.number(DEAD)
        if dead != rig.injected:
            rig.remarks.append(f"of {rig.injected} events that no broker takes, {dead} are dead")


DEAD = f"SELECT count(*) FROM outbox_deliveries WHERE handler = '{PUBLISHER}' AND status = 'dead'"


class OverTheLimit(Unroutable):
    """Messages that are too large, for which the broker closes the channel with all that is in flight on it."""

    async def injure(self, rig: Rig) -> None:
        await self.town.put_large()


class CredentialsRevoked(BrokerCell):
    """The user is deleted, and some time later is there again."""

    async def injure(self, rig: Rig) -> None:
        if rig.injected % 2 == 0:
            return
        await self.town.control("delete_user", USER)
        await self.town.is_missed()
        await self.town.handlers_go_on()
        await self.town.let_in()
        await self.town.resumes()


class KilledBeforeItsAck(BrokerCell):
    """Consumers die between the commit of what they have stored and its acknowledgement."""

    consumers: ClassVar[dict[str, str]] = {"FAULTS_DIE_BEFORE_ACK": "0.1"}

    async def check(self, rig: Rig) -> None:
        await super().check(rig)
        exits = [code for seat in rig.fleet.relays for code in seat.exits]
        if not exits:
            rig.remarks.append("no consumer has died")
        rig.injected = len(exits)


class PoisonedMessage(BrokerCell):
    """Messages that are no events: they go to the dead letters, and what is around them is handled."""

    async def injure(self, rig: Rig) -> None:
        await self.town.send(b"this is no event")

    async def check(self, rig: Rig) -> None:
        await super().check(rig)
        async with self.town.channel() as channel:
            queue = await channel.declare_queue("faults.dlq", passive=True)
            letters = queue.declaration_result.message_count
        if letters != rig.injected:
            rig.remarks.append(f"of {rig.injected} poisoned messages, {letters} are among the dead letters")


BROKER_CELLS = (
    BrokerStopped(),
    BrokerKilled(),
    BrokerRestarted(),
    CutBeforeTheConfirm(),
    ChannelClosed(),
    ExchangeMissing(),
    QueueDeleted(),
    QueueFull(),
    MemoryAlarm(),
    Unroutable(),
    OverTheLimit(),
    CredentialsRevoked(),
    KilledBeforeItsAck(),
    PoisonedMessage(),
)
