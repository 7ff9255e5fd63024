#include "launcher/os/python_module.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {
namespace {

// "torch" of "ModuleNotFoundError: No module named 'torch.nn'"; "" = there is no such line.
std::string MissingModule(absl::string_view words) {
  constexpr absl::string_view kSign = "ModuleNotFoundError: No module named '";
  const size_t at = words.rfind(kSign);
  if (at == absl::string_view::npos) return "";
  words.remove_prefix(at + kSign.size());
  const auto end = std::find_if_not(words.begin(), words.end(),
                                    [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
  return {words.begin(), end};
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// In the folders where pip, conda and Debian put packages.
bool HasModule(const std::string& prefix, const std::string& module) {
  std::error_code error;
  for (const char* lib : {"/lib", "/local/lib"}) {
    for (const auto& entry : std::filesystem::directory_iterator(prefix + lib, error)) {
      if (!absl::StartsWith(entry.path().filename().string(), "python3")) continue;
      for (const char* packages : {"/site-packages/", "/dist-packages/"}) {
        const std::string path = absl::StrCat(entry.path().string(), packages, module);
        if (Exists(path) || Exists(path + ".py")) return true;
      }
    }
  }
  return false;
}

}  // namespace

std::string MissingModuleFact(
    absl::string_view words, const std::string& python,
    const std::function<std::optional<std::string>(const std::string& name)>& environment) {
  const std::string module = MissingModule(words);
  if (module.empty()) return "";
  std::vector<std::pair<std::string, std::string>> others;  // prefix, where it is from
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = environment(variable).value_or("");
    if (!prefix.empty()) others.emplace_back(prefix, absl::StrCat("$", variable));
  }
  const std::string path = environment("PATH").value_or("");
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    if (!absl::EndsWith(folder, "/bin") || !Exists(absl::StrCat(folder, "/python3"))) continue;
    others.emplace_back(folder.substr(0, folder.size() - 4), "PATH");
    break;
  }
  std::string fact = absl::StrCat("module: ", python, " ran the script, and has no ", module);
  for (const auto& [prefix, from] : others) {
    const std::string other = prefix + "/bin/python3";
    if (other == python || !Exists(other) || !HasModule(prefix, module)) continue;
    return absl::StrCat(fact, "; ", other, " (", from, ") has it: export PYTHON_EXEC=", other,
                        " runs it with that one");
  }
  return fact;
}

}  // namespace ddprun::launcher
