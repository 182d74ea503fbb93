"""instructor: objects by tools and by JSON modes."""
import json

import instructor
from anthropic import Anthropic
from kit import KEY, OBJECTS_URL, OBJECTS_V1, URL, V1, feature, run
from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    city: str


ASK = [{"role": "user", "content": 'City? [[sim: call City {"city":"Oslo"}]]'}]


def openai(mode, v1=V1):
    return instructor.from_openai(OpenAI(base_url=v1, api_key=KEY, max_retries=0), mode=mode)


def says(model):
    """Makes the model say an object: by the tool that the gateway forces where the provider has no form for it."""
    said = '{"city":"Oslo"}'
    directive = f"call final_reply {said}" if model == "on-anthropic-messages" else f"text {json.dumps(said)}"
    return f"City? [[sim: {directive}]]"


@feature("TOOLS")
def _(model):
    made = openai(instructor.Mode.TOOLS).create(model=model, messages=ASK, response_model=City, max_retries=1)
    assert made.city == "Oslo"


@feature("ANTHROPIC_TOOLS")
def _(model):
    client = instructor.from_anthropic(Anthropic(base_url=URL, auth_token=KEY, api_key=None, max_retries=0))
    made = client.create(model=model, max_tokens=500, messages=ASK, response_model=City, max_retries=1)
    assert made.city == "Oslo"


@feature("MD_JSON")
def _(model):
    ask = [{"role": "user", "content": 'City? [[sim: text "```json\\n{\\"city\\":\\"Oslo\\"}\\n```"]]'}]
    made = openai(instructor.Mode.MD_JSON).create(model=model, messages=ask, response_model=City, max_retries=1)
    assert made.city == "Oslo"


@feature("JSON_SCHEMA (JSON schema)")
def _(model):
    openai(instructor.Mode.JSON_SCHEMA).create(model=model, messages=ASK, response_model=City, max_retries=1)


HELLO = [{"role": "user", "content": "Hello"}]

for mode in instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT:

    @feature(f"{mode.name}, translate")
    def _(model, mode=mode):
        # Any object is what JSON asks for: the fields stand in a text, which the simulator does not read.
        ask = [{"role": "user", "content": says(model)}] if mode == instructor.Mode.JSON else HELLO
        made = openai(mode, OBJECTS_V1).create(model=model, messages=ask, response_model=City, max_retries=1)
        assert made.city


@feature("ANTHROPIC_JSON, translate")
def _(model):
    anthropic = Anthropic(base_url=OBJECTS_URL, auth_token=KEY, api_key=None, max_retries=0)
    client = instructor.from_anthropic(anthropic, mode=instructor.Mode.ANTHROPIC_JSON)
    ask = [{"role": "user", "content": 'City? [[sim: text "{\\"city\\":\\"Oslo\\"}"]]'}]
    assert client.create(model=model, max_tokens=500, messages=ask, response_model=City, max_retries=1).city == "Oslo"


run()
