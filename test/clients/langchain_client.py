"""LangChain and LangGraph: ChatOpenAI on both APIs of OpenAI, ChatAnthropic."""
from kit import CALL, KEY, OBJECTS_URL, OBJECTS_V1, PNG, URL, V1, feature, run
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel


@tool
def get_weather(city: str) -> str:
    """Says the weather."""
    return "rain in " + city


class City(BaseModel):
    """A city."""

    city: str


def openai(model, base_url=V1, **more):
    return ChatOpenAI(base_url=base_url, api_key=KEY, model=model, max_retries=0, **more)


def anthropic(model, base_url=URL):
    return ChatAnthropic(base_url=base_url, api_key=KEY, model=model, max_retries=0, max_tokens=500)


KINDS = {
    "Chat": openai,
    "Responses": lambda model, base_url=V1: openai(model, base_url, use_responses_api=True),
    "Messages": anthropic,
}

for name, kind in KINDS.items():

    @feature(f"{name}: invoke, stream")
    def _(model, kind=kind):
        assert "You said: Hello" in kind(model).invoke("Hello").text
        assert "You said: Hello" in "".join(chunk.text for chunk in kind(model).stream("Hello"))

    @feature(f"{name}: LangGraph agent with a tool")
    def _(model, kind=kind):
        graph = create_react_agent(kind(model), [get_weather])
        assert "rain in Oslo" in graph.invoke({"messages": [("user", CALL)]})["messages"][-1].text

    @feature(f"{name}: image")
    def _(model, kind=kind):
        image = {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": PNG}
        parts = [{"type": "text", "text": "Look"}, image]
        assert "1 image" in kind(model).invoke([HumanMessage(parts)]).text

    @feature(f"{name}: with_structured_output(method='function_calling')")
    def _(model, kind=kind):
        made = kind(model).with_structured_output(City, method="function_calling")
        assert made.invoke('City? [[sim: call City {"city":"Oslo"}]]').city == "Oslo"


@feature("with_structured_output (JSON schema)")
def _(model):
    KINDS["Chat"](model).with_structured_output(City).invoke("Hello")


for name, url in {"Chat": OBJECTS_V1, "Responses": OBJECTS_V1, "Messages": OBJECTS_URL}.items():

    @feature(f"{name}: with_structured_output(method='json_schema'), translate")
    def _(model, kind=KINDS[name], url=url):
        made = kind(model, url).with_structured_output(City, method="json_schema").invoke("Hello")
        assert isinstance(made, City)


run()
