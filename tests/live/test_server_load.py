"""What an answer met in flight while it was written."""

from gatekeeper.live.server_load import LoadMet, ServerLoad


def test_an_answer_meets_what_is_in_flight_at_both_servers_in_the_mean_over_its_time() -> None:
    """Half of its time alone, then with another one at its server and two answers elsewhere."""
    now_ns = [5]
    load = ServerLoad(lambda: now_ns[0])
    answer = load.begin("a")
    now_ns[0] += 5
    answer.first_text()
    now_ns[0] += 10
    load.begin("a")
    elsewhere = load.begin("b", 2)
    now_ns[0] += 10
    answer.end()
    elsewhere.end()

    assert (LoadMet(1.0), LoadMet(1.5, 1.0)) == (answer.waiting, answer.decoding)


def test_what_has_ended_is_met_no_more() -> None:
    """An answer after others is alone, and one without a first text met the same before and after it."""
    now_ns = [0]
    load = ServerLoad(lambda: now_ns[0])
    for _ in range(2):
        answer = load.begin("a", 3)
        now_ns[0] += 10
        answer.end()

    assert (LoadMet(3.0), LoadMet(3.0)) == (answer.waiting, answer.decoding)
