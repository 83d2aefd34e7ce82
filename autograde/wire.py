"""The wire to a kernel: how much may come over it.

A kernel runs a learner's code and may say anything. A message is in memory here before anybody can
look at it, so sockets take none over a size and hold few that wait. `Budget` bounds what one cell
puts out. Any message may be made up: what a message must be like, it is made to be.
"""

import re

import zmq
import zmq.asyncio
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

MESSAGE = 32 << 20           # bytes; a longer one closes the connection
WAITING = 16                 # messages a socket
MOST_MESSAGES = 20_000       # of one cell
MOST_ERRORS = 10             # of one cell; honest code has one
MOST_PICTURES = 1 << 20      # characters of one cell
PICTURES = ("image/png", "image/jpeg")
BASE64 = re.compile(r"[\w+/=\n]*", re.ASCII)
CUT = "\n[the output was cut here]\n"


class TooManyMessages(Exception):
    """A cell that never stops talking."""


def _bounded_context():
    context = zmq.asyncio.Context()
    context.setsockopt(zmq.MAXMSGSIZE, MESSAGE)
    context.setsockopt(zmq.RCVHWM, WAITING)
    return context


class Client(AsyncKernelClient):
    """Listens to a kernel, within bounds."""

    def _context_default(self):
        self._created_context = True             # so that it ends with the client
        return _bounded_context()


class Manager(AsyncKernelManager):
    """Starts a kernel; its own socket and its client's are bounded."""

    def _client_factory_default(self):
        return Client

    def _context_default(self):
        self._created_context = True
        return _bounded_context()


class Budget:
    """What one cell may still put out.

    An error has room of its own, so that it is seen after any amount of output. Of rich output
    text and pictures are kept: other forms could run in the browser of whoever reads them.
    """

    def __init__(self, characters):
        self.most = self.text_left = characters
        self.pictures_left, self.errors_left = MOST_PICTURES, MOST_ERRORS
        self.messages_left = MOST_MESSAGES

    def count(self):
        """One more message. Raises TooManyMessages."""
        self.messages_left -= 1
        if self.messages_left < 0:
            raise TooManyMessages(f"This cell put out more than {MOST_MESSAGES} messages.")

    def kept(self, kind, content):
        """What of an output message is kept, as its new content; None if nothing is."""
        if kind == "error":
            self.errors_left -= 1
            return self._error(content) if self.errors_left >= 0 else None
        if kind == "stream":
            text = self._text(content["text"])
            name = "stderr" if content["name"] == "stderr" else "stdout"
            return {"name": name, "text": text} if text else None
        data = content["data"]
        kept = {form: data[form] for form in PICTURES if self._fits(data.get(form))}
        if text := self._text(data.get("text/plain", "")):
            kept["text/plain"] = text
        return {"data": kept, "metadata": {}, "execution_count": None} if kept else None

    def _error(self, content):
        left, lines = self.most, []
        for line in content["traceback"]:
            if left <= 0:
                break
            lines.append(str(line)[:left])
            left -= 1 + len(line)
        return {"ename": str(content["ename"])[:100], "evalue": str(content["evalue"])[:self.most],
                "traceback": lines}

    def _text(self, text):
        text, left = str(text), self.text_left
        self.text_left = max(0, left - len(text))
        if len(text) <= left:
            return text
        return text[:left] + CUT if left else ""

    def _fits(self, picture):
        if not isinstance(picture, str) or not BASE64.fullmatch(picture):
            return False
        self.pictures_left -= len(picture)
        return self.pictures_left >= 0
