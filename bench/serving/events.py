"""From the bytes of an exchange to an answer: HTTP/1.1 (chunked or to the end of the connection), then server-sent
events or one JSON object. Every event has the time of the piece that completed it.
"""

import dataclasses
import json


class Dechunker:
    """Takes bytes of a chunked body in any cut and gives the body."""

    def __init__(self):
        self.buffer, self.left, self.done = b"", 0, False

    def feed(self, data):
        self.buffer += data
        body = []
        while not self.done:
            if self.left > 2:  # the two are the CRLF behind the chunk
                part = self.buffer[:self.left - 2]
                if not part:
                    break
                body.append(part)
                self.buffer, self.left = self.buffer[len(part):], self.left - len(part)
            elif self.left > 0:
                if len(self.buffer) < self.left:
                    break
                self.buffer, self.left = self.buffer[self.left:], 0
            elif not self.next_chunk():
                break
        return b"".join(body)

    def next_chunk(self):
        line, end, rest = self.buffer.partition(b"\r\n")
        if not end:
            return False
        size = int(line.split(b";")[0], 16)
        self.buffer, self.left, self.done = rest, size + 2, size == 0
        return True


@dataclasses.dataclass
class Response:
    status: int = 0
    headers: dict = dataclasses.field(default_factory=dict)
    body: list = dataclasses.field(default_factory=list)  # (time, bytes)
    complete: bool = False  # the body came to its own end, where the framing shows one


def read_response(pieces):
    """The response in `pieces`; status 0 if the head is not whole."""
    response, head, dechunker = Response(), b"", None
    for when, data in pieces:
        if response.status == 0:
            head += data
            top, end, data = head.partition(b"\r\n\r\n")
            if not end:
                continue
            response.status, response.headers = read_head(top)
            if response.headers.get("transfer-encoding", "").lower() == "chunked":
                dechunker = Dechunker()
        part = dechunker.feed(data) if dechunker else data
        if part:
            response.body.append((when, part))
    if dechunker:
        response.complete = dechunker.done
    elif response.status:
        length = response.headers.get("content-length")
        response.complete = length is None or int(length) == sum(len(data) for _, data in response.body)
    return response


def read_head(top):
    lines = top.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(lines[0].split()[1]), headers


def events(body):
    """(time, text) of each server-sent event's data."""
    buffer = b""
    for when, data in body:
        buffer += data
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield when, line[5:].strip().decode()


@dataclasses.dataclass
class Answer:
    """One request as its client saw it. Times in seconds of time.perf_counter()."""

    arrived: float
    sent: float
    times: list = dataclasses.field(default_factory=list)  # of each event with choices
    texts: dict = dataclasses.field(default_factory=dict)  # by index of the choice
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    status: int = 0
    retry_after: str = ""
    finished: bool = False   # a finish reason for each choice and the end of the stream
    error: str = ""          # why it failed; "" when it did not
    left: bool = False       # the client left, as was planned


def answer_of(raw):
    answer = Answer(raw.arrived, raw.sent, left=raw.left)
    try:
        read_answer(answer, read_response(raw.pieces))
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        answer.error = f"cannot be read: {error!r}"
    if raw.error:
        answer.error = raw.error
    if not answer.finished and not answer.error and not answer.left:
        answer.error = "the connection ended before the answer"
    return answer


def read_answer(answer, response):
    answer.status = response.status
    answer.retry_after = response.headers.get("retry-after", "")
    if response.status == 0:
        return
    if response.status != 200:
        body = b"".join(data for _, data in response.body)
        answer.error = f"status {response.status}: {body[:300].decode(errors='replace')}"
        return
    reasons = set()
    if "event-stream" in response.headers.get("content-type", ""):
        done = False
        for when, data in events(response.body):
            if data == "[DONE]":
                done = True
            else:
                read_object(answer, json.loads(data), when, reasons)
        answer.finished = done and bool(reasons) and reasons == set(answer.texts)
    elif response.complete and response.body:
        read_object(answer, json.loads(b"".join(data for _, data in response.body)), response.body[-1][0], reasons)
        answer.finished = reasons == set(answer.texts)


def read_object(answer, item, when, reasons):
    if "error" in item:
        answer.error = f"error event: {item['error']}"
        return
    if item.get("choices"):
        answer.times.append(when)
    for choice in item.get("choices", ()):
        index = choice.get("index", 0)
        answer.texts[index] = answer.texts.get(index, "") + (choice.get("text") or "")
        if choice.get("finish_reason"):
            reasons.add(index)
    usage = item.get("usage")
    if usage:
        answer.prompt_tokens = usage["prompt_tokens"]
        answer.output_tokens = usage.get("completion_tokens", 0)
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
