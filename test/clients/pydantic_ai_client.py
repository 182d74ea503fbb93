"""pydantic-ai: agents on Chat Completions, Responses and Messages."""
from anthropic import AsyncAnthropic
from kit import CALL, KEY, URL, V1, feature, run
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    city: str


def openai(kind):
    return lambda model: kind(model, provider=OpenAIProvider(base_url=V1, api_key=KEY))


def messages(model):
    client = AsyncAnthropic(base_url=URL, auth_token=KEY, api_key=None)
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


run()
