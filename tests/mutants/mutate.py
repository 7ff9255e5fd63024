#!/usr/bin/env python3
"""Puts all mutants of mutants.toml into copies of their sources, each asleep until AWAKE_MUTANT (in the environment) names it.

mutate.py FROM TO [MUTANTS]: copies the sources (*.cc) of FROM and of the folders in it to TO; the build calls it.
MUTANTS is another list, of several folders: those of others are left out. A mutant whose original is not there exactly
once is an error that names it: the source has changed, so the mutant must, too.

One build has them all, because a build for each would take minutes. Written by hand, because tools that make mutants up make
thousands, most of them equal to the original. Not in the product's source, where a mutant would be a bug that ships.
"""

import os
import sys
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))


# Before each source; sources are joined. Each place looks once.
PRELUDE = """\
#ifndef DDPRUN_MUTANT
#include <cstdlib>
#include <cstring>
#define DDPRUN_MUTANT(name)                                               \\
  ([] {                                                                   \\
    static const char* const awake = std::getenv("AWAKE_MUTANT");        \\
    static const bool is_it = awake != nullptr && !std::strcmp(awake, name); \\
    return is_it;                                                         \\
  }())
#endif
"""


class MutantError(Exception):
    """A mutant that doesn't fit."""


def read_mutants(path=os.path.join(HERE, "mutants.toml")):
    with open(path, "rb") as source:
        return tomllib.load(source)["mutant"]


def check_entries(case, mutants, keys):
    """Fails the test case where two mutants have one name, or one has a key that nobody reads."""
    names = [mutant["name"] for mutant in mutants]
    case.assertEqual(len(set(names)), len(names))
    for mutant in mutants:
        case.assertEqual(set(), set(mutant) - keys, mutant["name"])


def edits_of(mutants):
    """All changes of all mutants; some are of several, which `also` has."""
    return [{"name": mutant["name"], **edit} for mutant in mutants
            for edit in ({key: mutant[key] for key in ("file", "original", "mutated")}, *mutant.get("also", ()))]


def is_statement(text):
    return text.rstrip().endswith(";")


def with_mutant(mutant, original):
    """C++ that does what `original` does, or what the mutant does where that is awake."""
    awake = f'DDPRUN_MUTANT("{mutant["name"]}")'
    mutated = mutant["mutated"].strip()
    if is_statement(mutant["original"]):
        return f"if ({awake}) {{ {mutated} }} else {{ {original} }}"
    return f"({awake} ? ({mutated}) : ({original}))"


def mutate(name, text, mutants):
    """The text of the source `name` with its mutants."""
    by_place = {}
    for mutant in mutants:
        original = mutant["original"].strip()
        if text.count(original) != 1:
            raise MutantError(f"mutant {mutant['name']}: '{original}' is in {name} {text.count(original)} times, not once; "
                              "tests/mutants/mutants.toml must follow the source")
        begin = text.index(original)
        by_place.setdefault((begin, begin + len(original)), []).append(mutant)
    places = sorted(by_place)
    for before, after in zip(places, places[1:]):
        if after[0] < before[1]:
            raise MutantError(f"mutants {by_place[before][0]['name']} and {by_place[after][0]['name']} overlap in {name}")
    for begin, end in reversed(places):
        code = text[begin:end]
        for mutant in by_place[begin, end]:
            code = with_mutant(mutant, code)
        text = text[:begin] + code + text[end:]
    return PRELUDE + text


def write_if_changed(path, text):
    try:
        with open(path, encoding="utf-8") as old:
            if old.read() == text:
                return
    except FileNotFoundError:
        pass
    with open(path, "w", encoding="utf-8") as sink:
        sink.write(text)


def main(source_folder, target_folder, *listed):
    here = [mutant for mutant in read_mutants(*listed)
            if os.path.normpath(source_folder).endswith(mutant.get("folder", ""))]
    mutants = edits_of(here)
    paths = sorted(os.path.relpath(os.path.join(folder, name), source_folder)
                   for folder, _, names in os.walk(source_folder) for name in names if name.endswith(".cc"))
    unknown = sorted({mutant["file"] for mutant in mutants} - set(map(os.path.basename, paths)))
    if unknown:
        raise MutantError(f"mutants of files that are not in {source_folder}: {', '.join(unknown)}")
    for path in paths:
        name, target = os.path.basename(path), os.path.join(target_folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(os.path.join(source_folder, path), encoding="utf-8") as source:
            text = source.read()
        text = mutate(name, text, [mutant for mutant in mutants if mutant["file"] == name])
        write_if_changed(target, text)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except MutantError as error:
        sys.exit(f"error: {error}")
