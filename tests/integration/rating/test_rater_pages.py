"""The rater's pages over HTTP: one item at a time, resumable, and safe with hostile texts."""

import re

import pytest

from evalsite.lib import permissions
from grading_app.grading.rating import session
from tests import factories
from tests.factories.queues import make_queue, make_rater, rate_all, sign_in

pytestmark = pytest.mark.django_db
NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


def find_shown(html):
    match = re.search(r'name="shown" value="([^"]+)"', html)
    return match[1] if match else None


def rate(client, value, name="study"):
    html = client.get(f"/ratings/{name}/").content.decode()
    return client.post(f"/ratings/{name}/rate/", {"shown": find_shown(html), "rating": value}, follow=True)


def begin(client, name="study"):
    return client.post(f"/ratings/{name}/start/", follow=True)


def test_a_rater_with_one_queue_is_redirected_to_it():
    client = sign_in(make_rater(make_queue()).user)
    response = client.get("/", follow=True)
    assert response.redirect_chain[-1][0] == "/ratings/study/"
    assert "Go by your first feeling." in response.content.decode()


def test_a_rater_with_two_queues_chooses():
    first = make_rater(make_queue())
    second = make_queue("other", dimensions=[factories.make_dimension("arousal")], title="How lively?")
    second.assign(first.user, by=second.owner)
    html = sign_in(first.user).get("/ratings/").content.decode()
    assert 'href="/ratings/study/"' in html
    assert 'href="/ratings/other/"' in html


def test_a_rater_without_queues_sees_a_message():
    user = factories.make_user("idle", permissions.RATER)
    assert "No tasks yet" in sign_in(user).get("/ratings/").content.decode()


def test_no_ratings_are_prepared_before_the_rater_starts():
    rater = make_rater(make_queue())
    sign_in(rater.user).get("/ratings/study/")
    assert not rater.ratings.exists()


def test_a_session_resumes_on_another_device():
    rater = make_rater(make_queue())
    phone = sign_in(rater.user)
    begin(phone)
    rate(phone, 3)
    rate(phone, 5)
    html = sign_in(rater.user).get("/ratings/study/").content.decode()
    assert "2 of 6" in html
    assert [rating.value for rating in rater.ratings.given()] == [3, 5]


def test_a_complete_session_ends_with_thanks():
    rater = make_rater(make_queue(items=3))
    client = sign_in(rater.user)
    begin(client)
    for value in (1, 7):
        assert "Thank you" not in rate(client, value).content.decode()
    assert "Your 3 ratings are saved" in rate(client, 4).content.decode()


def test_a_repeated_tap_records_one_rating():
    rater = make_rater(make_queue())
    client = sign_in(rater.user)
    begin(client)
    shown_value = find_shown(client.get("/ratings/study/").content.decode())
    for _ in range(2):
        response = client.post("/ratings/study/rate/", {"shown": shown_value, "rating": "2"}, follow=True)
    assert rater.ratings.given().count() == 1
    assert "already rated" in response.content.decode()


def test_a_tap_after_a_release_shows_that_it_was_not_saved():
    rater = make_rater(make_queue(), started=True)
    client = sign_in(rater.user)
    html = rate(client, 2).content.decode()
    rater.release(by=rater.queue.owner, reason="enough")
    late = client.post("/ratings/study/rate/", {"shown": find_shown(html), "rating": "2"}, follow=True).content.decode()
    assert "was not saved because it is no longer needed" in late
    assert [rating.value for rating in rater.ratings.all()] == [2]


@pytest.mark.parametrize("value", ["", "0", "8", "4.5", "four", "9" * 40, "٤"])
def test_a_value_that_is_not_on_the_scale_is_refused(value):
    rater = make_rater(make_queue())
    client = sign_in(rater.user)
    begin(client)
    response = rate(client, value)
    values = [rating.value for rating in rater.ratings.given()]
    assert values == ([4] if value == "٤" else [])
    assert response.status_code == 200


def test_seconds_are_counted_from_the_page_to_the_rating():
    rater = make_rater(make_queue())
    client = sign_in(rater.user)
    begin(client)
    rate(client, 4)
    assert 0 <= rater.ratings.given().get().seconds < 60


