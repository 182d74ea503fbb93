"""
llm-comply: tests of others of the three APIs, Open Responses first. Each of its tests is a feature here. The gateway
has `structured_output: translate`.
"""
import json
import os
import re
import subprocess
import sys

from kit import KEY, MODELS, OBJECTS_V1

PROGRAM = os.path.join(os.path.dirname(sys.executable), "llm-comply")
"""It tries reasoning only on models whose names it knows: these are aliases of ours."""
FORMATS = {
    "Responses": ("open-responses", "gpt-5-"),
    "Chat": ("openai-chat", "gpt-5-"),
    "Messages": ("anthropic", "claude-sonnet-4-5-"),
}

for api, (form, family) in FORMATS.items():
    for model in MODELS:
        command = [PROGRAM, "--format", form, "-u", OBJECTS_V1, "-k", KEY, "-m", family + model, "--json"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
        for test in json.loads(ran.stdout)["results"]:
            detail = "\n".join(map(str, test.get("errors", [])))
            status = re.match(r"HTTP (\d+)", detail)
            outcome = "ok" if test["status"] == "passed" else status[1] if status else test["status"]
            line = {"feature": f"{api}: {test['name']}", "model": model, "outcome": outcome, "detail": detail[:2000]}
            print(json.dumps(line), flush=True)
