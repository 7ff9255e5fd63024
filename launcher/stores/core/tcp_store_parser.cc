#include "launcher/stores/core/tcp_store_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

// The fields of a request, one letter each: K key, V value, E expected value, N number of 64 bits,
// P number of 32 bits, L count and keys, M count and pairs of key and value.
struct Shape {
  TcpStoreVerb verb = TcpStoreVerb::kPing;
  const char* fields = "";
};

constexpr uint32_t kMagic = 0x3C85F7CE;
constexpr uint8_t kValidate = 0;

// By the number of the command less one; 0 is VALIDATE. Each version of torch has added its
// commands at the end, so one table serves all.
constexpr std::array<Shape, 18> kShapes = {{
    {TcpStoreVerb::kSet, "KV"},
    {TcpStoreVerb::kCompareSet, "KEV"},
    {TcpStoreVerb::kGet, "K"},
    {TcpStoreVerb::kAdd, "KN"},
    {TcpStoreVerb::kCheck, "L"},
    {TcpStoreVerb::kWait, "L"},
    {TcpStoreVerb::kCount, ""},
    {TcpStoreVerb::kDelete, "K"},
    {TcpStoreVerb::kAppend, "KV"},
    {TcpStoreVerb::kMultiGet, "L"},
    {TcpStoreVerb::kSet, "M"},
    {TcpStoreVerb::kCancelWait, ""},
    {TcpStoreVerb::kPing, "P"},
    {TcpStoreVerb::kQueuePush, "KV"},
    {TcpStoreVerb::kQueuePop, "K"},
    {TcpStoreVerb::kQueueLength, "K"},
    {TcpStoreVerb::kListKeys, ""},
    {TcpStoreVerb::kBarrier, "KN"},
}};

// Before VALIDATE. Up to torch 2.0, 7 was WATCH_KEY, which Python never offered, and 8 what 7 is in
// torch 2.1: delete. What can mean two things is refused.
constexpr uint8_t kDeleteOrAppend = 8;
constexpr std::array<Shape, 12> kOldShapes = {{
    {TcpStoreVerb::kSet, "KV"},
    {TcpStoreVerb::kCompareSet, "KEV"},
    {TcpStoreVerb::kGet, "K"},
    {TcpStoreVerb::kAdd, "KN"},
    {TcpStoreVerb::kCheck, "L"},
    {TcpStoreVerb::kWait, "L"},
    {TcpStoreVerb::kCount, ""},
    {TcpStoreVerb::kDelete, "K"},
    {},
    {TcpStoreVerb::kMultiGet, "L"},
    {TcpStoreVerb::kSet, "M"},
    {TcpStoreVerb::kCancelWait, ""},
}};

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i > 0; --i)
    number = number << 8 | static_cast<uint8_t>(bytes[i - 1]);
  return number;
}

}  // namespace

absl::StatusOr<std::optional<TcpStoreRequest>> TcpStoreParser::Next(absl::string_view* input) {
  if (dialect_ == Dialect::kUnknown) {
    DDPRUN_ASSIGN_OR_RETURN(const bool greeted, TakeGreeting(input));
    if (!greeted) return std::nullopt;
  }
  while (true) {
    if (!in_request_) {
      DDPRUN_ASSIGN_OR_RETURN(const bool begun, TakeCommand(input));
      if (!begun) return std::nullopt;
    }
    if (*fields_ == 'M') {
      DDPRUN_ASSIGN_OR_RETURN(const bool pair, TakePair(input));
      if (pair) return Emit();
      if (in_request_) return std::nullopt;
      continue;  // the last pair was there
    }
    while (*fields_ != '\0') {
      DDPRUN_ASSIGN_OR_RETURN(const bool taken, TakeField(input));
      if (!taken) return std::nullopt;
      ++fields_;
    }
    in_request_ = false;
    return Emit();
  }
}

// The first five bytes: VALIDATE and the magic number, or an old client's first request. As the
// command and the length of a key the former would be an old SET with a key of a gigabyte.
TcpStoreParser::Taken TcpStoreParser::TakeGreeting(absl::string_view* input) {
  if (scratch_.empty() && !input->empty() && static_cast<uint8_t>(input->front()) != kValidate) {
    dialect_ = Dialect::kOld;
    return true;
  }
  const size_t wanted = std::min(input->size(), 1 + sizeof(kMagic) - scratch_.size());
  absl::StrAppend(&scratch_, input->substr(0, wanted));
  input->remove_prefix(wanted);
  if (scratch_.size() < 1 + sizeof(kMagic)) return false;
  scratch_.erase(0, 1);
  if (LittleEndian(scratch_) == kMagic) {
    dialect_ = Dialect::kValidated;
    scratch_.clear();
    return true;
  }
  dialect_ = Dialect::kOld;
  DDPRUN_RETURN_IF_ERROR(Begin(0));  // scratch_ is the first half of its key's length
  return true;
}

TcpStoreParser::Taken TcpStoreParser::TakeCommand(absl::string_view* input) {
  if (input->empty()) return false;
  const auto command = static_cast<uint8_t>(input->front());
  input->remove_prefix(1);
  DDPRUN_RETURN_IF_ERROR(Begin(command));
  return true;
}

