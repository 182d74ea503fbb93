"""
What the Python clients share. Each file beside this one tries one client: a function marked with @feature gets the name
of a model and asserts what the client gives back. run() tries all features on all models, and prints a line of JSON for
each: what came out, and why. The outcome is "ok", or the status of the error that the client raised, or "failed".
"""
import asyncio
import inspect
import json
import os
import sys
import traceback
import urllib.request

URL = os.environ["SLUICE_URL"]
V1 = URL + "/v1"
"""A gateway like the other one, with `structured_output: translate`."""
OBJECTS_URL = os.environ["SLUICE_OBJECTS_URL"]
OBJECTS_V1 = OBJECTS_URL + "/v1"
KEY = os.environ["SLUICE_KEY"]
"""The key of an organization that has used up its limit of requests."""
SPENT_KEY = os.environ["SLUICE_SPENT_KEY"]
"""The codes of all errors of the gateway."""
REFUSED = os.environ["SLUICE_REFUSED"].split(",")
MODELS = os.environ["SLUICE_MODELS"].split(",")

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
"""The model calls the tool at first; after its result it says the text of the result."""
CALL = 'Weather? [[sim: call get_weather {"city":"Oslo"}]]'
TWO_CALLS = 'Weather? [[sim: call get_weather {"city":"Oslo"}; call get_weather {"city":"Rome"}]]'
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKMSAwIG9iago8PD4+CmVuZG9iagp0cmFpbGVyCjw8Pj4KJSVFT0YK"

def search(model):
    """Makes the model search: Chat Completions has no search upstream, so there the gateway offers it as a function."""
    directive = 'call web_search {"query":"rivers"}' if model == "on-openai-chat" else 'search "rivers"'
    return f"Find [[sim: {directive}]]"


def refusing(client, code):
    """The address of a gateway that refuses with this code: always, or once if a retry may succeed."""
    return f"{os.environ['SLUICE_REFUSALS_URL']}/{client}/{code}"


def faults(client):
    """What was sent again in vain, and what was not sent again though it could succeed."""
    with urllib.request.urlopen(f"{os.environ['SLUICE_REFUSALS_URL']}/{client}") as reply:
        return json.load(reply)


_features = []


def feature(name):
    def mark(function):
        _features.append((name, function))
        return function

    return mark


def run():
    for name, function in _features:
        for model in MODELS:
            outcome, detail = "ok", ""
            try:
                result = function(model)
                if inspect.iscoroutine(result):
                    asyncio.run(result)
            except BaseException as error:
                outcome = _outcome(error)
                detail = traceback.format_exc(limit=-3)
            print(json.dumps({"feature": name, "model": model, "outcome": outcome, "detail": detail[-2000:]}), flush=True)
    sys.stdout.flush()
    os._exit(0)


def _outcome(error):
    """The status of an error of the client, also where a framework wrapped it."""
    seen = error
    while seen is not None:
        status = getattr(seen, "status_code", None)
        if isinstance(status, int):
            return str(status)
        seen = seen.__cause__ or seen.__context__
    return "failed"


def raises(status, action):
    """The action must raise an error of the client with this status."""
    try:
        action()
    except Exception as error:
        assert getattr(error, "status_code", None) == status, repr(error)
        return error
    raise AssertionError(f"nothing was raised instead of {status}")
