#include "rendezvous/wire/field_checker.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/progress_page.h"
#include "base/text.h"
#include "rendezvous/core/verdict.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr absl::string_view kEllipsis = "\xE2\x80\xA6";     // U+2026

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const absl::string_view character = length == 0 ? kReplacement : text.substr(0, length);
    out.append(character.data(), character.size());
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string CutText(absl::string_view text, size_t bytes_max) {
  DDPRUN_CHECK(bytes_max >= kEllipsis.size(), "no room for an ellipsis");
  // Replacing bytes never shortens a text, so bytes behind the bound can't move into it; three more
  // bytes keep its last character whole.
  std::string out = ValidUtf8(text.substr(0, bytes_max + 3));
  if (text.size() <= bytes_max && out.size() <= bytes_max) return out;
  out.resize(CutLength(out, bytes_max - kEllipsis.size()));
  out.append(kEllipsis.data(), kEllipsis.size());
  return out;
}

std::string CutTextFront(absl::string_view text, size_t bytes_max) {
  DDPRUN_CHECK(bytes_max >= kEllipsis.size(), "no room for an ellipsis");
  std::string valid = ValidUtf8(text);
  if (valid.size() <= bytes_max) return valid;
  size_t begin = valid.size() - (bytes_max - kEllipsis.size());
  while (begin < valid.size() && ContinuesCharacter(valid[begin])) ++begin;
  return absl::StrCat(kEllipsis, valid.substr(begin));
}

namespace {

constexpr size_t kQuotedBytesMax = 40;

// A value for an error message: escaped, and short.
std::string Quoted(absl::string_view value) {
  return absl::StrCat("'", absl::CHexEscape(value.substr(0, kQuotedBytesMax)),
                      value.size() > kQuotedBytesMax ? "…'" : "'");
}

}  // namespace

void FieldChecker::Refuse(absl::StatusCode code, absl::string_view field, absl::string_view wrong) {
  if (status_.ok()) status_ = absl::Status(code, absl::StrCat(field, ": ", wrong));
}

void FieldChecker::Require(bool ok, absl::string_view field, absl::string_view wrong) {
  if (!ok) Refuse(absl::StatusCode::kInvalidArgument, field, wrong);
}

void FieldChecker::Present(absl::string_view field, bool has) { Require(has, field, "is missing"); }

std::string FieldChecker::Name(absl::string_view field, const std::string& value) {
  Require(!value.empty(), field, "is empty");
  return OptionalName(field, value);
}

std::string FieldChecker::OptionalName(absl::string_view field, const std::string& value) {
  if (value.size() > kNameBytesMax) {
    Refuse(absl::StatusCode::kResourceExhausted, field,
           absl::StrCat("has ", value.size(), " bytes, at most ", kNameBytesMax, " are allowed"));
  }
  const bool clean = std::none_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  Require(clean, field, absl::StrCat(Quoted(value), " holds a control character"));
  return value;
}

std::string FieldChecker::Text(absl::string_view field, const std::string& value,
                               size_t bytes_max) {
  if (value.size() > bytes_max) {
    Refuse(absl::StatusCode::kResourceExhausted, field,
           absl::StrCat("has ", value.size(), " bytes, at most ", bytes_max, " are allowed"));
  }
  return value;
}

uint32_t FieldChecker::Number(absl::string_view field, uint32_t value, uint32_t least,
                              uint32_t most) {
  if (value < least || value > most) {
    Refuse(absl::StatusCode::kInvalidArgument, field,
           absl::StrCat(value, " is not within ", least, " to ", most));
  }
  return value;
}

uint64_t FieldChecker::NonZero(absl::string_view field, uint64_t value) {
  Require(value != 0, field, "is 0");
  return value;
}

uint64_t FieldChecker::Step(absl::string_view field, uint64_t step) {
  Require(step <= kProgressStepMax, field, absl::StrCat(step, " is not below 2^56"));
  return step;
}

uint32_t FieldChecker::ProcessId(absl::string_view field, uint32_t value) {
  return Number(field, value, 0, std::numeric_limits<int32_t>::max());
}

uint32_t FieldChecker::Port(absl::string_view field, uint32_t value) {
  return Number(field, value, 0, std::numeric_limits<uint16_t>::max());
}

absl::Duration FieldChecker::Milliseconds(absl::string_view field, uint32_t ms,
                                          absl::Duration default_value, absl::Duration least) {
  if (ms == 0) return default_value;
  const absl::Duration value = absl::Milliseconds(ms);
  if (value < least || value > kTimeoutMax) {
    Refuse(absl::StatusCode::kInvalidArgument, field,
           absl::StrCat(ms, " ms is not within ", absl::FormatDuration(least), " to ",
                        absl::FormatDuration(kTimeoutMax)));
  }
  return value;
}

absl::Duration FieldChecker::Microseconds(absl::string_view field, uint64_t us) {
  Require(us <= kTimeMaxUs, field, absl::StrCat(us, " is above 2^56"));
  return absl::Microseconds(std::min(us, kTimeMaxUs));
}

absl::Duration FieldChecker::Nanoseconds(absl::string_view field, int64_t ns) {
  Require(ns >= 0 && ns <= kAgeMaxNs, field, absl::StrCat(ns, " ns is not within 0 to 2^61"));
  return absl::Nanoseconds(std::clamp<int64_t>(ns, 0, kAgeMaxNs));
}

std::string FieldChecker::Rule(absl::string_view field, const std::string& name) {
  if (RuleOf(name).has_value()) return name;
  Require(false, field, absl::StrCat(ddprun::Quoted(name), " is no rule of this release"));
  return "";
}

void FieldChecker::Count(absl::string_view field, int count, size_t most) {
  if (static_cast<size_t>(count) > most) {
    Refuse(absl::StatusCode::kResourceExhausted, field,
           absl::StrCat("has ", count, " entries, at most ", most, " are allowed"));
  }
}

}  // namespace ddprun::rendezvous
