#!/usr/bin/env python3
"""Converts the guides to a static site with an index and a search, which needs no server and makes no network requests.

    tools/guides.py OUTPUT            README.md, CONTRIBUTING.md, docs/ and docs/decisions/ as OUTPUT/*.html
    tools/guides.py --llms FILE       list of pages in the format of llms.txt, one per line (https://llmstxt.org)

Supports the Markdown that these pages use: headings, paragraphs, lists, tables, fenced code, links, emphasis. Any other construct is an error with
its line. Uses only the Python standard library.
"""

import argparse
import html
import json
import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STYLE = """
body{margin:0;font:16px/1.55 system-ui,sans-serif;color:#1f2328;background:#fff;display:flex}
nav{width:17rem;height:100vh;overflow:auto;position:sticky;top:0;padding:1rem;box-sizing:border-box;border-right:1px solid #d0d7de;font-size:14px;flex:none}
nav a{display:block;color:inherit;text-decoration:none;padding:.1rem 0}nav a:hover,main a{color:#0969da}nav b{display:block;margin-top:.8rem}
main{padding:1.5rem 2.5rem;max-width:60rem;min-width:0}img{max-width:100%}
pre{background:#f6f8fa;padding:.8rem;overflow:auto;font-size:13px;line-height:1.4}code{font-family:ui-monospace,monospace;font-size:.9em}
table{border-collapse:collapse;display:block;overflow:auto}td,th{border:1px solid #d0d7de;padding:.3rem .6rem;text-align:left;vertical-align:top}
input{width:100%;box-sizing:border-box;padding:.3rem}#found small{display:block;color:#656d76}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}pre{background:#161b22}nav,td,th{border-color:#30363d}nav a:hover,main a{color:#4493f8}}
@media(max-width:50rem){body{display:block}nav{width:auto;height:auto;position:static}}
"""
# Ranks sections by the number of query words that begin a word of the section; headings count more.
SEARCH = """
const words=t=>t.toLowerCase().match(/[a-z0-9_.-]+/g)||[];
document.getElementById('query').addEventListener('input',e=>{const wanted=words(e.target.value),out=document.getElementById('found');out.innerHTML='';
if(!wanted.length)return;const found=[];for(const s of SECTIONS){let score=0;const head=' '+s.heading.toLowerCase(),body=' '+s.text.toLowerCase();
if(wanted.every(w=>{const h=head.split(' '+w).length-1,b=body.split(' '+w).length-1;score+=8*h+Math.min(b,5);return h+b>0}))found.push([score,s])}
found.sort((a,b)=>b[0]-a[0]);for(const [,s] of found.slice(0,20)){const a=document.createElement('a');a.href=s.at;a.textContent=s.heading;
const small=document.createElement('small');small.textContent=s.page;a.append(small);out.append(a)}if(!found.length)out.textContent='nothing found'});
"""


def pages():
    """Every guide in the order of the index: (path, heading of its group)."""
    listed = re.findall(r"\*\*(\w+)\*\*:(.*?)(?=\n\n|\Z)", (ROOT / "docs/README.md").read_text(), re.S)
    found = [(ROOT / "README.md", "Start")]
    for group, text in listed:
        for target in re.findall(r"\]\(([^)#]+\.md)\)", text):
            found.append(((ROOT / "docs" / target).resolve(), group))
    found += [(path, "Decisions") for path in sorted((ROOT / "docs/decisions").glob("0*.md"))]
    found += [(path, "Background") for path in sorted((ROOT / "docs").glob("*.md"))]
    return list(first_of_each(found))


def first_of_each(found):
    seen = set()
    for path, group in found:
        if path not in seen:
            seen.add(path)
            yield path, group


def file_of(path):
    """Name of the HTML file: docs/decisions/README.md is docs-decisions-README.html; the first page is index.html."""
    relative = path.relative_to(ROOT)
    return "index.html" if str(relative) == "README.md" else "-".join(relative.with_suffix(".html").parts)


