#!/usr/bin/env python3
"""Every lint check finds its bad example, and leaves the good one alone."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import advice  # noqa: E402
import banned  # noqa: E402
import citations  # noqa: E402
import compiled  # noqa: E402
import docs  # noqa: E402
import english  # noqa: E402
import includes  # noqa: E402
import layering  # noqa: E402
import lengths  # noqa: E402
import named  # noqa: E402
import structure  # noqa: E402
from tree import Tree, blank_cpp  # noqa: E402

_HERE = os.path.dirname(os.path.abspath(__file__))


def found(check, path, text, **others):
    files = {name.replace("__", "/"): body for name, body in others.items()}
    return [str(finding) for finding in check(Tree({path: text, **files})) if finding.path == path]


class Citations(unittest.TestCase):
    def refused(self, text, path="base/a.h"):
        files = {path: text, "base/word.h": "int a_word; class TwoWords {};\n", "docs/PROTOCOL.md": "**R1** x\n",
                 "docs/decisions/0008-x.md": ""}
        return [str(finding) for finding in citations.check(Tree(files)) if finding.path == path]

    def test_citations_that_lead_nowhere(self):
        for text in ("// base/other.h has it.\n", "// See other.h.\n", "// As decision 9 says.\n", "// PROTOCOL R2.\n",
                     "// torchrun-contract 1.1\n", "// `OtherWords` has it.\n", "// `other_word` is a field.\n",
                     "// `Other()` does.\n"):
            self.assertTrue(self.refused(text), text)
        for text in ("`other_word` is a field.\n", "`word.{h,cc}`\n", "`core/word.h`\n"):
            self.assertTrue(self.refused(text, "docs/A.md"), text)

    def test_citations_that_are_there(self):
        for text in ("// base/word.h has it.\n", "// See word.h.\n", "// As decision 8 says.\n", "// PROTOCOL R1.\n",
                     "// `TwoWords` and `base::a_word` are there.\n"):
            self.assertFalse(self.refused(text), text)
        self.assertFalse(self.refused("`base/word.{h,h}`, `word.{h,h}`\n", "docs/A.md"))


class English(unittest.TestCase):
    def refused(self, text, path="base/a.h"):
        return [text for _, text in english.findings_of(path, text)]

    def test_constructions_that_are_refused(self):
        for text in ("// Waits for who comes last.\n", "// The node told its agent.\n", "// A fault of which nobody knows.\n",
                     "// A command that mends it.\n", "// Restarts that are allowed yet.\n", "// What a rank comes to.\n",
                     "// Its number.\n", "// Once.\n", "// Knows whose turn is next.\n", "// For whom it is meant.\n",
                     'Fail("the store told rank 3 to stop");\n'):
            self.assertTrue(self.refused(text), text)
        self.assertTrue(self.refused("Whoever joins late waits.\n", "docs/A.md"))
        self.assertTrue(self.refused('"""The one who waits."""\n# Tells it\n', "bench/a.py"))

    def test_constructions_that_are_fine(self):
        for text in ("// A user who waits.\n", "// A file whose name ends with .h.\n", "// No step has ended yet.\n",
                     "// Yields the rank.\n", "int x = 1;  // of all ranks\n", "who();\n", "// Tell apart two ranks.\n",
                     '"who"\n'):
            self.assertFalse(self.refused(text), text)
        self.assertFalse(self.refused("```\nwho waits\n```\nAnd `who` is a command.\n", "docs/A.md"))


class Layering(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(_HERE, "..", "..", layering.TABLE), encoding="utf-8") as source:
            self.document = source.read()

    def refused(self, path, included):
        return bool(found(layering.check, path, f'#include "{included}"\n', **{layering.TABLE: self.document}))

    def of_table(self, rows, **files):
        """What is found in a table of these rows (room, what it may include)."""
        table = "".join(f"| `{room}` | words | {', '.join(f'`{name}`' for name in allowed)} |\n" for room, allowed in rows)
        return found(layering.check, layering.TABLE, table, **files)

    def test_cores_are_pure(self):
        for included in ("chrono", "thread", "mutex", "base/clock.h", "base/log.h", "grpcpp/grpcpp.h", "unistd.h",
                         "ddprun/rendezvous/v1/rendezvous.pb.h", "absl/time/clock.h", "absl/synchronization/mutex.h"):
            self.assertTrue(self.refused("rendezvous/core/rank.cc", included), included)
            self.assertTrue(self.refused("launcher/core/plan.cc", included), included)
        for included in ("map", "absl/strings/str_cat.h", "base/check.h", "rendezvous/core/job_spec.h"):
            self.assertFalse(self.refused("rendezvous/core/rank.cc", included), included)

    def test_launcher_core_shares_only_plain_types(self):
        self.assertFalse(self.refused("launcher/core/plan.cc", "rendezvous/core/job_spec.h"))
        self.assertTrue(self.refused("launcher/core/plan.cc", "rendezvous/core/job/state_machine.h"))
        self.assertTrue(self.refused("rendezvous/core/rank.cc", "launcher/core/launch_plan.h"))

    def test_rooms_of_the_launcher(self):
        for path, included in (("tools/doctor/core/findings.cc", "launcher/os/machine_probe.h"),
                               ("tools/doctor/core/findings.cc", "tools/doctor/machine_probe.h"),
                               ("tools/doctor/core/findings.cc", "tools/chaos/core/chaos_plan.h"),
                               ("tools/doctor/core/findings.cc", "unistd.h"),
                               ("launcher/agent/agent.cc", "launcher/cli/options.h"),
                               ("launcher/agent/agent.cc", "tools/doctor/core/machine_facts.h"),
                               ("launcher/machine/gpu_usage.cc", "tools/doctor/core/machine_facts.h"),
                               ("launcher/options/query_options.cc", "launcher/plan/launch_planner.h"),
                               ("tools/watch/job_finder.cc", "launcher/agent/agent.h"),
                               ("launcher/stores/core/tcp_store.cc", "rendezvous/core/job_spec.h"),
                               ("tools/chaos/chaos_command.cc", "ddprun/agent/v1/agent.pb.h")):
            self.assertTrue(self.refused(path, included), f"{path} {included}")
        for path, included in (("tools/doctor/core/findings.cc", "launcher/core/cpu_binding.h"),
                               ("tools/doctor/machine_probe.cc", "tools/doctor/core/machine_facts.h"),
                               ("tools/doctor/machine_probe.cc", "launcher/machine/host_probe.h"),
                               ("launcher/agent/agent.cc", "launcher/stores/core/key_value_store.h")):
            self.assertFalse(self.refused(path, included), f"{path} {included}")

    def test_every_room_is_in_the_table(self):
        for path in ("launcher/billing/bill.cc", "tools/doctor/gpus/probe.cc", "rendezvous/journal/core/journal.cc"):
            self.assertTrue(self.refused(path, "string"), path)
        self.assertTrue(layering.check(Tree({"base/fd.cc": ""})))

    def test_rows_point_down_and_at_what_is_there(self):
        files = {"base/a.cc": "", "base/b/b.cc": '#include "base/a/a.h"\n', "base/a/a.cc": '#include "base/b/b.h"\n'}
        circle = [("base", ()), ("base/a", ("base/b",)), ("base/b", ("base/a",))]
        self.assertIn("circle", "".join(self.of_table(circle, **files)))
        line = [("base", ()), ("base/a", ()), ("base/b", ("base/a",))]
        self.assertFalse(self.of_table(line, **files))
        self.assertIn("no room", "".join(self.of_table([*line[:2], ("base/b", ("base/a", "base/c"))], **files)))
        self.assertIn("take it out", "".join(self.of_table([*line[:2], ("base/b", ("base/a", "gRPC"))], **files)))
        self.assertIn("no code", "".join(self.of_table([*line, ("base/c", ())], **files)))

    def test_public_headers_are_of_the_room_of_their_source(self):
        files = {"base/a.cc": "", "worker/low/low.cc": '#include "ddprun/high.h"\n', "worker/high/high.cc": "",
                 "worker/include/ddprun/high.h": "", "examples/a.cc": '#include "ddprun/high.h"\n'}
        rows = [("base", ()), ("worker/low", ()), ("worker/high", ()), ("examples", ("ddprun/*.h",))]
        table = "".join(f"| `{room}` | words | {', '.join(f'`{name}`' for name in allowed)} |\n" for room, allowed in rows)
        self.assertEqual(["worker/low/low.cc"],
                         [finding.path for finding in layering.check(Tree({layering.TABLE: table, **files}))])

    def test_a_pure_row_names_pure_rooms(self):
        files = {"base/a.cc": "", "worker/a.cc": "", "worker/b/core/b.cc": '#include "worker/a.h"\n'}
        rows = [("base", ()), ("worker", ()), ("worker/b/core", ("worker",))]
        self.assertIn("pure", "".join(self.of_table(rows, **files)))

    def test_layers_point_downwards(self):
        for path, included in (("base/fd.cc", "launcher/os/spawn.h"), ("base/fd.cc", "grpcpp/grpcpp.h"),
                               ("launcher/os/spawn.cc", "launcher/agent/agent.h"),
                               ("launcher/os/spawn.cc", "grpcpp/grpcpp.h"),
                               ("launcher/keeper/keeper.cc", "ddprun/rendezvous/v1/rendezvous.pb.h"),
                               ("launcher/agent/agent.cc", "torch/torch.h"),
                               ("launcher/agent/agent.cc", "worker/torch/process_group.h"),
                               ("rendezvous/client/client.cc", "rendezvous/server/server.h"),
                               ("worker/client/client.cc", "c10/util/Exception.h"),
                               ("worker/torch/store/agent_store.cc", "grpcpp/grpcpp.h"),
                               ("worker/torch/store/agent_store.cc", "ddprun/agent/v1/agent.pb.h"),
                               ("base/fd.cc", "tests/support/fake_clock.h")):
            self.assertTrue(self.refused(path, included), f"{path} {included}")
        for path, included in (("launcher/keeper/keeper.cc", "ddprun/keeper/v1/keeper.pb.h"),
                               ("launcher/agent/agent.cc", "rendezvous/client/rendezvous_client.h"),
                               ("worker/torch/store/agent_store.cc", "torch/csrc/distributed/c10d/Store.hpp"),
                               ("worker/client/client.cc", "ddprun/agent/v1/agent.grpc.pb.h")):
            self.assertFalse(self.refused(path, included), f"{path} {included}")

    def test_rooms_of_the_worker_point_downwards(self):
        for path, included in (("worker/torch/optim/a.cc", "worker/torch/zero/zero_reducer.h"),
                               ("worker/torch/optim/a.cc", "worker/torch/context/context_implementation.h"),
                               ("worker/torch/collectives/a.cc", "worker/torch/context/context_implementation.h"),
                               ("worker/torch/store/a.cc", "worker/torch/collectives/process_group.h"),
                               ("worker/torch/zero/a.cc", "worker/torch/ddp/communication_hooks.h"),
                               ("worker/torch/ddp/a.cc", "worker/torch/zero/zero_reducer.h"),
                               ("worker/torch/store/a.cc", "worker/metrics/figures.h"),
                               ("worker/torch/new_room/a.cc", "worker/torch/errors/exception_status.h")):
            self.assertTrue(self.refused(path, included), f"{path} {included}")
        for path, included in (("worker/torch/zero/a.cc", "worker/torch/optim/storage_on_use.h"),
                               ("worker/torch/optim/a.cc", "worker/torch/optim/not_finite.h"),
                               ("worker/torch/checkpoint/a.cc", "worker/torch/zero/zero_state.h")):
            self.assertFalse(self.refused(path, included), f"{path} {included}")


class Banned(unittest.TestCase):
    def test_cpp(self):
        for line in ("std::this_thread::sleep_for(ms);", "usleep(10);", "auto t = std::chrono::system_clock::now();",
                     "gettimeofday(&tv, nullptr);", "kill(pid, SIGTERM);", "::kill(pid, 9);", "int r = rand();",
                     "std::regex re(text);", "assert(x > 0);", "system(command);", "throw Error();",
                     "absl::SleepFor(absl::Seconds(1));", "#include <iostream>"):
            self.assertTrue(found(banned.check, "launcher/agent/a.cc", line + "\n"), line)

    def test_cpp_allowed(self):
        for line in ("// never sleep_for() here", 'Log("kill(pid)");', "process.kill(3);", "static_assert(true);",
                     "keeper->Signal(g, SIGKILL);"):
            self.assertFalse(found(banned.check, "launcher/agent/a.cc", line + "\n"), line)
        self.assertFalse(found(banned.check, "launcher/keeper/a.cc", "kill(pid, SIGKILL);\n"))

    def test_using_namespace_only_in_sources(self):
        self.assertTrue(found(banned.check, "base/a.h", "using namespace std;\n"))
        self.assertFalse(found(banned.check, "base/a.cc", "using namespace std::chrono_literals;\n"))

    def test_scripts(self):
        self.assertTrue(found(banned.check, "tests/x.py", "time.sleep(1)\n"))
        self.assertTrue(found(banned.check, "scripts/x", "#!/usr/bin/env bash\nsleep 1\n"))
        self.assertFalse(found(banned.check, "scripts/x", "#!/usr/bin/env bash\nsleepy 1\n"))

    def test_paths_in_definitions(self):
        line = 'target_compile_definitions(a PRIVATE PROGRAM="$<TARGET_FILE:b>")\n'
        self.assertTrue(found(banned.check, "tests/x/CMakeLists.txt", line))
        self.assertTrue(found(banned.check, "tests/x/CMakeLists.txt", line.replace("$<TARGET_FILE:b>", "${CMAKE_SOURCE_DIR}/b")))
        self.assertFalse(found(banned.check, "tests/x/CMakeLists.txt", 'ENVIRONMENT "PROGRAM=$<TARGET_FILE:b>"\n'))

    def test_everywhere(self):
        for line in ("// TO" + "DO: later", "FIX" + "ME", "see /ro" + "ot/notes", "/ho" + "me/me/x"):
            self.assertTrue(found(banned.check, "docs/x.md", line + "\n"), line)

    def test_phrases(self):
        for line in ("1 of 2 nodes are here", "the command that mends it", "4 workers on 1 nodes"):
            self.assertTrue(found(banned.check, "docs/x.md", line + "\n"), line)
        self.assertFalse(found(banned.check, "docs/x.md", "1 of 2 nodes have joined, on 10 nodes\n"))

    def test_the_interpreter_has_one_name(self):
        for path, line in (("docs/x.md", "run `python -m ddprun_torch.enable`"), ("launcher/a/b.cc", '"try: python train.py"'),
                           ("launcher/advice/a.yaml", 'next: "python -c pass"'), ("README.md", "python ${HOME}/train.py")):
            self.assertTrue(found(banned.check, path, line + "\n"), line)
            self.assertFalse(found(banned.check, path, line.replace("python ", "python3 ") + "\n"), line)
        for path, line in (("docs/x.md", "the Python of `bin/python -u` is python, too"),
                           ("tests/x.py", "ddprun python train.py")):
            self.assertFalse(found(banned.check, path, line + "\n"), line)

    def test_coinages(self):
        for line in ("LinkExam exam(facts);", "std::vector<ExamSeat> seats;", "TransferDoor door;", "Way way;", "Strike strike;",
                     'Tell("the job ends");', "TellUser{level, text};", "NodeLooks looks;"):
            self.assertTrue(found(banned.check, "launcher/agent/a.cc", line + "\n"), line)
        for line in ("LinkCheck check(facts);", "// Tell(x) was its name", 'Notify("Tell(me)");',
                     "TEST(Log, TellsWhyATryFailed) {}"):
            self.assertFalse(found(banned.check, "launcher/agent/a.cc", line + "\n"), line)

    def test_since_is_for_time(self):
        self.assertTrue(found(banned.check, "docs/x.md", "it waits, since nobody answers\n"))
        self.assertFalse(found(banned.check, "docs/x.md", "it has waited since it began, as nobody answers\n"))


class Lengths(unittest.TestCase):
    def test_functions(self):
        body = "  Call();\n" * 70
        bad = f"namespace a {{\nclass B {{\n int C(int x) const {{\n{body} }}\n}};\n}}\n"
        self.assertTrue(found(lengths.check, "base/a.cc", bad))
        good = bad.replace(body, "  Call();\n" * 60)
        self.assertFalse(found(lengths.check, "base/a.cc", good))
        # Two short ones are not one long one; a long class isn't a function.
        two = "void A() {\n" + "  Call();\n" * 50 + "}\nvoid B() {\n" + "  Call();\n" * 50 + "}\n"
        self.assertFalse(found(lengths.check, "base/a.cc", two))
        self.assertFalse(found(lengths.check, "base/a.cc", "struct A {\n" + "  int x;\n" * 90 + "};\n"))

    def test_constructor_with_initialisers(self):
        bad = "A::A(int x)\n    : x_(x), y_{x} {\n" + "  Call();\n" * 75 + "}\n"
        self.assertTrue(found(lengths.check, "base/a.cc", bad))

    def test_python_functions(self):
        self.assertTrue(found(lengths.check, "tests/a.py", "def f():\n" + "    g()\n" * 71))

    def test_small_files(self):
        files = {f"base/a{number}.h": "// one line\n" for number in range(221)}
        self.assertIn("221 files", str(lengths.check(Tree(files))[0]))
        files["base/a0.h"] = "// one line\n" * 60
        self.assertEqual([], lengths.check(Tree(files)))

    def test_files(self):
        self.assertTrue(found(lengths.check, "base/a.h", "\n" * 251))
        self.assertFalse(found(lengths.check, "base/a.cc", "\n" * 251))
        self.assertTrue(found(lengths.check, "base/a.cc", "\n" * 501))
        self.assertFalse(found(lengths.check, "base/a.cc", "\n" * 500 + "// why\n" * 90))
        self.assertTrue(found(lengths.check, "base/a.cc", "/" * 101 + "\n"))
        self.assertTrue(found(lengths.check, "README.md", "line\n" * 121))


class Structure(unittest.TestCase):
    GUARDED = "#ifndef DDPRUN_BASE_A_H_\n#define DDPRUN_BASE_A_H_\n#endif  // DDPRUN_BASE_A_H_\n"

    def test_guards(self):
        user = {"base__b.cc": '#include "base/a.h"\n', "base__CMakeLists.txt": "b.cc"}
        self.assertFalse(found(structure.check, "base/a.h", self.GUARDED, **user))
        self.assertTrue(found(structure.check, "base/a.h", self.GUARDED.replace("_A_", "_B_"), **user))
        self.assertTrue(found(structure.check, "base/a.h", "#pragma once\n", **user))

    def test_dead_files(self):
        self.assertTrue(found(structure.check, "base/a.h", self.GUARDED))
        self.assertTrue(found(structure.check, "base/dead.cc", "\n", base__CMakeLists__txt="live.cc"))
        self.assertTrue(found(structure.check, "base/dead.cc", "\n", **{"base__CMakeLists.txt": "not_dead.cc"}))
        self.assertFalse(found(structure.check, "base/x/live.cc", "\n", **{"base__CMakeLists.txt": "x/live.cc"}))

    def test_proto_comments(self):
        bad = "message A {\n  uint32 x = 1;\n}\n"
        self.assertTrue(found(structure.check, "proto/a.proto", bad))
        self.assertFalse(found(structure.check, "proto/a.proto", bad.replace("  uint32", "  // Milliseconds.\n  uint32")))


class Includes(unittest.TestCase):
    """A file sees what it names, though most builds compile it after others in one unit."""

    VIEWS = "struct JobView {\n  int phase = 0;\n};\nenum class Tone { kLow };\nbool IsLoopback(int host);\n" \
            "inline constexpr int kWords = 3;\n"

    def missed(self, text, path="base/a.cc", **others):
        return [line.split(": ", 1)[1] for line in found(includes.check, path, text, **{"base/views.h": self.VIEWS, **others})]

    def test_types_and_functions(self):
        self.assertEqual(["JobView is of base/views.h: include that"], self.missed("int Phase(const JobView& view);\n"))
        self.assertEqual(["Tone is of base/views.h: include that"], self.missed("int low = int(Tone::kLow);\n", "base/a.h"))
        self.assertEqual(["IsLoopback is of base/views.h: include that"], self.missed("bool b = IsLoopback(1);\n"))
        self.assertEqual(["kWords is of base/views.h: include that"], self.missed("int words = kWords;\n"))
        for text in ("bool b = ddprun::launcher::IsLoopback(1);\n", "bool b = worker::IsLoopback(1) || IsLoopback(2);\n"):
            self.assertEqual(["IsLoopback is of base/views.h: include that"], self.missed(text))

    def test_at_any_distance(self):
        near = {"base/near.h": '#include "base/views.h"\n', "worker/include/ddprun/near.h": '#include "base/views.h"\n'}
        for included in ("base/views.h", "base/near.h", "ddprun/near.h"):
            self.assertEqual([], self.missed(f'#include "{included}"\nJobView view;\n', **near), included)
        self.assertEqual(1, len(self.missed('#include "base/far.h"\nJobView view;\n', **near)))

    def test_what_may_be_another_one(self):
        for text in ("struct JobView;\nint Phase(const JobView& view);\n",     # declared is enough
                     "using v1::JobView;\nJobView view;\n",                    # of another namespace
                     "v1::JobView view;\n", "view.JobView();\n", "// JobView\n", 'auto text = "JobView";\n',
                     "bool IsLoopback(int host) { return host == 1; }\nbool b = IsLoopback(1);\n",
                     "enum class Many { kFew, kWords };\nMany words = Many::kWords;\n",
                     "constexpr int kWords(4);\nint words = kWords;\n"):
            self.assertEqual([], self.missed(text), text)
        self.assertEqual([], self.missed("JobView view;\n", **{"base/b.cc": "struct Out {\n  struct JobView {\n  };\n};\n"}))
        self.assertEqual([], self.missed("JobView view;\n", **{"proto/a.proto": "message JobView {\n}\n"}))


class Advice(unittest.TestCase):
    def findings(self, rules="- name: a\n", messages="== a | torch 2.11\n", document="`a`"):
        return [finding.text for finding in advice.check(
            Tree({advice.RULES: rules, advice.MESSAGES: messages, advice.DOCUMENT: document}))]

    def test_rules_have_messages_and_are_documented(self):
        self.assertEqual([], self.findings())
        self.assertIn("rule b has no message", self.findings(rules="- name: a\n- name: b\n")[0])
        self.assertIn("rule a is there twice", self.findings(rules="- name: a\n- name: a\n")[0])
        self.assertIn("no rule b", self.findings(messages="== a | x\n== b | x\n")[0])
        self.assertIn("where the message was seen", self.findings(messages="== a | \n")[0])
        self.assertIn("not in docs/LOGS.md", self.findings(document="a")[0])


class Named(unittest.TestCase):
    def findings(self, code, page):
        (source, *_), _, document, heading, _ = named.TABLES[0]
        tree = Tree({source: code, document: f"# A\n\n{heading}\n{page}\n## B\n- `c`\n"})
        return [finding.text for finding in named.check(tree)]

    def test_the_code_and_the_page_name_the_same(self):
        self.assertEqual([], self.findings('return "a"; return "unknown";', "- `a`: x"))
        self.assertEqual(["b isn't in docs/RECOVERY.md"], self.findings('return "a"; return "b";', "- `a`: x"))
        self.assertEqual(["b isn't in rendezvous/core/verdict.cc"], self.findings('return "a";', "- `a`: x\n- `b`: y"))
        self.assertIn("the check is broken", self.findings("", "")[0])


class Docs(unittest.TestCase):
    def test_links(self):
        self.assertTrue(found(docs.check, "README.md", "see [that](docs/nothing.md)\n"))
        self.assertTrue(found(docs.check, "README.md", "see `scripts/nothing`\n"))
        self.assertFalse(found(docs.check, "README.md", "see [that](docs/a.md#the-end)\n", **{"docs__a.md": "# The end\n"}))
        self.assertTrue(found(docs.check, "README.md", "see [that](docs/a.md#no)\n", **{"docs__a.md": "# The end\n"}))
        self.assertFalse(found(docs.check, "docs/a.md", "[web](https://example.org) [here](#x)\n"))

    def test_every_page_within_two_clicks(self):
        files = {"README.md": "[all](docs/README.md) [why](docs/decisions)", "docs/README.md": "[a](A.md#x)",
                 "docs/A.md": "[b](tutorials/b.md)", "docs/decisions/0001-x.md": ""}
        self.assertEqual([], docs.check_reach(Tree(files)))
        third = [finding.path for finding in docs.check_reach(Tree({**files, "docs/tutorials/b.md": ""}))]
        self.assertEqual(["docs/tutorials/b.md"], third, "the third click")
        alone = docs.check_reach(Tree({**files, "README.md": "[all](docs/README.md)"}))
        self.assertEqual(["README.md"], [finding.path for finding in alone], "no way to the decisions")

    def test_shellcheck(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "x.sh"), "w", encoding="utf-8") as script:
                script.write("#!/bin/bash\nrm $1\n")
            self.assertTrue(docs.check_scripts(Tree.from_directory(folder)))


class Compiled(unittest.TestCase):
    """The checks that need compilers, on a one-file project."""

    def setUp(self):
        for tool in ("clang-format", "clang-tidy", "g++"):
            if shutil.which(tool) is None:
                self.skipTest(f"{tool} is not installed")
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.makedirs(os.path.join(self.folder, "base"))
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write(".clang-tidy", "Checks: '-*,bugprone-sizeof-expression,bugprone-suspicious-memset-usage'\n"
                   "WarningsAsErrors: '*'\n")

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as sink:
            sink.write(text)

    def needs(self, tool):
        reason = compiled.other_release(tool)
        if reason:
            self.skipTest(reason)

    def run_check(self, name, **environment):
        source = os.path.join(self.folder, "base", "a.cc")
        self.write("compile_commands.json", f'[{{"directory": "{self.folder}", "file": "{source}", '
                   f'"command": "g++ -std=c++20 -I{self.folder} -o a.o -c {source}"}}]')
        result = subprocess.run(
            [sys.executable, os.path.join(_HERE, "compiled.py"), name, "--build", self.folder, "--root", self.folder],
            env={**os.environ, "XDG_CACHE_HOME": os.path.join(self.folder, "cache"), **environment},
            capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    def test_another_clang_is_skipped(self):
        programs = os.path.join(self.folder, "programs")
        os.mkdir(programs)
        for check, tool in (("format", "clang-format"), ("tidy", "clang-tidy")):
            with open(os.path.join(programs, tool), "w", encoding="utf-8") as sink:
                sink.write(f"#!/bin/sh\necho Debian {tool} version 19.1.7\nexit 0\n")
            os.chmod(sink.name, 0o755)
            status, text = self.run_check(check, PATH=programs + os.pathsep + os.environ["PATH"])
            self.assertEqual((compiled.SKIPPED, f"{tool} 19 is installed; the sources are held to release 14\n"), (status, text))

    def test_format(self):
        self.needs("clang-format")
        self.write("base/b.cc", "int other = 0;\n")
        self.write("base/a.cc", "int main( ) { return 0; }\n")
        for checked in (2, 1):  # what is well is remembered
            status, text = self.run_check("format")
            self.assertEqual(1, status)
            self.assertIn("base/a.cc:1:", text)
            self.assertIn(f"format: {checked} checked, {2 - checked} unchanged since they passed, 1 failed", text)
        self.write("base/a.cc", "int main() { return 0; }\n")
        self.assertEqual(0, self.run_check("format")[0])
        self.assertIn("0 checked, 2 unchanged", self.run_check("format")[1])

    def test_headers(self):
        self.write("base/a.cc", "int main() { return 0; }\n")
        self.write("base/a.h", "inline std::string Name();\n")
        status, text = self.run_check("headers")
        self.assertEqual(1, status, text)
        self.write("base/a.h", "#include <string>\nstd::string Name();\n")
        self.assertEqual(0, self.run_check("headers")[0])

    def test_a_header_is_compiled_as_those_who_include_it(self):
        tree = Tree({"worker/include/ddprun/p.h": "\n", "worker/include/ddprun/q.h": '#include "ddprun/p.h"\n',
                     "worker/torch/t.cc": '#include "ddprun/q.h"\n', "worker/client/c.h": "\n"})
        commands = {f"{name}.cc": ["g++", f"-I{name}"] for name in ("worker/client/c", "worker/client/d", "worker/torch/t")}
        users = compiled.users_of(tree, commands)
        for header, source in (("worker/include/ddprun/p.h", "worker/torch/t"), ("worker/client/c.h", "worker/client/c"),
                               ("worker/client/new.h", "worker/client/c"), ("worker/new.h", "worker/client/c")):
            self.assertEqual(["g++", f"-I{source}"], compiled.flags_for(header, commands, users), header)
        self.assertIsNone(compiled.flags_for("base/new.h", commands, users))

    def test_a_changed_public_header_is_looked_at_again(self):
        def key(text):
            tree = Tree({"worker/include/ddprun/p.h": text, "worker/torch/t.cc": '#include "ddprun/p.h"\n'}, "/clone")
            return compiled.Cache(tree, "g++").key("worker/torch/t.cc", ["g++"])
        self.assertEqual(key("int a;\n"), key("int a;\n"))
        self.assertNotEqual(key("int a;\n"), key("int b;\n"))

    def test_another_clone_is_not_looked_at_again(self):
        def key(root, flag="-O2"):
            tree = Tree({"base/a.cc": "int a;\n"}, root)
            return compiled.Cache(tree, "g++").key("base/a.cc", ["g++", flag, f"-I{root}/base"], f"{root}/base/a.cc")
        self.assertEqual(key("/clone"), key("/another"))
        self.assertNotEqual(key("/clone"), key("/clone", "-O0"))

    def test_tidy_and_its_memory(self):
        self.needs("clang-tidy")
        self.write("base/a.cc", "#include <cstring>\nint main() {\n  int b[4];\n  memset(b, '0', 16);\n  return b[0];\n}\n")
        status, text = self.run_check("tidy")
        self.assertEqual(1, status, text)
        self.assertIn("suspicious-memset", text)
        self.write("base/a.cc", "int main() { return 0; }\n")
        self.assertIn("1 checked, 0 unchanged", self.run_check("tidy")[1])
        self.assertIn("0 checked, 1 unchanged", self.run_check("tidy")[1])


class Blanking(unittest.TestCase):
    def test_keeps_lines_and_code(self):
        text = 'a("x // y"); // c\n/* d\n e */ f(1\'000, \'"\');\nR"(kill(1)\n)"; g();\n'
        blanked = blank_cpp(text)
        self.assertEqual(text.count("\n"), blanked.count("\n"))
        for gone in ("x", "c\n", "d\n", "kill"):
            self.assertNotIn(gone, blanked)
        for kept in ("a(", "f(1'000", "g();"):
            self.assertIn(kept, blanked)


if __name__ == "__main__":
    unittest.main(verbosity=2)
