"""Test SIGKILL of the service while it sends to a webhook: all messages arrive in order, repeats with equal ids."""

from __future__ import annotations

from tests.support.receivers import Receiver
from tests.support.world import World, until

EVENTS = ("submitted", "stopped")


def test_what_a_killed_service_was_sending_arrives_from_the_next_one(own_world: World) -> None:
    receiver = Receiver()
    world, client = own_world, own_world.serve()
    client.add_webhook(receiver.url, EVENTS)
    expected = []
    try:
        for count in (1, 2):
            receiver.hold()
            number = world.submit(slots=1, epochs=100_000).experiment.number
            client.stop(number)
            world.ended(number)
            expected += [(f"experiment.{event}", number) for event in EVENTS]
            # One message is with the receiver, unanswered, and others wait behind it.
            assert receiver.held.wait(60)
            world.kill_service()
            if count % 2:  # its answer comes too late in one case, and to the next service in the other
                receiver.let_go()
            client = world.serve()
            receiver.let_go()
            until(lambda client=client: client.webhooks()[0].waiting == 0, "everything was delivered")
    finally:
        receiver.stop()
    assert list(dict.fromkeys(each.what for each in receiver.messages)) == expected
    ids = {
        each.what: {message.json["id"] for message in receiver.messages if message.what == each.what}
        for each in receiver.messages
    }
    assert all(len(found) == 1 for found in ids.values())
    assert len(receiver.messages) > len(expected)  # what was not confirmed came again