def anchor(heading):
    """Anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).replace(" ", "-")


class Converter:
    def __init__(self, path, known):
        self.path, self.known = path, known
        self.sections, self.out = [], []
        self.title = ""

    def link(self, match):
        bang, words, target = match[1], match[2], match[3]
        place, _, rest = target.partition("#")
        if not re.match(r"\w+:", target) and place:
            there = (self.path.parent / place).resolve()
            if there in self.known:
                target = file_of(there) + (f"#{rest}" if rest else "")
            elif there.suffix == ".svg":
                target = there.name
            else:
                target = os.path.relpath(there, ROOT / "build" / "docs" / "guides")
        if bang:
            return f'<img src="{html.escape(target)}" alt="{words}">'
        return f'<a href="{html.escape(target)}">{words}</a>'

    def inline(self, text):
        """Converts inline markup. Code is replaced by placeholders first, so that its contents are not interpreted."""
        codes = []

        def keep(match):
            codes.append(f"<code>{html.escape(match[1], quote=False)}</code>")
            return f"\0{len(codes) - 1}\0"
        text = html.escape(re.sub(r"`([^`]+)`", keep, text), quote=False)
        text = re.sub(r"(!?)\[([^\]]*)\]\(([^)]+)\)", self.link, text)
        text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
        text = re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])", r"<em>\1</em>", text)
        return re.sub(r"\0(\d+)\0", lambda match: codes[int(match[1])], text)

    def heading(self, level, text):
        name = anchor(text)
        plain = re.sub(r"[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
        self.title = self.title or plain
        self.sections.append({"heading": plain, "page": self.title, "at": f"{file_of(self.path)}#{name}", "text": ""})
        self.out.append(f'<h{level} id="{name}">{self.inline(text)}</h{level}>')

    def table(self, lines):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines]
        head, body = rows[0], rows[2:]
        cells = "".join(f"<th>{self.inline(cell)}</th>" for cell in head) if any(head) else ""
        self.out.append("<table>" + (f"<tr>{cells}</tr>" if cells else ""))
        self.out += ["<tr>" + "".join(f"<td>{self.inline(cell)}</td>" for cell in row) + "</tr>" for row in body]
        self.out.append("</table>")

    def items(self, lines):
        """Converts a list. An item starts with its marker and continues in indented lines."""
        ordered = re.match(r"\d+\. ", lines[0])
        texts = []
        for line in lines:
            begun = re.match(r"(?:[-*]|\d+\.) +(.*)", line)
            if begun:
                texts.append(begun[1])
            else:
                texts[-1] += " " + line.strip()
        kind = "ol" if ordered else "ul"
        self.out.append(f"<{kind}>" + "".join(f"<li>{self.inline(text)}</li>" for text in texts) + f"</{kind}>")

    def block(self, lines):
        first = lines[0]
        found = re.match(r"(#{1,6}) (.*)", first)
        if found:
            self.heading(len(found[1]), found[2])
            if len(lines) > 1:
                self.block(lines[1:])
        elif first.startswith("|"):
            self.table(lines)
        elif re.match(r"(?:[-*]|\d+\.) ", first):
            self.items(lines)
        else:
            begun = next((i for i, line in enumerate(lines) if i and re.match(r"(?:[-*]|\d+\.) |\|", line)), len(lines))
            self.out.append(f"<p>{self.inline(' '.join(lines[:begun]))}</p>")
            if begun < len(lines):
                self.block(lines[begun:])

    def convert(self):
        waiting, code = [], None

        def flush():
            if waiting:
                self.block(list(waiting))
                waiting.clear()
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            if line.startswith("```"):
                if code is None:
                    flush()
                    code = []
                else:
                    self.out.append(f"<pre><code>{html.escape(chr(10).join(code), quote=False)}</code></pre>")
                    code = None
            elif code is not None:
                code.append(line)
            elif not line.strip():
                flush()
            elif re.match(r"(>|<[a-z]|={3,}$|~~~)", line):
                raise SystemExit(f"guides: {self.path}:{number}: unsupported Markdown: {line[:60]}")
            else:
                waiting.append(line)
            if self.sections and not line.startswith(("#", "```")):
                self.sections[-1]["text"] += " " + re.sub(r"[`*|\[\]()]", " ", line)
        if code is not None:
            raise SystemExit(f"guides: {self.path}: a code block is not closed")
        flush()
        return "\n".join(self.out)


def navigation(listed, titles):
    parts, group = [], None
    for path, of in listed:
        if of != group:
            parts.append(f"<b>{html.escape(of)}</b>")
            group = of
        parts.append(f'<a href="{file_of(path)}">{html.escape(titles[path])}</a>')
    return "\n".join(parts)


def build(output):
    listed = pages()
    known = {path for path, _ in listed}
    made = {path: Converter(path, known) for path, _ in listed}
    bodies = {path: one.convert() for path, one in made.items()}
    menu = navigation(listed, {path: one.title for path, one in made.items()})
    output.mkdir(parents=True, exist_ok=True)
    sections = [section for one in made.values() for section in one.sections]
    (output / "search.js").write_text(f"const SECTIONS={json.dumps(sections, ensure_ascii=False)};{SEARCH}")
    (output / "style.css").write_text(STYLE)
    for picture in (ROOT / "docs").glob("*.svg"):
        shutil.copy(picture, output / picture.name)
    for path, body in bodies.items():
        (output / file_of(path)).write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f'<title>{html.escape(made[path].title)} - Lockstep</title><link rel="stylesheet" href="style.css">'
            f'<body><nav><input id="query" type="search" placeholder="search" aria-label="search"><div id="found"></div>'
            f'{menu}\n<b>Reference</b><a href="../html/index.html">the library\'s headers</a></nav><main>{body}</main>'
            f'<script src="search.js"></script></body></html>\n')
    return len(bodies)


def llms():
    """Title, description, and the pages by group, each with its first sentence."""
    readme = (ROOT / "README.md").read_text()
    lines = ["# Lockstep", "", "> " + " ".join(readme.split("\n\n")[1].split()), ""]
    group = None
    for path, of in pages():
        if of == "Decisions" or path == ROOT / "README.md":
            continue
        if of != group:
            lines += ([""] if group else []) + [f"## {of}", ""]
            group = of
        text = path.read_text()
        title = re.match(r"# (.*)", text)[1]
        said = next((block for block in text.split("\n\n")[1:] if re.match(r"(?!```)[A-Za-z`*\[]", block)), "")
        sentence = re.split(r"(?<=[.:])\s", " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", said).split()))[0].rstrip(":")
        lines.append(f"- [{title.replace('`', '')}]({path.relative_to(ROOT)}): {sentence}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path, nargs="?")
    parser.add_argument("--llms", type=pathlib.Path)
    options = parser.parse_args()
    if options.llms:
        options.llms.write_text(llms())
    if options.output:
        print(f"{build(options.output)} guides: {options.output}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
