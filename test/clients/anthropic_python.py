"""anthropic-python: the Messages API, with the helpers of the package."""
import pydantic
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from kit import CALL, KEY, OBJECTS_URL, PDF, PNG, SPENT_KEY, TWO_CALLS, URL, WEATHER, feature, raises, run, search

client = Anthropic(base_url=URL, auth_token=KEY, api_key=None, max_retries=0)
TOOL = {"name": "get_weather", "input_schema": WEATHER}


def ask(model, content, **more):
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return client.messages.create(model=model, messages=messages, **{"max_tokens": 4000, **more})


def text(message):
    return "".join(block.text for block in message.content if block.type == "text")


@feature("plain")
def _(model):
    assert "You said: Hello" in text(ask(model, "Hello", system="Be brief."))


@feature("stream")
def _(model):
    with client.messages.stream(model=model, max_tokens=200, messages=[{"role": "user", "content": "Hello"}]) as stream:
        assert "You said: Hello" in "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens > 0


@feature("parallel tools and their results")
def _(model):
    first = ask(model, TWO_CALLS, tools=[TOOL])
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [call.input["city"] for call in calls] == ["Oslo", "Rome"]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"} for call in calls]
    messages = [
        {"role": "user", "content": TWO_CALLS},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results},
    ]
    assert text(ask(model, messages, tools=[TOOL])).count("rain") == 2


@feature("thinking, replayed in a tool loop")
def _(model):
    more = {"tools": [TOOL], "thinking": {"type": "enabled", "budget_tokens": 1024}}
    first = ask(model, CALL, **more)
    assert any(block.type == "thinking" for block in first.content)
    call = next(block for block in first.content if block.type == "tool_use")
    messages = [
        {"role": "user", "content": CALL},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]},
    ]
    assert "rain" in text(ask(model, messages, **more))


@feature("tool runner")
def _(model):
    @beta_tool
    def get_weather(city: str) -> str:
        """Says the weather.

        Args:
            city: Where.
        """
        return "rain in " + city

    messages = [{"role": "user", "content": CALL}]
    runner = client.beta.messages.tool_runner(model=model, max_tokens=500, tools=[get_weather], messages=messages)
    assert "rain in Oslo" in text(runner.until_done())


@feature("count_tokens")
def _(model):
    counted = client.messages.count_tokens(model=model, messages=[{"role": "user", "content": "Hello"}])
    usage = ask(model, "Hello").usage
    cached = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert counted.input_tokens == usage.input_tokens + cached


@feature("cache_control")
def _(model):
    system = [{"type": "text", "text": "Be brief. " * 2000 + model, "cache_control": {"type": "ephemeral"}}]
    ask(model, "Hello", system=system)
    assert ask(model, "Hello", system=system).usage.cache_read_input_tokens > 1000


@feature("image, PDF")
def _(model):
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
    ]
    said = text(ask(model, [{"role": "user", "content": parts}]))
    assert "1 image" in said and "1 document" in said


@feature("web search")
def _(model):
    tool = {"type": "web_search_20250305", "name": "web_search"}
    reply = ask(model, search(model), tools=[tool])
    assert any(block.type == "web_search_tool_result" for block in reply.content)


@feature("bash and editor tools")
def _(model):
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    ]
    reply = ask(model, 'Go [[sim: call bash {"command":"ls"}]]', tools=tools)
    assert next(block for block in reply.content if block.type == "tool_use").input == {"command": "ls"}


@feature("disable_parallel_tool_use")
def _(model):
    choice = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
    reply = ask(model, "Weather?", tools=[TOOL], tool_choice=choice)
    assert len([block for block in reply.content if block.type == "tool_use"]) == 1


@feature("models.list by x-api-key")
def _(model):
    with_key = Anthropic(base_url=URL, api_key=KEY, auth_token=None)
    assert model in [each.id for each in with_key.models.list()]


@feature("async")
async def _(model):
    async with AsyncAnthropic(base_url=URL, auth_token=KEY, api_key=None) as many:
        messages = [{"role": "user", "content": "Hello"}]
        assert "You said: Hello" in text(await many.messages.create(model=model, max_tokens=200, messages=messages))


@feature("errors: 401, 404, 429, fault in a stream")
def _(model):
    raises(401, lambda: Anthropic(base_url=URL, auth_token="wrong", api_key=None).models.list())
    raises(404, lambda: ask("no-such-model", "Hello"))
    spent = Anthropic(base_url=URL, auth_token=SPENT_KEY, api_key=None, max_retries=0)
    raises(429, lambda: spent.messages.create(model=model, max_tokens=9, messages=[{"role": "user", "content": "Hello"}]))
    try:
        with client.messages.stream(
            model=model, max_tokens=100, messages=[{"role": "user", "content": "x [[sim: cut 4]]"}]
        ) as stream:
            stream.until_done()
    except Exception as error:
        assert "APIStatusError" in [each.__name__ for each in type(error).__mro__], repr(error)
    else:
        raise AssertionError("a cut stream looked whole")


@feature("output_config.format (JSON schema)")
def _(model):
    ask(model, "Hello", output_config={"format": {"type": "json_schema", "schema": WEATHER}})


class City(pydantic.BaseModel):
    city: str


objects = Anthropic(base_url=OBJECTS_URL, auth_token=KEY, api_key=None, max_retries=0)


@feature(".parse, translate")
def _(model):
    hello = [{"role": "user", "content": "Hello"}]
    reply = objects.messages.parse(model=model, max_tokens=500, messages=hello, output_format=City)
    assert isinstance(reply.parsed_output, City)


@feature(".stream, translate")
def _(model):
    hello = [{"role": "user", "content": "Hello"}]
    with objects.messages.stream(model=model, max_tokens=500, messages=hello, output_format=City) as stream:
        assert any(event.type == "text" for event in stream)
        assert isinstance(stream.get_final_message().parsed_output, City)


run()