absl::Status TcpStoreParser::Begin(uint8_t command) {
  const bool old = dialect_ == Dialect::kOld;
  if (old && command == kDeleteOrAppend) {
    return absl::InvalidArgumentError(
        "command 8 deletes a key in torch 2.0 and appends to one in torch 2.1, and the client "
        "doesn't say which it is; set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, so that worker rank 0 "
        "hosts the store, or use torch 2.2 or newer");
  }
  const size_t index = old ? command : command - size_t{1};
  const bool known =
      old ? index < kOldShapes.size() : command != kValidate && index < kShapes.size();
  if (!known) {
    return absl::InvalidArgumentError(absl::StrCat(
        "command ", command, " of TCPStore's ", old ? "protocol before torch 2.2" : "protocol",
        " is not known here; is it a client of a newer torch, or no TCPStore at all?"));
  }
  const Shape& shape = old ? kOldShapes[index] : kShapes[index];
  request_.verb = shape.verb;
  fields_ = shape.fields;
  in_request_ = true;
  return absl::OkStatus();
}

TcpStoreParser::Taken TcpStoreParser::TakeField(absl::string_view* input) {
  switch (*fields_) {
    case 'K':
      return TakeKey(input);
    case 'L':
      return TakeKeys(input);
    case 'V':
      return TakeText(input, bounds_.value_bytes, "value", &request_.value);
    case 'E':
      return TakeText(input, bounds_.value_bytes, "value", &request_.expected);
    default: {
      const std::optional<uint64_t> number =
          TakeNumber(input, *fields_ == 'P' ? sizeof(uint32_t) : sizeof(uint64_t));
      if (number.has_value()) request_.number = static_cast<int64_t>(*number);
      return number.has_value();
    }
  }
}

TcpStoreParser::Taken TcpStoreParser::TakeKeys(absl::string_view* input) {
  DDPRUN_ASSIGN_OR_RETURN(const bool counted, TakeCount(input));
  if (!counted) return false;
  while (*count_ > 0) {
    DDPRUN_ASSIGN_OR_RETURN(const bool taken, TakeKey(input));
    if (!taken) return false;
    if (held_bytes_ > bounds_.key_list_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("the keys of one request have more than ",
                                                       bounds_.key_list_bytes,
                                                       " bytes; use several requests"));
    }
    --*count_;
  }
  count_.reset();
  return true;
}

// True: a pair is complete. False: it is not yet, or (in_request_ is off) there is none left.
TcpStoreParser::Taken TcpStoreParser::TakePair(absl::string_view* input) {
  DDPRUN_ASSIGN_OR_RETURN(const bool counted, TakeCount(input));
  if (!counted) return false;
  if (*count_ == 0) {
    count_.reset();
    in_request_ = false;
    fields_ = "";
    return false;
  }
  if (request_.keys.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(const bool key, TakeKey(input));
    if (!key) return false;
  }
  DDPRUN_ASSIGN_OR_RETURN(const bool value,
                          TakeText(input, bounds_.value_bytes, "value", &request_.value));
  if (value) --*count_;
  return value;
}

TcpStoreParser::Taken TcpStoreParser::TakeKey(absl::string_view* input) {
  DDPRUN_ASSIGN_OR_RETURN(const bool taken, TakeText(input, bounds_.key_bytes, "key", &key_));
  if (!taken) return false;
  request_.keys.push_back(std::exchange(key_, std::string()));
  return true;
}

TcpStoreParser::Taken TcpStoreParser::TakeText(absl::string_view* input, size_t bytes_max,
                                               const char* what, std::string* text) {
  if (!length_.has_value()) {
    length_ = TakeNumber(input, sizeof(uint64_t));
    if (!length_.has_value()) return false;
    if (*length_ > bytes_max) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a ", what, " of ", *length_, " bytes",
          request_.keys.empty() ? "" : absl::StrCat(" for key ", Quoted(request_.keys[0])),
          ", at most ", bytes_max, " are allowed; split it"));
    }
  }
  const size_t here = std::min<size_t>(input->size(), *length_ - text->size());
  absl::StrAppend(text, input->substr(0, here));
  input->remove_prefix(here);
  held_bytes_ += here;
  if (text->size() < *length_) return false;
  length_.reset();
  return true;
}

TcpStoreParser::Taken TcpStoreParser::TakeCount(absl::string_view* input) {
  if (count_.has_value()) return true;
  const std::optional<uint64_t> count = TakeNumber(input, sizeof(uint64_t));
  if (!count.has_value()) return false;
  if (*count > bounds_.keys) {
    return absl::ResourceExhaustedError(absl::StrCat(*count, " keys in one request, at most ",
                                                     bounds_.keys,
                                                     " are allowed; use several requests"));
  }
  count_ = count;
  return true;
}

std::optional<uint64_t> TcpStoreParser::TakeNumber(absl::string_view* input, size_t bytes) {
  if (scratch_.empty() && input->size() >= bytes) {
    const uint64_t number = LittleEndian(input->substr(0, bytes));
    input->remove_prefix(bytes);
    return number;
  }
  const size_t here = std::min(input->size(), bytes - scratch_.size());
  absl::StrAppend(&scratch_, input->substr(0, here));
  input->remove_prefix(here);
  if (scratch_.size() < bytes) return std::nullopt;
  const uint64_t number = LittleEndian(scratch_);
  scratch_.clear();
  return number;
}

TcpStoreRequest TcpStoreParser::Emit() {
  held_bytes_ = 0;
  const TcpStoreVerb verb = request_.verb;  // the next pair's too
  TcpStoreRequest request = std::exchange(request_, TcpStoreRequest());
  request_.verb = verb;
  return request;
}

}  // namespace ddprun::launcher
