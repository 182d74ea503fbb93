"""llama-index: OpenAILike."""
from kit import CALL, KEY, V1, feature, run
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    city: str


def get_weather(city: str) -> str:
    """Says the weather."""
    return "rain in " + city


def llm(model):
    return OpenAILike(
        model=model, api_base=V1, api_key=KEY, is_chat_model=True, is_function_calling_model=True, max_retries=0
    )


@feature("chat, stream_chat")
def _(model):
    messages = [ChatMessage(role="user", content="Hello")]
    assert "You said: Hello" in llm(model).chat(messages).message.content
    assert "You said: Hello" in list(llm(model).stream_chat(messages))[-1].message.content


@feature("FunctionAgent with a tool")
async def _(model):
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(get_weather)], llm=llm(model))
    assert "rain in Oslo" in str(await agent.run(CALL))


@feature("structured_predict by a tool")
def _(model):
    ask = 'City? [[sim: call City {"city":"Oslo"}]]'
    assert llm(model).structured_predict(City, PromptTemplate("{ask}"), ask=ask).city == "Oslo"


run()
