"""Open WebUI: its server, with the variables of docs/clients.md, asked by HTTP as its page asks it."""
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import time
import uuid

import httpx
from kit import CALL, KEY, MODELS, URL, feature, run

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "clients.md"
DATA = pathlib.Path.home() / "data"
# What the connection of the recipe that asks Responses puts before the names of models.
PREFIX = "responses."
# What the server has besides: nobody signs in, and it asks nothing but the gateway.
OWN = {
    "DATA_DIR": str(DATA),
    "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "x",
    "OFFLINE_MODE": "True",
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "true",
    "SCARF_NO_ANALYTICS": "true",
}
TOOL = '''
class Tools:
    def get_weather(self, city: str) -> str:
        """
        Says the weather.
        :param city: Where.
        """
        return f"rain in {city}"
'''


def settings():
    """The variables that the recipe sets, with the address and the key of this run."""
    section = next(text for text in re.split("^## ", PAGE.read_text(), flags=re.M) if text.startswith("Open WebUI\n"))
    lines = section.replace("http://127.0.0.1:8080", URL).replace("sk-demo", KEY)
    return {name: shlex.split(value)[0] for name, value in re.findall(r"^export (\w+)=(.*)$", lines, re.M)}


def start():
    """Starts the server, which ends with this program, and gives a client that is signed in."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    DATA.mkdir()
    environment = {**os.environ, **settings(), **OWN}
    # With its bytecode it needs half the time when it starts again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = os.path.join(os.path.dirname(sys.executable), "open-webui")
    command = [program, "serve", "--host", "127.0.0.1", "--port", str(port)]
    # The shell waits until its input ends, which it does with this program, whatever that ends by.
    with_us = ["sh", "-c", '"$@" & cat; kill -9 $!; wait', "sh", *command]
    server = subprocess.Popen(with_us, env=environment, cwd=DATA, stdin=subprocess.PIPE, stdout=sys.stderr)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
    while True:
        try:
            client.get("/health").raise_for_status()
            break
        except httpx.TransportError:
            time.sleep(1)
    token = client.post("/api/v1/auths/signin", json={"email": "", "password": ""}).json()["token"]
    client.headers["authorization"] = f"Bearer {token}"
    return client, server


client, server = start()


def post(path, **body):
    reply = client.post(path, json=body)
    assert reply.is_success, reply.text
    return reply


def user(content):
    return [{"role": "user", "content": content}]


post("/api/v1/tools/create", id="weather", name="Weather", content=TOOL, meta={})


@feature("lists the models")
def _(model):
    names = [each["id"] for each in client.get("/api/models").json()["data"]]
    assert model in names and PREFIX + model in names


def text_of(event):
    """The text of a piece of a stream, in the form of either API."""
    if event.get("type") == "response.output_text.delta":
        return event["delta"]
    return "".join(choice["delta"].get("content") or "" for choice in event.get("choices", []))


def features(api, prefix):
    @feature(f"{api}: plain")
    def _(model):
        reply = post("/api/chat/completions", model=prefix + model, messages=user("Hello"), stream=False).json()
        assert "You said: Hello" in json.dumps(reply)

    @feature(f"{api}: streamed")
    def _(model):
        reply = post("/api/chat/completions", model=prefix + model, messages=user("Hello"), stream=True)
        events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        pieces = [piece for event in events if (piece := text_of(event))]
        assert len(pieces) > 1 and "You said: Hello" in "".join(pieces), reply.text

    @feature(f"{api}: turn of a chat with a tool")
    def _(model):
        said, answer = str(uuid.uuid4()), str(uuid.uuid4())
        message = {"id": said, "parentId": None, "childrenIds": [], "role": "user", "content": CALL}
        chat = post(
            "/api/chat/completions",
            model=prefix + model,
            messages=user(CALL),
            stream=True,
            tool_ids=["weather"],
            session_id=str(uuid.uuid4()),
            id=answer,
            parent_id=None,
            user_message=message,
            background_tasks={"title_generation": True, "tags_generation": True, "follow_up_generation": True},
        ).json()
        for _ in range(100):
            found = client.get(f"/api/v1/chats/{chat['chat_id']}").json()["chat"]["history"]["messages"][answer]
            if found.get("done"):
                break
            time.sleep(0.1)
        assert "rain in Oslo" in found["output"][-1]["content"][0]["text"], found

    @feature(f"{api}: title of a chat")
    def _(model):
        messages = [*user("Hello"), {"role": "assistant", "content": "Hello"}]
        reply = post("/api/v1/tasks/title/completions", model=prefix + model, messages=messages).json()
        assert "You said" in json.dumps(reply), reply


features("Chat", "")
features("Responses", PREFIX)

run()
