"""instructor: objects by tools and by JSON modes."""
import instructor
from anthropic import Anthropic
from kit import KEY, URL, V1, feature, run
from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    city: str


ASK = [{"role": "user", "content": 'City? [[sim: call City {"city":"Oslo"}]]'}]


def openai(mode):
    return instructor.from_openai(OpenAI(base_url=V1, api_key=KEY, max_retries=0), mode=mode)


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


run()
