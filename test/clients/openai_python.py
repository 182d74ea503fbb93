"""openai-python: Chat Completions and Responses, with the helpers of the package."""
import json

import pydantic
from kit import CALL, KEY, OBJECTS_V1, PDF, PNG, SPENT_KEY, TWO_CALLS, V1, WEATHER, feature, raises, run, search
from openai import AsyncOpenAI, OpenAI

client = OpenAI(base_url=V1, api_key=KEY, max_retries=0)
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
FLAT = {"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}


def user(content):
    return [{"role": "user", "content": content}]


@feature("Chat: plain")
def _(model):
    reply = client.chat.completions.create(model=model, messages=user("Hello"))
    assert "You said: Hello" in reply.choices[0].message.content
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


@feature("Chat: stream")
def _(model):
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(model=model, messages=user("Hello"), stream=True, stream_options=options))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert "You said: Hello" in text
    assert chunks[-1].usage.completion_tokens > 0


@feature("Chat: helper of streams")
def _(model):
    with client.chat.completions.stream(model=model, messages=user("Hello")) as stream:
        assert "You said: Hello" in stream.get_final_completion().choices[0].message.content


@feature("Chat: parallel tools, streamed, and their results")
def _(model):
    messages = user(TWO_CALLS)
    with client.chat.completions.stream(model=model, messages=messages, tools=[TOOL]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert [json.loads(c.function.arguments)["city"] for c in message.tool_calls] == ["Oslo", "Rome"]
    messages.append(message.to_dict())
    for call in message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "rain in " + call.id[-4:]})
    reply = client.chat.completions.create(model=model, messages=messages, tools=[TOOL])
    assert reply.choices[0].message.content.count("rain in") == 2


@feature("Chat: one forced call, no parallel calls")
def _(model):
    choice = {"type": "function", "function": {"name": "get_weather"}}
    reply = client.chat.completions.create(
        model=model, messages=user("Weather?"), tools=[TOOL], tool_choice=choice, parallel_tool_calls=False
    )
    assert len(reply.choices[0].message.tool_calls) == 1


@feature("Chat: image, PDF")
def _(model):
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
    ]
    text = client.chat.completions.create(model=model, messages=user(parts)).choices[0].message.content
    assert "1 image" in text and "1 document" in text


@feature("Chat: reasoning effort")
def _(model):
    reply = client.chat.completions.create(model=model, messages=user("Hello"), reasoning_effort="high")
    assert reply.usage.completion_tokens_details.reasoning_tokens > 0


@feature("Responses: plain")
def _(model):
    reply = client.responses.create(model=model, input="Hello")
    assert "You said: Hello" in reply.output_text and reply.status == "completed"


@feature("Responses: stream")
def _(model):
    with client.responses.stream(model=model, input="Hello") as stream:
        assert any(event.type == "response.output_text.delta" for event in stream)
        assert "You said: Hello" in stream.get_final_response().output_text


@feature("Responses: previous_response_id")
def _(model):
    first = client.responses.create(model=model, input=CALL, tools=[FLAT])
    call = next(item for item in first.output if item.type == "function_call")
    output = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
    reply = client.responses.create(model=model, input=output, tools=[FLAT], previous_response_id=first.id)
    assert "rain" in reply.output_text