def test_items_without_an_image_show_their_text():
    rater = make_rater(make_queue(), started=True)
    html = sign_in(rater.user).get("/ratings/study/").content.decode()
    assert rater.find_next_rating().item.input in html
    assert "<img" not in html


def test_a_long_scale_asks_for_a_number():
    dimension = factories.make_dimension("percent", low=0, high=100)
    rater = make_rater(make_queue(dimensions=[dimension]), started=True)
    client = sign_in(rater.user)
    assert 'type="number"' in client.get("/ratings/study/").content.decode()
    rate(client, 83)
    assert rater.ratings.given().get().value == 83


def test_hostile_texts_are_escaped():
    dimension = factories.make_dimension("valence", title=NASTY, instructions=NASTY, labels={"1": NASTY, "7": NASTY})
    dataset = factories.make_dataset("nasty", [{"key": NASTY, "input": NASTY, "category": NASTY}])
    queue = make_queue(dataset=dataset, dimensions=[dimension], title=NASTY, instructions=NASTY)
    rater = make_rater(queue)
    client, member = sign_in(rater.user), sign_in(queue.owner)
    pages = [client.get("/ratings/study/"), begin(client), rate(client, 4)]
    pages += [member.get("/ratings/queues/"), member.get("/ratings/queues/study/")]
    for page in pages:
        html = page.content.decode()
        assert "&lt;script&gt;alert" in html or "Thank you" in html
        assert "<script>alert" not in html
        assert "<img src=x" not in html


def test_users_without_an_assignment_get_404():
    queue = make_queue()
    for stranger in (queue.owner, factories.make_user("passer-by", permissions.RATER), factories.make_user("nobody")):
        client = sign_in(stranger)
        assert client.get("/ratings/study/").status_code == 404
        assert client.post("/ratings/study/start/").status_code == 404


def test_an_excluded_rater_gets_404():
    queue = make_queue()
    rater = make_rater(queue, started=True)
    rater.exclude(by=queue.owner, reason="did not look")
    client = sign_in(rater.user)
    assert client.get("/ratings/study/").status_code == 404
    assert client.post("/ratings/study/rate/").status_code == 404


def test_a_closed_queue_returns_404():
    queue = make_queue()
    rater = make_rater(queue, started=True)
    queue.close(by=queue.owner, reason="enough")
    assert sign_in(rater.user).get("/ratings/study/").status_code == 404
    assert sign_in(rater.user).get("/ratings/study/image/1/").status_code == 404


@pytest.mark.parametrize("verb", ["rate", "undo", "start", ""])
def test_a_rater_of_a_closed_queue_learns_that_all_ratings_are_saved(verb):
    queue = make_queue()
    rater = make_rater(queue, started=True)
    session.rate(rater, position=1, value=3, seconds=2)
    queue.close(by=queue.owner, reason="enough")
    client = sign_in(rater.user)
    answer = client.post(f"/ratings/study/{verb}/") if verb else client.get("/ratings/study/")
    assert answer.status_code == 404
    assert "This study is closed" in answer.content.decode()
    assert "Your 1 rating is saved." in answer.content.decode()
    assert rater.ratings.given().count() == 1


def test_a_new_rater_of_a_complete_queue_sees_that_no_ratings_are_needed():
    queue = make_queue(raters_wanted=1)
    rate_all(make_rater(queue, started=True))
    html = begin(sign_in(make_rater(queue).user)).content.decode()
    assert "All ratings are complete" in html


def test_the_navigation_of_a_rater_contains_only_ratings():
    rater = make_rater(make_queue(), started=True)
    html = sign_in(rater.user).get("/ratings/study/").content.decode()
    nav = html.split('<nav class="mainnav"')[1].split("</nav>")[0]
    assert re.findall(r'href="([^"]+)"', nav) == ["/ratings/"]


def test_a_page_needs_the_same_queries_at_any_position(django_assert_max_num_queries):
    rater = make_rater(make_queue(items=60), started=True)
    client = sign_in(rater.user)
    client.get("/ratings/study/")
    with django_assert_max_num_queries(9):
        client.get("/ratings/study/")
