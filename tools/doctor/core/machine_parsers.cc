#include "tools/doctor/core/machine_parsers.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

// No version or name that we show is longer.
constexpr size_t kShownBytes = 200;

// A text of the machine as one line of a report.
std::string OneShownLine(absl::string_view text) {
  return Shown(absl::StripAsciiWhitespace(text), kShownBytes);
}

std::vector<absl::string_view> WordsOf(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

// The value of "name: value kB" in bytes.
std::optional<uint64_t> KilobytesOf(absl::string_view line, absl::string_view name) {
  uint64_t number = 0;
  if (!absl::ConsumePrefix(&line, name)) return std::nullopt;
  const std::vector<absl::string_view> words = WordsOf(line);
  if (words.empty() || !absl::SimpleAtoi(words.front(), &number)) return std::nullopt;
  return number > UINT64_MAX / 1024 ? std::nullopt : std::optional<uint64_t>(number * 1024);
}

// False when it is neither a number nor "unlimited".
bool ReadLimit(absl::string_view word, std::optional<uint64_t>* limit) {
  uint64_t number = 0;
  if (word == "unlimited") return true;
  if (!absl::SimpleAtoi(word, &number)) return false;
  *limit = number;
  return true;
}

bool ReadLimitLine(absl::string_view text, absl::string_view name, LimitPair* limit) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    const std::vector<absl::string_view> words = WordsOf(line);
    return words.size() >= 2 && ReadLimit(words[0], &limit->soft) &&
           ReadLimit(words[1], &limit->hard);
  }
  return false;
}

}  // namespace

MemoryFacts ParseMemInfo(absl::string_view text) {
  MemoryFacts memory;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (const auto bytes = KilobytesOf(line, "MemTotal:")) memory.total = *bytes;
    if (const auto bytes = KilobytesOf(line, "MemAvailable:")) memory.available = *bytes;
    if (const auto bytes = KilobytesOf(line, "SwapTotal:")) memory.swap = *bytes;
  }
  return memory;
}

std::optional<MachineLimits> ParseLimits(absl::string_view text) {
  MachineLimits limits;
  const bool whole = ReadLimitLine(text, "Max open files ", &limits.open_files) &&
                     ReadLimitLine(text, "Max locked memory ", &limits.locked_memory) &&
                     ReadLimitLine(text, "Max processes ", &limits.processes) &&
                     ReadLimitLine(text, "Max core file size ", &limits.core_size);
  if (!whole) return std::nullopt;
  return limits;
}

std::string ParseSystemName(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "PRETTY_NAME=")) continue;
    line = absl::StripAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, "\"")) absl::ConsumeSuffix(&line, "\"");
    return OneShownLine(line);
  }
  return "";
}

std::string ParseDriverVersion(absl::string_view text) {
  const std::vector<absl::string_view> words = WordsOf(text.substr(0, text.find('\n')));
  const auto version = std::find_if(words.begin(), words.end(), [](absl::string_view word) {
    return absl::ascii_isdigit(static_cast<unsigned char>(word.front())) &&
           absl::StrContains(word, '.');
  });
  return version == words.end() ? "" : OneShownLine(*version);
}

std::string ParseCpuModel(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "model name")) continue;
    const size_t colon = line.find(':');
    return colon == absl::string_view::npos ? "" : OneShownLine(line.substr(colon + 1));
  }
  return "";
}

std::optional<uint64_t> ParseMemoryLimit(absl::string_view text) {
  // v1 writes no limit as the largest number of pages.
  constexpr uint64_t kNoLimit = uint64_t{1} << 62;
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &bytes)) return std::nullopt;
  return bytes >= kNoLimit ? std::nullopt : std::optional<uint64_t>(bytes);
}

// torch's CUDA is in a file of its package, which is read and not run: importing torch takes
// seconds, and is what fails on a machine that is broken.
const char kPythonQuestion[] = R"(
import importlib.metadata as m, importlib.util as u, os, platform, re, sys
def show(name, value):
    if value:
        print(name, value)
def version(*packages):
    for package in packages:
        try:
            return m.version(package)
        except m.PackageNotFoundError:
            pass
show('version', platform.python_version())
show('torch', version('torch'))
show('deepspeed', version('deepspeed'))
show('nccl', version('nvidia-nccl-cu13', 'nvidia-nccl-cu12', 'nvidia-nccl-cu11'))
spec = u.find_spec('torch')
for folder in (spec.submodule_search_locations or []) if spec else []:
    path = os.path.join(folder, 'version.py')
    if os.path.exists(path):
        with open(path, encoding='utf-8') as file:
            found = re.search(r'''^cuda\b[^=]*=\s*['"]([\d.]+)['"]''', file.read(), re.M)
        show('torch_cuda', found and found[1])
)";

PythonFacts ParsePythonAnswer(absl::string_view text) {
  PythonFacts python;
  const std::map<absl::string_view, std::string*> fields = {{"version", &python.version},
                                                            {"torch", &python.torch},
                                                            {"torch_cuda", &python.torch_cuda},
                                                            {"nccl", &python.nccl},
                                                            {"deepspeed", &python.deepspeed}};
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const auto field = fields.find(words.first);
    if (field != fields.end()) *field->second = OneShownLine(words.second);
  }
  return python;
}

std::string ParsePortState(absl::string_view text) {
  const size_t colon = text.find(':');
  return OneShownLine(colon == absl::string_view::npos ? text : text.substr(colon + 1));
}

}  // namespace ddprun::launcher
