#!/usr/bin/env python3
"""Makes tests/data/templates/goldens.json: what Python's jinja2, set up as Hugging Face's apply_chat_template sets
it up, makes of the templates in tests/data/templates, and of the snippets in template_snippets.py.

    tools/make_template_goldens.py            # needs jinja2; with gguf and models/*.gguf also refreshes models/
"""

import copy
import datetime
import glob
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from template_conversations import CONVERSATIONS  # noqa: E402
from template_snippets import CONTEXT, SNIPPETS  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "data" / "templates"
NOW = 1764412496  # 2025-11-29 10:34:56 UTC


class Raised(jinja2.exceptions.TemplateError):
    """What a template itself refuses."""


class Generation(jinja2.ext.Extension):
    """{% generation %}: renders its body, as transformers' extension does."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(env, source, context):
    """The output, or {"raised": message} for a template's refusal, or {"error": what Python said}."""
    try:
        return env.from_string(source).render(**copy.deepcopy(context))  # some filters write to lists
    except Raised as e:
        return {"raised": str(e)}
    except Exception as e:  # noqa: BLE001: every failure is a result here
        return {"error": f"{type(e).__name__}: {e}"}


def refresh_model_templates():
    try:
        import gguf
    except ImportError:
        return
    for path in sorted(glob.glob(str(ROOT / "models" / "*.gguf"))):
        field = gguf.GGUFReader(path).fields.get("tokenizer.chat_template")
        if field is not None:
            name = pathlib.Path(path).stem.split("-q4")[0]
            (FOLDER / "models").mkdir(exist_ok=True)
            (FOLDER / "models" / f"{name}.jinja").write_bytes(field.contents().encode())


def main():
    refresh_model_templates()
    env = environment()
    templates = sorted(FOLDER.glob("**/*.jinja"))
    cases = []
    for path in templates:
        source = path.read_bytes().decode()
        for name, context in CONVERSATIONS.items():
            context = {"bos_token": "<s>", "eos_token": "</s>", **context}
            cases.append({"template": str(path.relative_to(FOLDER)), "conversation": name,
                          "expected": render(env, source, context)})
    snippets = [{"source": s, "expected": render(env, s, CONTEXT)} for s in SNIPPETS]
    snippets = [s for s in snippets if " at 0x" not in str(s["expected"])]  # an address: never the same twice
    out = {"now": NOW, "context": CONTEXT, "conversations": CONVERSATIONS, "cases": cases, "snippets": snippets}
    target = FOLDER / "goldens.json"
    target.write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    errors = sum(isinstance(c["expected"], dict) for c in cases)
    print(f"{len(cases)} cases ({errors} refused or failing), {len(snippets)} snippets, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
