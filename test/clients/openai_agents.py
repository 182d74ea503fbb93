"""openai-agents: runs with tools, on both APIs of OpenAI."""
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, SQLiteSession, function_tool
from agents import set_tracing_disabled
from kit import CALL, KEY, OBJECTS_V1, V1, feature, run
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """Says the weather."""
    return "rain in " + city


def agent(kind, model, **more):
    client = AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0)
    return Agent(name="a", model=kind(model=model, openai_client=client), tools=[get_weather], **more)


KINDS = {"Responses": OpenAIResponsesModel, "Chat": OpenAIChatCompletionsModel}

for name, kind in KINDS.items():

    @feature(f"{name}: run with a tool")
    async def _(model, kind=kind):
        assert "rain in Oslo" in (await Runner.run(agent(kind, model), CALL)).final_output

    @feature(f"{name}: streamed run")
    async def _(model, kind=kind):
        result = Runner.run_streamed(agent(kind, model), CALL)
        async for _event in result.stream_events():
            pass
        assert "rain in Oslo" in result.final_output


@feature("session of two runs")
async def _(model):
    session = SQLiteSession("one")
    await Runner.run(agent(OpenAIResponsesModel, model), CALL, session=session)
    result = await Runner.run(agent(OpenAIResponsesModel, model), "Thanks", session=session)
    assert "You said: Thanks" in result.final_output


class City(BaseModel):
    city: str


@feature("Chat: output_type (JSON schema)")
async def _(model):
    await Runner.run(agent(OpenAIChatCompletionsModel, model, output_type=City), "Hello")


for name, kind in KINDS.items():

    @feature(f"{name}: output_type, translate")
    async def _(model, kind=kind):
        client = AsyncOpenAI(base_url=OBJECTS_V1, api_key=KEY, max_retries=0)
        made = Agent(name="a", model=kind(model=model, openai_client=client), output_type=City)
        assert isinstance((await Runner.run(made, "Hello")).final_output, City)


run()
