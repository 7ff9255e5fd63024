#ifndef DDPRUN_BASE_YAML_DOCUMENT_H_
#define DDPRUN_BASE_YAML_DOCUMENT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

inline constexpr size_t kYamlDepthMax = 8;
inline constexpr size_t kYamlNodesMax = 4096;

// One value of a YAML document, without the library that has read it.
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  int line = 1;                   // of its first character, or of its key in a map; from 1
  std::string text;               // kScalar
  bool quoted = false;            // kScalar: written in quotes, so 'no' is a word
  std::vector<std::string> keys;  // kMap: the keys of `items`, each once
  std::vector<YamlNode> items;    // kList, kMap

  // The value of a key of a map; null when it is not there.
  const YamlNode* Find(absl::string_view key) const;
};

// Reads a text with one document (YAML 1.2 core as yaml-cpp reads it, JSON included). An empty text
// is a kNull node. Anchors and aliases are refused: no file here needs them, and a few of them can
// expand to a document of any size.
// Errors: INVALID_ARGUMENT "line N: what is wrong". Never throws; any bytes are fine. Threads: any.
absl::StatusOr<YamlNode> ReadYaml(const std::string& text);

// "text" as YAML that reads back as the same text: plain where that is unmistakable, else quoted.
// Requires: UTF-8.
std::string YamlText(absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_BASE_YAML_DOCUMENT_H_