@feature("Responses: items replayed, with encrypted reasoning")
def _(model):
    more = {
        "model": model,
        "tools": [FLAT],
        "store": False,
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    history = user(CALL)
    first = client.responses.create(input=history, **more)
    history += [item.to_dict() for item in first.output]
    call = next(item for item in first.output if item.type == "function_call")
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    assert "rain" in client.responses.create(input=history, **more).output_text


@feature("Responses: custom tool")
def _(model):
    tool = {"type": "custom", "name": "shell", "description": "Runs a command."}
    reply = client.responses.create(model=model, input='Go [[sim: call shell "ls -l"]]', tools=[tool])
    assert next(item for item in reply.output if item.type == "custom_tool_call").input == "ls -l"


@feature("Responses: web search")
def _(model):
    reply = client.responses.create(model=model, input=search(model), tools=[{"type": "web_search"}])
    assert any(item.type == "web_search_call" for item in reply.output)


@feature("Responses: WebSocket")
def _(model):
    with client.responses.connect() as connection:
        connection.response.create(model=model, input="Hello")
        for event in connection:
            if event.type == "response.completed":
                assert "You said: Hello" in event.response.output_text
                return
    raise AssertionError("no response.completed")


@feature("Responses: retrieve, delete, input_tokens.count")
def _(model):
    first = client.responses.create(model=model, input="Hello")
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    raises(404, lambda: client.responses.retrieve(first.id))
    assert client.responses.input_tokens.count(model=model, input="Hello").input_tokens == first.usage.input_tokens


@feature("models: list, retrieve")
def _(model):
    assert model in [each.id for each in client.models.list()]
    assert client.models.retrieve(model).id == model


@feature("async")
async def _(model):
    async with AsyncOpenAI(base_url=V1, api_key=KEY) as many:
        reply = await many.chat.completions.create(model=model, messages=user("Hello"))
        assert "You said: Hello" in reply.choices[0].message.content


@feature("errors: 401, 404, 429, fault in a stream")
def _(model):
    raises(401, lambda: OpenAI(base_url=V1, api_key="wrong").models.list())
    raises(404, lambda: client.chat.completions.create(model="no-such-model", messages=user("Hello")))
    spent = OpenAI(base_url=V1, api_key=SPENT_KEY, max_retries=0)
    assert raises(429, lambda: spent.chat.completions.create(model=model, messages=user("Hello"))).code
    try:
        for _ in client.chat.completions.create(model=model, messages=user("x [[sim: cut 4]]"), stream=True):
            pass
    except Exception as error:
        assert type(error).__name__ == "APIError", repr(error)
    else:
        raise AssertionError("a cut stream looked whole")


@feature("Idempotency-Key")
def _(model):
    header = {"Idempotency-Key": f"once-{model}"}
    ask = lambda: client.responses.create(model=model, input="Hello", extra_headers=header)
    assert ask().id == ask().id


class City(pydantic.BaseModel):
    city: str


@feature("Chat .parse (JSON schema)")
def _(model):
    client.chat.completions.parse(model=model, messages=user("Hello"), response_format=City)


@feature("Responses .parse (JSON schema)")
def _(model):
    client.responses.parse(model=model, input="Hello", text_format=City)


@feature("json_object")
def _(model):
    client.chat.completions.create(model=model, messages=user("JSON"), response_format={"type": "json_object"})


objects = OpenAI(base_url=OBJECTS_V1, api_key=KEY, max_retries=0)


@feature("Chat .parse, translate")
def _(model):
    reply = objects.chat.completions.parse(model=model, messages=user("Hello"), response_format=City)
    assert isinstance(reply.choices[0].message.parsed, City)


@feature("Chat .stream, translate")
def _(model):
    with objects.chat.completions.stream(model=model, messages=user("Hello"), response_format=City) as stream:
        assert any(event.type == "content.delta" for event in stream)
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, City)


@feature("Responses .parse, translate")
def _(model):
    assert isinstance(objects.responses.parse(model=model, input="Hello", text_format=City).output_parsed, City)


@feature("Responses .stream, translate")
def _(model):
    with objects.responses.stream(model=model, input="Hello", text_format=City) as stream:
        assert any(event.type == "response.output_text.delta" for event in stream)
        assert isinstance(stream.get_final_response().output_parsed, City)


@feature("json_object, translate")
def _(model):
    more = {"response_format": {"type": "json_object"}}
    reply = objects.chat.completions.create(model=model, messages=user("JSON"), **more)
    assert isinstance(json.loads(reply.choices[0].message.content), dict)


@feature("n=2")
def _(model):
    client.chat.completions.create(model=model, messages=user("Hello"), n=2)


@feature("penalties")
def _(model):
    client.chat.completions.create(model=model, messages=user("Hello"), frequency_penalty=0.5)


@feature("background")
def _(model):
    client.responses.create(model=model, input="Hello", background=True)


run()
