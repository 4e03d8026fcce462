"""Compares public chat templates, as shipped with TRL, with transformers' apply_chat_template."""

import json
import os
import pathlib
import subprocess

import pytest
import trl
from transformers.utils.chat_template_utils import render_jinja_template

DRIVER = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).parent / "template_driver"
TEMPLATES = sorted((pathlib.Path(trl.__file__).parent / "chat_templates").glob("*.jinja"))

TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a place <now>",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Its name, \"quoted\""},
        "unit": {"type": "string", "enum": ["celsius", "kelvin"], "default": "celsius"}}, "required": ["city"]},
    "return": {"type": "string"}}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


CALL = [{"id": "c12345678", "type": "function", "function": {"name": "weather", "arguments": {"city": "Århus", "unit": "kelvin"}}}]
CHATS = [
    [say("user", "Hi")],
    [say("user", " Two \n lines\n"), say("assistant", "  An answer. \n")],
    [say("system", "Be brief."), say("user", "1+1?"), say("assistant", "2"), say("user", "And 2+2?"), say("assistant", "4é\U0001F642")],
    [say("user", "a"), say("assistant", "<think>\nwhy\n</think>\n\nb"), say("user", "c")],
    [say("user", "a"), say("assistant", "b", reasoning_content="because"), say("user", "c"), say("assistant", "d", reasoning_content="so")],
    [say("system", "S"), say("user", "Weather?"), say("assistant", "", tool_calls=CALL), say("tool", "{\"t\": 280}", name="weather", tool_call_id="c12345678"),
     say("assistant", "280 K.")],
    [say("user", "Weather?"), say("assistant", None, tool_calls=CALL * 2), say("tool", "1", name="weather", tool_call_id="c12345678"),
     say("tool", "2", name="weather", tool_call_id="c12345678")],
    [say("user", parts("Look", "here")), say("assistant", parts("Yes."))],
    [say("system", parts("S")), say("user", parts("a")), say("assistant", parts("b")), say("user", parts("c"))],
    [say("user", "a"), say("user", "b")],
    [say("assistant", "first"), say("user", "a"), say("assistant", "")],
    [say("developer", "D"), say("user", "' \" \\ <b> & {{ x }} {% y %}"), say("assistant", "{'a': 1}")],
    [say("user", "a"), say("banana", "b")],
    [],
]
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def aliased(message):
    """Message with its reasoning under each of the names that transformers passes to templates."""
    reasoning = message.get("reasoning_content")
    return message if reasoning is None else {"thinking": reasoning, **message}


def requests():
    for chat in CHATS:
        for prompt in (False, True):
            for tools in (None, [TOOL], [TOOL, TOOL]):
                for more in ({}, {"enable_thinking": False}):
                    yield chat, {"tools": tools, "documents": None, "add_generation_prompt": prompt, **SPECIALS, **more}


def theirs(template, chat, more):
    text = template.read_text()
    try:
        arguments = {**more, "conversations": [chat], "chat_template": text}
        if "{% generation" in text or "{%- generation" in text:
            rendered, spans = render_jinja_template(**arguments, return_assistant_tokens_mask=True)
            return {"text": rendered[0], "generated": [list(span) for span in spans[0]]}
        return {"text": render_jinja_template(**arguments)[0][0]}
    except Exception as error:  # a template may raise any error of Jinja or Python
        return {"error": str(error)}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_rendering(template):
    cases = list(requests())
    lines = [json.dumps({"template": str(template), "variables": {"messages": [aliased(message) for message in chat], **more}}) for chat, more in cases]
    result = subprocess.run([DRIVER], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    rendered = 0
    for (chat, more), line in zip(cases, result.stdout.split("\n")):
        ours, other = json.loads(line), theirs(template, chat, more)
        if "error" in other:
            assert "error" in ours, f"{template.stem}: transformers says {other['error']}, and Lockstep {ours} of {chat} {more}"
            continue
        assert ours.get("text") == other["text"], f"{template.stem}: {chat} {more}: {ours.get('error')}"
        rendered += 1
        if "generated" in other:
            data = other["text"].encode()
            spans = [[len(other["text"][:begin].encode()), len(other["text"][:end].encode())] for begin, end in other["generated"]]
            assert ours["generated"] == spans, (data, spans)
    assert rendered >= 8


def test_number_of_templates():
    assert len(TEMPLATES) >= 30
