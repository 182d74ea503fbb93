"""pydantic-ai: agents on Chat Completions, Responses and Messages."""
from anthropic import AsyncAnthropic
from kit import CALL, KEY, OBJECTS_URL, OBJECTS_V1, URL, V1, feature, run
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    city: str


def openai(kind):
    return lambda model, v1=V1: kind(model, provider=OpenAIProvider(base_url=v1, api_key=KEY))


def messages(model, url=URL):
    client = AsyncAnthropic(base_url=url, auth_token=KEY, api_key=None)
    return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))


KINDS = {"Chat": openai(OpenAIChatModel), "Responses": openai(OpenAIResponsesModel), "Messages": messages}


def agent(kind, model, **more):
    made = Agent(kind(model), **more)

    @made.tool_plain
    def get_weather(city: str) -> str:
        """Says the weather."""
        return "rain in " + city

    return made


for name, kind in KINDS.items():

    @feature(f"{name}: run with a tool")
    async def _(model, kind=kind):
        assert "rain in Oslo" in (await agent(kind, model).run(CALL)).output

    @feature(f"{name}: stream")
    async def _(model, kind=kind):
        async with agent(kind, model).run_stream("Hello") as result:
            assert "You said: Hello" in await result.get_output()

    @feature(f"{name}: output by a tool")
    async def _(model, kind=kind):
        ask = 'City? [[sim: call final_result {"city":"Oslo"}]]'
        assert (await agent(kind, model, output_type=City).run(ask)).output.city == "Oslo"


@feature("NativeOutput (JSON schema)")
async def _(model):
    await agent(KINDS["Chat"], model, output_type=NativeOutput(City)).run("Hello")


for name, url in {"Chat": OBJECTS_V1, "Responses": OBJECTS_V1, "Messages": OBJECTS_URL}.items():

    @feature(f"{name}: NativeOutput, translate")
    async def _(model, kind=KINDS[name], url=url):
        # On Messages it asks for objects only of models that it knows by name.
        known = f"claude-sonnet-4-5-{model}" if kind == messages else model
        made = Agent(kind(known, url), output_type=NativeOutput(City))
        assert isinstance((await made.run("Hello")).output, City)


run()
