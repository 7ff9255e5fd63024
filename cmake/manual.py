#!/usr/bin/env python3
"""Writes ddprun's manual page and its completion for bash and zsh, from the program's own help.

manual.py DDPRUN OUTPUT_FOLDER: asks `DDPRUN --help=json` and `DDPRUN COMMAND --help=json` for each command of its usage, and
writes ddprun.1, ddprun.bash and _ddprun. So the table of options in launcher/options and launcher/plan is their only source.
"""

import json
import os
import re
import subprocess
import sys

# What an option's placeholder stands for, when it isn't a choice of words.
_FOLDERS = ("DIR", "FOLDER")
_FILES = ("FILE", "PLAN", "PATH")


def asked(program, *words):
    """The description of a command's options: from --help=json, or parsed from --help (commands that take others' options)."""
    told = subprocess.run([program, *words, "--help=json"], check=False, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    try:
        return json.loads(told.stdout)
    except ValueError:
        return read_help(subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout)


def read_help(text):
    """A description by the lines "  -x, --name VALUE", each with its text below, of a help that is written by hand."""
    block = r"^  (-[^\n]*)\n((?: {6}[^\n]*\n)+)"
    options = []
    for head, below in re.findall(block, text, re.MULTILINE):
        spelled = re.match(r"(-[^ ,]+(?:, -[^ ,]+)*) ?(.*)", head)
        options.append({"names": spelled.group(1).split(", "), "value": spelled.group(2) or None,
                        "help": " ".join(below.split())})
    return {"introduction": re.sub(block, "", text, flags=re.MULTILINE), "groups": [{"title": "Options", "options": options}]}


def command_names(introduction):
    """The names in the table of commands; its lines have a group, a name and a text."""
    table = introduction.partition("\nCommands")[2].partition("\n\n")[0]
    return re.findall(r"^  .{7} ([a-z]+) +\S", table, re.MULTILINE)


def options_of(description):
    return [option for group in description["groups"] for option in group["options"]]


def choices_of(option):
    """The words that an option takes; [] when it takes others."""
    words = (option["value"] or "").split("|")
    return words if len(words) > 1 and all(re.fullmatch(r"[a-z][a-z0-9_-]*", word) for word in words) else []


def kind_of(option):
    """"folder", "file" or ""."""
    value = option["value"] or ""
    return "folder" if value in _FOLDERS else "file" if value in _FILES else ""


# ---------------------------------------------------------------- the manual page

def roff(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.MULTILINE)


def manual_options(description):
    lines = []
    for group in description["groups"]:
        lines.append(f".SS {roff(group['title'])}")
        for option in group["options"]:
            value = f" \\fI{roff(option['value'])}\\fR" if option["value"] else ""
            lines += [".TP", ", ".join(f"\\fB{roff(name)}\\fR" for name in option["names"]) + value, roff(option["help"])]
    return lines


def manual_prose(introduction):
    """The paragraphs behind the usage; indented lines aren't reflowed."""
    lines = []
    for paragraph in introduction.split("\n\n")[1:]:
        lines.append(".PP")
        for line in paragraph.split("\n"):
            lines += [".br", f".B {roff(line.strip())}", ".br"] if line.startswith("  ") else [roff(line)]
    return lines


def manual(version, launch, commands):
    usage = re.sub(r"^usage:", "      ", launch["introduction"].split("\n\n")[0])
    lines = [f'.TH DDPRUN 1 "" "{version}" "ddprun"', ".SH NAME",
             "ddprun \\- start distributed training jobs and keep them training through failures", ".SH SYNOPSIS", ".nf"]
    lines += [f".B {roff(line.strip())}" for line in usage.split("\n")]
    lines += [".fi", ".SH DESCRIPTION", *manual_prose(launch["introduction"]), ".SH OPTIONS", *manual_options(launch)]
    lines += [".SH COMMANDS"]
    for name, description in commands.items():
        lines += [f".SS ddprun {name}", ".nf", roff(description["introduction"]), ".fi"]
        for option in options_of(description):
            value = f" \\fI{roff(option['value'])}\\fR" if option["value"] else ""
            lines += [".TP", ", ".join(f"\\fB{roff(each)}\\fR" for each in option["names"]) + value, roff(option["help"])]
    lines += [".SH ENVIRONMENT", "Every option can come from the variable that its text ends with, in brackets.",
              ".SH SEE ALSO", ".BR torchrun (1),", "the documents that come with ddprun: LOGS, SIGNALS, RECOVERY, PROGRESS, CONFIG."]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- completion

def bash(launch, commands):
    """A function for bash's `complete`: commands, options, their choices, files; a script's own words are files."""
    def table(name, description):
        words, values = [], []
        for option in options_of(description):
            words += [spelling for spelling in option["names"] if spelling.startswith("--")]
            pattern = "|".join(option["names"])
            if choices_of(option):
                values.append(f"    {name}:{pattern.replace('|', f'|{name}:')}) words='{' '.join(choices_of(option))}' ;;")
            elif kind_of(option):
                values.append(f"    {name}:{pattern.replace('|', f'|{name}:')}) words=/{kind_of(option)} ;;")
            elif option["value"]:
                values.append(f"    {name}:{pattern.replace('|', f'|{name}:')}) words=/any ;;")
        return " ".join(words), values

    launch_words, values = table("run", launch)
    cases = []
    for name, description in commands.items():
        words, more = table(name, description)
        cases.append(f"    {name}) words='{words}' ;;")
        values += more
    return f"""# bash completion for ddprun; made of its --help by cmake/manual.py.
_ddprun() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command=run words=
  COMPREPLY=()
  if [ "$COMP_CWORD" -gt 1 ]; then
    case ${{COMP_WORDS[1]}} in {"|".join(commands)}) command=${{COMP_WORDS[1]}} ;; esac
  fi
  case $command:$previous in
{chr(10).join(values)}
  esac
  case $words in
    /folder) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    /file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    /any) return ;;
    ?*) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"); return ;;
  esac
  if [[ $current != -* ]]; then
    [ "$COMP_CWORD" -eq 1 ] && words='{" ".join(commands)}'
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"; compgen -f -- "$current")
    return
  fi
  case $command in
    run) words='{launch_words}' ;;
{chr(10).join(cases)}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o filenames -F _ddprun ddprun
"""


def zsh(launch, commands):
    def spec(option):
        help_text = re.sub(r"([\[\]:'\\])", "", option["help"].split(". ")[0])
        action = ""
        if option["value"]:
            words = choices_of(option)
            how = f"({' '.join(words)})" if words else {"folder": "_files -/", "file": "_files"}.get(kind_of(option), " ")
            value = re.sub(r"[\[\]:'\\]", " ", option["value"])
            action = f":{value}:{how}"
        names = option["names"]
        excluded = f"({' '.join(names)})"
        return [f"    '{excluded}{name}[{help_text}]{action}'" for name in names]

    def arguments(description, rest):
        specs = [line for option in options_of(description) for line in spec(option)]
        return " \\\n".join(["  _arguments -S", *specs, *rest])

    rest = ["    '*:file:_files'"]
    functions = "\n".join(f"_ddprun_{name}() {{\n{arguments(description, rest)}\n}}" for name, description in commands.items())
    script = ["    '1:script:_files'", "    '*::argument of the script:_files'"]
    return f"""#compdef ddprun
# zsh completion for ddprun; made of its --help by cmake/manual.py.
{functions}
_ddprun_run() {{
{arguments(launch, script)}
}}
_ddprun() {{
  if (( CURRENT == 2 )) && [[ $PREFIX != -* ]]; then
    compadd -- {" ".join(commands)}
    _files
    return
  fi
  case $words[2] in
    {"|".join(commands)}) local command=$words[2]; shift words; (( CURRENT-- )); _ddprun_$command ;;
    *) _ddprun_run ;;
  esac
}}
_ddprun "$@"
"""


def main():
    program, folder = sys.argv[1:]
    launch = asked(program)
    commands = {name: asked(program, name) for name in command_names(launch["introduction"])}
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split("\n")[0]
    os.makedirs(folder, exist_ok=True)
    for name, text in (("ddprun.1", manual(version, launch, commands)), ("ddprun.bash", bash(launch, commands)),
                       ("_ddprun", zsh(launch, commands))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as sink:
            sink.write(text)


if __name__ == "__main__":
    main()
