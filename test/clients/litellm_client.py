"""LiteLLM as a client: openai/ and anthropic/ models."""
import json
import os
from contextlib import suppress

# Otherwise the import asks a server for prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
import openai
from kit import CALL, KEY, OBJECTS_URL, OBJECTS_V1, PNG, REFUSED, SPENT_KEY, URL, V1, WEATHER, faults, feature, raises, refusing, run

litellm.suppress_debug_info = True
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
KINDS = {
    "Chat": lambda model: {"model": f"openai/{model}", "api_base": V1, "api_key": KEY, "num_retries": 0},
    "Messages": lambda model: {"model": f"anthropic/{model}", "api_base": URL, "api_key": KEY, "num_retries": 0},
}


def user(content):
    return [{"role": "user", "content": content}]


for name, kind in KINDS.items():

    @feature(f"{name}: plain, stream")
    def _(model, kind=kind):
        plain = litellm.completion(messages=user("Hello"), **kind(model))
        assert "You said: Hello" in plain.choices[0].message.content
        chunks = list(litellm.completion(messages=user("Hello"), stream=True, **kind(model)))
        assert "You said: Hello" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    for stream in (False, True):

        @feature(f"{name}: tool loop, {'streamed' if stream else 'buffered'}")
        def _(model, kind=kind, stream=stream):
            messages = user(CALL)
            first = litellm.completion(messages=messages, tools=[TOOL], stream=stream, **kind(model))
            if stream:
                first = litellm.stream_chunk_builder(list(first), messages=messages)
            message = first.choices[0].message
            messages.append(message.model_dump())
            for call in message.tool_calls:
                assert json.loads(call.function.arguments) == {"city": "Oslo"}
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "rain"})
            reply = litellm.completion(messages=messages, tools=[TOOL], **kind(model))
            assert "rain" in reply.choices[0].message.content

    @feature(f"{name}: image")
    def _(model, kind=kind):
        parts = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]
        reply = litellm.completion(messages=user(parts), **kind(model))
        assert "1 image" in reply.choices[0].message.content


@feature("errors: 404, 429")
def _(model):
    raises(404, lambda: litellm.completion(messages=user("x"), **KINDS["Chat"]("no-such-model")))
    raises(429, lambda: litellm.completion(messages=user("x"), **{**KINDS["Chat"](model), "api_key": SPENT_KEY}))


def refused(client, model, code):
    return {"model": f"openai/{model}", "api_base": refusing(client, code) + "/v1", "api_key": KEY}


@feature("errors: max_retries sends again what may succeed")
def _(model):
    client = f"max-retries-{model}"
    for code in REFUSED:
        with suppress(openai.APIError):
            litellm.completion(messages=user("x"), max_retries=2, **refused(client, model, code))
    assert not faults(client), faults(client)


# It takes a 403 for a refusal that may end, whatever the headers say.
ROUTER_REPEATS = ["address_not_allowed", "model_not_available", "streaming_not_available"]


@feature("errors: Router sends again what may succeed")
def _(model):
    client = f"router-{model}"
    for code in REFUSED:
        deployment = {"model_name": "m", "litellm_params": {**refused(client, model, code), "max_retries": 0}}
        router = litellm.Router(model_list=[deployment], num_retries=2, disable_cooldowns=True)
        with suppress(openai.APIError):
            router.completion("m", messages=user("x"))
    repeated = [fault.split()[0] for fault in faults(client)]
    assert repeated == ROUTER_REPEATS, faults(client)


OBJECT = {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER, "strict": True}}


@feature("Chat: response_format (JSON schema)")
def _(model):
    litellm.completion(messages=user("Hello"), response_format=OBJECT, **KINDS["Chat"](model))


for name, url in {"Chat": OBJECTS_V1, "Messages": OBJECTS_URL}.items():

    @feature(f"{name}: response_format, translate")
    def _(model, kind=KINDS[name], url=url):
        made = litellm.completion(messages=user("Hello"), response_format=OBJECT, **{**kind(model), "api_base": url})
        assert json.loads(made.choices[0].message.content)["city"]


run()
