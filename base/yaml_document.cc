#include "base/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr size_t kReasonBytesShown = 200;

absl::Status At(int line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
}

// Builds the tree from yaml-cpp's events. The first mistake stays; what comes after it is ignored.
class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add({.line = mark.line + 1}, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Fail(mark.line + 1, "aliases (*name) are not read; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool quoted = tag == "!";
    // YAML 1.2, 10.3.2: what a plain null looks like.
    const bool null = !quoted && (value.empty() || value == "~" || value == "null" ||
                                  value == "Null" || value == "NULL");
    YamlNode node{.line = mark.line + 1, .text = value, .quoted = quoted};
    node.kind = null ? YamlNode::Kind::kNull : YamlNode::Kind::kScalar;
    Add(std::move(node), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open({.kind = YamlNode::Kind::kList, .line = mark.line + 1}, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open({.kind = YamlNode::Kind::kMap, .line = mark.line + 1}, anchor);
  }
  void OnMapEnd() override { Close(); }

  absl::StatusOr<YamlNode> Finish() {
    if (!error_.ok()) return error_;
    return std::move(root_).value_or(YamlNode());
  }

 private:
  struct Level {
    YamlNode node;
    std::optional<std::pair<std::string, int>> key;  // of a map: read, and its value is to come
  };

  void Fail(int line, absl::string_view what) { error_.Update(At(line, what)); }

  bool Count(int line, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) Fail(line, "anchors (&name) are not read; write the value out");
    if (++count_ > kYamlNodesMax) {
      Fail(line, absl::StrCat("there are more than ", kYamlNodesMax, " values"));
    }
    return error_.ok();
  }

  void Open(YamlNode node, YAML::anchor_t anchor) {
    if (!Count(node.line, anchor)) return;
    if (levels_.size() >= kYamlDepthMax) {
      return Fail(node.line, absl::StrCat("is nested deeper than ", kYamlDepthMax));
    }
    const bool is_key = !levels_.empty() && levels_.back().node.kind == YamlNode::Kind::kMap &&
                        !levels_.back().key.has_value();
    if (is_key) return Fail(node.line, "a list or mapping can't be a key");
    levels_.push_back({.node = std::move(node), .key = std::nullopt});
  }

  void Close() {
    if (!error_.ok() || levels_.empty()) return;
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    Place(std::move(node));
  }

  void Add(YamlNode node, YAML::anchor_t anchor) {
    if (Count(node.line, anchor)) Place(std::move(node));
  }

  void Place(YamlNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == YamlNode::Kind::kMap) {
      if (!level.key.has_value()) return PlaceKey(node, &level);
      level.node.keys.push_back(level.key->first);
      node.line = level.key->second;
      level.key.reset();
    }
    level.node.items.push_back(std::move(node));
  }

  void PlaceKey(const YamlNode& node, Level* level) {
    if (node.kind != YamlNode::Kind::kScalar) return Fail(node.line, "a key has no name");
    if (level->node.Find(node.text) != nullptr) {
      return Fail(node.line, absl::StrCat("the key ", Quoted(node.text), " is there twice"));
    }
    level->key = {node.text, node.line};
  }

  std::vector<Level> levels_;
  std::optional<YamlNode> root_;
  size_t count_ = 0;
  absl::Status error_;
};

bool IsPlain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
         c == '/';
}

}  // namespace

const YamlNode* YamlNode::Find(absl::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &items[static_cast<size_t>(found - keys.begin())];
}

absl::StatusOr<YamlNode> ReadYaml(const std::string& text) {
  if (!IsUtf8(text)) return absl::InvalidArgumentError("the file is not UTF-8 text");
  TreeBuilder builder;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    TreeBuilder rest;
    if (parser.HandleNextDocument(rest)) {
      return absl::InvalidArgumentError("the file holds more than one document (---); keep one");
    }
  } catch (const YAML::Exception& error) {
    return At(std::max(error.mark.line, 0) + 1, Shown(error.msg, kReasonBytesShown));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("can't be read: ", Shown(error.what(), kReasonBytesShown)));
  }
  return builder.Finish();
}

std::string YamlText(absl::string_view text) {
  // Numbers and words alone; other words that mean something to YAML 1.1 are no option's value.
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), IsPlain) &&
                     absl::ascii_isalnum(static_cast<unsigned char>(text.front())) &&
                     text != "null" && text != "Null" && text != "NULL";
  if (plain) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&quoted, "\\x%02x", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace ddprun
