"""LangChain and LangGraph: ChatOpenAI on both APIs of OpenAI, ChatAnthropic."""
from kit import CALL, KEY, PNG, URL, V1, feature, run
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


KINDS = {
    "Chat": lambda model: ChatOpenAI(base_url=V1, api_key=KEY, model=model, max_retries=0),
    "Responses": lambda model: ChatOpenAI(base_url=V1, api_key=KEY, model=model, max_retries=0, use_responses_api=True),
    "Messages": lambda model: ChatAnthropic(base_url=URL, api_key=KEY, model=model, max_retries=0, max_tokens=500),
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


run()
