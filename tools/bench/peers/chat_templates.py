"""Renders a table of conversations through chat templates with transformers and writes cases.json.

  python chat_templates.py OUT.json NAME=TEMPLATE.jinja ... | NAME=tokenizer_config.json ...

tests/cases/chat_templates/cases.json comes from the templates in that folder.
"""
import json
import pathlib
import sys

from transformers.utils.chat_template_utils import render_jinja_template

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place: <now> & \"later\".",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "name of the city, e.g. Zürich"},
                           "days": {"type": "integer", "enum": [1, 3, 7]}},
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


TALKS = {
    "one turn": [user("Hello!")],
    "system": [system("Be brief. "), user("  2+2? "), assistant(" 4 "), user("3+3?")],
    "unicode": [system("Sprich Deutsch – 说中文"), user("Grüße 👋\nneue Zeile\t\"quoted\" 'single' \\ <tag> &amp;"), assistant("Hallo!\n\n"), user("مرحبا")],
    "thoughts": [user("Why?"), assistant("<think>\nLet me see.\n</think>\n\nBecause."), user("Sure?"), assistant("<think>\nstill\n</think>\n\nYes."),],
    "parts": [user([{"type": "text", "text": "What is this? "}, {"type": "image"}]), assistant([{"type": "text", "text": "A cat."}])],
    "calls": [
        system("Use tools."), user("Weather in Zürich?"),
        assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 3, "exact": 1.5, "unit": None, "more": [True, False]})]),
        {"role": "tool", "name": "get_weather", "content": "{\"sky\": \"clear\", \"t\": 21.5}"},
        assistant("Clear, 21.5 degrees."), user("And the time?"),
    ],
    "two calls": [
        user("Both?"),
        assistant("Looking.", tool_calls=[call("clock", {}), call("get_weather", {"city": "Rome"})]),
        {"role": "tool", "content": "12:00"}, {"role": "tool", "content": "rain"},
    ],
    "wrong order": [assistant("I begin."), user("No.")],
    "strange role": [user("a"), {"role": "narrator", "content": "b"}],
}


def settings():
    for name in TALKS:
        for prompt in (False, True):
            yield name, prompt, None, {}
    for name in ("one turn", "calls", "two calls"):
        yield name, True, [WEATHER, CLOCK], {}
    yield "one turn", True, None, {"enable_thinking": False}
    yield "one turn", True, None, {"enable_thinking": True, "date_string": "1 Jan 2030"}


def source_of(path):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    if not path.endswith(".json"):
        return text, {"bos_token": "<s>", "eos_token": "</s>"}
    config = json.loads(text)
    tokens = {}
    for key in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(key)
        if value is not None:
            tokens[key] = value["content"] if isinstance(value, dict) else value
    return config["chat_template"], tokens


def main():
    out, given = sys.argv[1], sys.argv[2:]
    rows = []
    for pair in given:
        name, path = pair.split("=", 1)
        source, tokens = source_of(path)
        cases = []
        for talk, prompt, tools, variables in settings():
            case = {"talk": talk, "add_generation_prompt": prompt, "tools": tools, "variables": variables}
            try:
                marks = "{%- generation" in source or "{% generation" in source
                rendered, spans = render_jinja_template(
                    conversations=[TALKS[talk]], tools=tools, chat_template=source, add_generation_prompt=prompt,
                    return_assistant_tokens_mask=marks, **tokens, **variables)
                case["expected"] = rendered[0]
                if marks:
                    case["generated"] = [rendered[0][a:b] for a, b in spans[0]]
            except Exception as error:  # what the template refuses, or transformers does
                case["error"] = f"{type(error).__name__}: {error}"
            cases.append(case)
        row = {"name": name, "tokens": tokens, "cases": cases}
        if path.endswith(".json"):
            row["template"] = source
        rows.append(row)
    table = {"talks": TALKS, "templates": rows}
    pathlib.Path(out).write_text(json.dumps(table, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(sum(len(r["cases"]) for r in rows), "cases,", sum("error" in c for r in rows for c in r["cases"]), "of them errors")


if __name__ == "__main__":
    main()
