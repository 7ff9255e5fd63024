#!/usr/bin/env python3
"""ddprun as it is installed: the tutorial's project finds it, builds its program and runs it under the installed ddprun."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from installed import BUILD, compiler_cache, run_command  # noqa: E402

TUTORIAL = os.path.join(ROOT, "docs", "tutorials", "cpp.md")
TEMPLATE = os.path.join(ROOT, "examples", "template")

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

# A program that uses only the data component; the tutorial's program uses nothing of that library.
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

# A project with an Abseil of its own; its target comes before or after find_package.
OWN_ABSEIL = """
cmake_minimum_required(VERSION 3.25)
project(own_abseil LANGUAGES CXX)
if(TARGET_OF_ITS_OWN)
  add_library(absl_status INTERFACE)
  add_library(absl::status ALIAS absl_status)
endif()
find_package(ddprun REQUIRED)
add_library(with_either OBJECT main.cc)
target_link_libraries(with_either PRIVATE ddprun::worker)
target_include_directories(with_either BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/own)
"""


def torch_version():
    """Of the LibTorch that the build has."""
    with open(os.path.join(BUILD, "ddprunConfig.cmake"), encoding="utf-8") as source:
        return re.search(r"set\(ddprun_TORCH_VERSION (.*)\)", source.read()).group(1)


class InstallTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-install-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run_command(self, *command, **options):
        return run_command(*command, cwd=self.folder, **options)

    def environment(self):
        return {**os.environ, "TREE": self.path("tree"), "PREFIX": self.path("a prefix"), **compiler_cache(self.folder)}

    def follow(self, page):
        """What a page's commands print, one after the other; its lines must be among what they print."""
        with open(page, encoding="utf-8") as source:
            blocks = re.findall(r"^```(\w+)\n(.*?)^```$", source.read(), re.MULTILINE | re.DOTALL)
        outputs = []
        environment = self.environment()
        for language, text in blocks:
            if language == "console":
                for command, lines in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                    outputs.append(self.run_command("bash", "-c", command, env=environment))
                    if "--install" in command:
                        # Users move the package, and have another HOME.
                        os.rename(self.path("a prefix"), self.path("the prefix"))
                        environment |= {"PREFIX": self.path("the prefix"), "HOME": self.path("home")}
                    self.assertLessEqual(set(lines.splitlines()), set(outputs[-1].splitlines()), outputs[-1])
                continue
            name = re.match(r"(?:#|//) file: (\S+)\n", text).group(1)
            with open(self.path(name), "w", encoding="utf-8") as sink:
                sink.write(text + (ALL_HEADERS + DATA + WRONG if name == "CMakeLists.txt" else ""))
        return outputs

    def test_the_tutorials_project_builds_and_runs(self):
        os.makedirs(self.path("tree", "build"))
        os.symlink(BUILD, self.path("tree", "build", "release"))
        _, built, ran, resumed, _, by_hand = self.follow(TUTORIAL)
        self.assertIn(f"LibTorch {torch_version()}", built)
        self.assertIn("step 100/100 (100%)", ran)
        self.assertIn("step 200/200 (100%)", resumed)
        losses = self.losses("run", range(10, 201, 10))
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertIn("step 20/20 (100%)", by_hand)
        losses = self.losses("run_by_hand", range(1, 21))
        self.assertLess(losses[-1], losses[0] / 2)
        self.check_traceback()
        self.check_plugin()

    def run_wrong(self, *options, environment=None):
        """What a run of the program by hand prints that can't succeed."""
        result = subprocess.run([self.path("the prefix", "bin", "ddprun"), "--standalone", "--no_python", *options],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=self.folder,
                                env={**os.environ, **(environment or {})})
        self.assertEqual(1, result.returncode, result.stdout)
        return result.stdout

    def check_traceback(self):
        """Frames of the program have their functions' names in LibTorch's tracebacks."""
        self.assertRegex(self.run_wrong("build/wrong"), r"frame #\d+: InAFunctionOfMine\(int\) \+ 0x")

    def check_plugin(self):
        """What is loaded on machines with GPUs is found, wherever it was installed; CUDA's own libraries may not be there."""
        if os.path.exists(self.path("the prefix", "lib", "ddprun", "libddprun_nccl.so")):
            text = self.run_wrong("build/wrong", environment={"WRONG_BACKEND": "nccl"})
            self.assertNotIn("libddprun_nccl.so: cannot open shared object file", text)

    def losses(self, folder, steps):
        """Those of the records in a folder, which must be of these steps."""
        with open(self.path(folder, "metrics.jsonl"), encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        self.assertEqual([record["step"] for record in records], list(steps))
        return [record["loss"] for record in records]

    def test_the_template_builds_and_runs_as_its_page_says(self):
        self.run_command("cmake", "--install", BUILD, "--prefix", self.path("a prefix"))
        shutil.copytree(TEMPLATE, self.folder, dirs_exist_ok=True)
        _, built, ran = self.follow(self.path("README.md"))
        self.assertNotIn("warning", built)
        self.assertRegex(ran, r"(?m)^final accuracy 0\.9")

    def install_for(self, project):
        """An installation beside a project whose CMakeLists.txt has this text."""
        self.run_command("cmake", "--install", BUILD, "--prefix", self.path("prefix"))
        self.write("project/CMakeLists.txt", project)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as sink:
            sink.write(text)

    def configure(self, *options):
        return subprocess.run(["cmake", "-S", self.path("project"), "-B", self.path("build"), "-G", "Ninja",
                               f"-DCMAKE_PREFIX_PATH={self.path('prefix')}", *options],
                              capture_output=True, text=True, check=False)

    def test_a_version_that_is_not_there_is_refused(self):
        self.install_for("cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES CXX)\n"
                         "find_package(ddprun 7.0 REQUIRED)\n")
        result = self.configure()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("7.0", result.stderr)

    def test_a_project_with_another_libtorch_is_told_so(self):
        self.install_for("cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES CXX)\nfind_package(ddprun REQUIRED)\n"
                         'message(STATUS "ddprun was built with LibTorch ${ddprun_TORCH_VERSION}")\n')
        self.assertIn(f"ddprun was built with LibTorch {torch_version()}\n", self.configure().stdout)
        self.write("torch/include/torch/headeronly/version.h", '#define TORCH_VERSION \\\n  "2.12.1"\n')
        self.write("torch/lib/libtorch_cpu.so", "")
        result = self.configure(f"-DDDPRUN_TORCH_ROOT={self.path('torch')}")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f"is version 2.12.1, needed is {torch_version()}:", " ".join(result.stderr.split()))

    def test_a_project_with_another_abseil_is_told_so(self):
        self.install_for(OWN_ABSEIL)
        self.write("project/main.cc", '#include "base/abseil_release.h"\n')
        result = self.configure("-DTARGET_OF_ITS_OWN=ON")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("this project builds another one", " ".join(result.stderr.split()))
        shutil.rmtree(self.path("build"))
        self.assertEqual("", self.configure().stderr)
        self.run_command("cmake", "--build", self.path("build"))
        self.write("project/own/absl/base/config.h", "#define ABSL_LTS_RELEASE_VERSION 20300401\n")
        self.write("project/main.cc", '#include "base/abseil_release.h"  // compiled anew\n')
        result = subprocess.run(["cmake", "--build", self.path("build")], capture_output=True, text=True, check=False)
        self.assertIn("another Abseil than the one that ddprun was built with", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
