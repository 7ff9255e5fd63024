#!/usr/bin/env python3
"""ddprun as it is installed: the tutorial's project finds it, builds its program and runs it under the installed ddprun."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TUTORIAL = os.path.join(ROOT, "docs", "tutorials", "cpp.md")
BUILD = os.environ["DDPRUN_BUILD_DIR"]

# Every public header, so that one that includes what isn't installed is found.
ALL_HEADERS = """
get_target_property(directories ddprun::worker INTERFACE_INCLUDE_DIRECTORIES)
list(GET directories 0 include)
file(GLOB headers RELATIVE ${include} ${include}/ddprun/*.h)
list(TRANSFORM headers REPLACE "(.+)" "#include \\"\\\\1\\"\\n")
list(JOIN headers "" headers)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/all_headers.h "${headers}")
target_compile_options(train PRIVATE -include ${CMAKE_CURRENT_BINARY_DIR}/all_headers.h)
"""

# A program that takes the data alone, of whose library the tutorial's program uses nothing.
DATA = """
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/data.cc [=[
#include "ddprun/elastic_loader.h"
int main() {
  ddprun::ElasticLoader<int64_t> loader(
      ddprun::ElasticSampler::Create(7, {.global_batch = 7}, 0, 1).value(),
      [](const ddprun::StepShare& share) -> absl::StatusOr<int64_t> { return share.indices.size(); });
  return loader.Next()->batch == 7 ? 0 : 1;
}
]=])
add_executable(data ${CMAKE_CURRENT_BINARY_DIR}/data.cc)
target_link_libraries(data PRIVATE ddprun::worker)
add_custom_command(TARGET data POST_BUILD COMMAND data)
"""

# A program that fails: in a function of its own, or for want of GPUs.
WRONG = """
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/wrong.cc [=[
#include <torch/types.h>
#include <cstdlib>
#include "ddprun/context.h"
#include "ddprun/run_worker.h"
[[gnu::noinline]] void InAFunctionOfMine(int rows) { (void)torch::ones({rows, 3}).mm(torch::ones({rows, 3})); }
absl::Status Fail(int, char**) {
  const char* backend = std::getenv("WRONG_BACKEND");
  auto context = ddprun::Context::Create({.backend = backend == nullptr ? "auto" : backend});
  if (!context.ok()) return context.status();
  InAFunctionOfMine(2);
  return absl::OkStatus();
}
int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Fail); }
]=])
add_executable(wrong ${CMAKE_CURRENT_BINARY_DIR}/wrong.cc)
target_link_libraries(wrong PRIVATE ddprun::worker)
"""


class InstallTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-install-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run_command(self, *command, **options):
        """Its output; the test fails when it does."""
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                cwd=self.folder, **options)
        self.assertEqual(result.returncode, 0, f"{' '.join(command)}\n{result.stdout}")
        return result.stdout

    def environment(self):
        """With ccache, if it is there, which knows the project again in another folder."""
        environment = {**os.environ, "TREE": self.path("tree"), "PREFIX": self.path("a prefix")}
        if shutil.which("ccache"):
            cache = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True, check=True).stdout
            environment |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": self.folder, "CCACHE_NOHASHDIR": "1",
                            "CCACHE_DIR": cache.strip()}
        return environment

    def follow(self):
        """What the tutorial's commands print, one after the other; its lines must be among what they print."""
        with open(TUTORIAL, encoding="utf-8") as source:
            blocks = re.findall(r"^```(\w+)\n(.*?)^```$", source.read(), re.MULTILINE | re.DOTALL)
        outputs = []
        environment = self.environment()
        for language, text in blocks:
            if language == "console":
                command, *lines = text.splitlines()
                outputs.append(self.run_command("bash", "-c", command.removeprefix("$ "), env=environment))
                if "--install" in command:
                    # Users move the package, and have another HOME.
                    os.rename(self.path("a prefix"), self.path("the prefix"))
                    environment |= {"PREFIX": self.path("the prefix"), "HOME": self.path("home")}
                self.assertLessEqual(set(lines), set(outputs[-1].splitlines()), outputs[-1])
                continue
            name = re.match(r"(?:#|//) file: (\S+)\n", text).group(1)
            with open(self.path(name), "w", encoding="utf-8") as sink:
                sink.write(text + (ALL_HEADERS + DATA + WRONG if name == "CMakeLists.txt" else ""))
        return outputs

    def test_the_tutorials_project_builds_and_runs(self):
        os.makedirs(self.path("tree", "build"))
        os.symlink(BUILD, self.path("tree", "build", "release"))
        _, built, ran, resumed, _, by_hand = self.follow()
        self.assertIn("LibTorch 2.11.0", built)
        self.assertIn("step 100/100 (100%)", ran)
        self.assertIn("step 200/200 (100%)", resumed)
        losses = self.losses("run", range(10, 201, 10))
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertIn("step 20/20 (100%)", by_hand)
        losses = self.losses("run_by_hand", range(1, 21))
        self.assertLess(losses[-1], losses[0] / 2)
        self.check_traceback()
        self.check_plugin()

    def fail(self, *options, environment=None):
        """What a run of the program by hand prints that can't succeed."""
        result = subprocess.run([self.path("the prefix", "bin", "ddprun"), "--standalone", "--no_python", *options],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=self.folder,
                                env={**os.environ, **(environment or {})})
        self.assertEqual(1, result.returncode, result.stdout)
        return result.stdout

    def check_traceback(self):
        """Frames of the program have their functions' names in LibTorch's tracebacks."""
        self.assertRegex(self.fail("build/wrong"), r"frame #\d+: InAFunctionOfMine\(int\) \+ 0x")

    def check_plugin(self):
        """What is loaded on machines with GPUs is found, wherever it was installed; CUDA's own libraries may not be there."""
        if os.path.exists(self.path("the prefix", "lib", "ddprun", "libddprun_nccl.so")):
            text = self.fail("build/wrong", environment={"WRONG_BACKEND": "nccl"})
            self.assertNotIn("libddprun_nccl.so: cannot open shared object file", text)

    def losses(self, folder, steps):
        """Those of the records in a folder, which must be of these steps."""
        with open(self.path(folder, "metrics.jsonl"), encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        self.assertEqual([record["step"] for record in records], list(steps))
        return [record["loss"] for record in records]

    def test_a_version_that_is_not_there_is_refused(self):
        self.run_command("cmake", "--install", BUILD, "--prefix", self.path("prefix"))
        os.mkdir(self.path("project"))
        with open(self.path("project", "CMakeLists.txt"), "w", encoding="utf-8") as project:
            project.write("cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES CXX)\n"
                          "find_package(ddprun 7.0 REQUIRED)\n")
        result = subprocess.run(["cmake", "-S", self.path("project"), "-B", self.path("build"), "-G", "Ninja",
                                 f"-DCMAKE_PREFIX_PATH={self.path('prefix')}"], capture_output=True, text=True, check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("7.0", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
