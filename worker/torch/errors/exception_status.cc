#include "worker/torch/errors/exception_status.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <typeinfo>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ddprun/status_error.h"

namespace ddprun::worker {
namespace {

// Marks a status that came from an exception; the value is the stack, possibly empty.
constexpr const char* kStackPayload = "ddprun/worker/stack";

std::string Demangle(const std::type_info& type) {
  int error = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &error), &std::free);
  return name != nullptr ? name.get() : type.name();
}

template <size_t kSize>
bool ContainsAny(absl::string_view text, const std::array<const char*, kSize>& needles) {
  return std::any_of(needles.begin(), needles.end(),
                     [text](const char* needle) { return absl::StrContains(text, needle); });
}

absl::Status MakeStatus(const std::string& type, absl::string_view text, std::string stack) {
  // The exception came from ToException: the type in its text is the one that matters.
  if (absl::StartsWith(text, kPeerErrorPrefix)) return absl::UnavailableError(text);
  const bool peer = IsPeerError(type, text);
  absl::Status status(peer ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal,
                      absl::StrCat(peer ? kPeerErrorPrefix : "", type, ": ",
                                   absl::StripTrailingAsciiWhitespace(text)));
  status.SetPayload(kStackPayload, absl::Cord(std::move(stack)));
  return status;
}

std::string StackOf(const c10::Error& error) {
  return error.backtrace() != nullptr ? error.backtrace()->get() : "";
}

}  // namespace

bool IsPeerError(absl::string_view type, absl::string_view text) {
  if (type == "ddprun::worker::PeerFailure") return true;
  if (type == "gloo::IoException" || type == "gloo::TimeoutException") return true;
  if (type == "c10::DistStoreError" || type == "c10::DistNetworkError") return true;
  // NCCL reports our own mistakes by the same type as a peer's death.
  static constexpr std::array<const char*, 8> kNcclPeerTexts = {
      "remote process exited",        "ncclRemoteError", "communicator was aborted", "NCCL timeout",
      "collective operation timeout",
      "retrieving ncclUniqueId",  // from the store, which ends with the generation
      "Connection refused",           "Broken pipe"};
  if (type == "c10::DistBackendError" && ContainsAny(text, kNcclPeerTexts)) return true;
  // A program's own connections have these texts, too: those of a database, of a file server.
  const bool is_library = absl::StartsWith(type, "c10::") || absl::StartsWith(type, "gloo::") ||
                          absl::StrContains(text, "/gloo/");  // in a wrapper of another type
  if (!is_library) return false;
  static constexpr std::array<const char*, 4> kPeerTexts = {
      "connectFullMesh failed", "Connection closed by peer", "Connection reset by peer",
      "Application timeout caused pair closure"};
  return ContainsAny(text, kPeerTexts);
}

absl::Status StatusFromCurrentException() {
  try {
    throw;
  } catch (const StatusError& error) {
    return error.status();
  } catch (const c10::Error& error) {
    return MakeStatus(Demangle(typeid(error)), error.what_without_backtrace(), StackOf(error));
  } catch (const std::exception& error) {
    return MakeStatus(Demangle(typeid(error)), error.what(), "");
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return MakeStatus(type != nullptr ? Demangle(*type) : "unknown", "not a std::exception", "");
  }
}

std::exception_ptr ToException(const absl::Status& status) {
  return std::make_exception_ptr(c10::Error(std::string(status.message()), /*backtrace=*/nullptr));
}

WorkerError ToWorkerError(const absl::Status& status) {
  const std::optional<absl::Cord> stack = status.GetPayload(kStackPayload).has_value()
                                              ? std::optional(*status.GetPayload(kStackPayload))
                                              : std::nullopt;
  const std::string message(status.message());
  if (stack.has_value()) {
    std::string text = message;
    if (!stack->empty()) absl::StrAppend(&text, "\n", std::string(*stack));
    return {.message = message, .stack = std::move(text)};
  }
  if (absl::StartsWith(message, kPeerErrorPrefix)) return {.message = message, .stack = ""};
  return {.message = absl::StrCat(absl::StatusCodeToString(status.code()), ": ", message),
          .stack = ""};
}

}  // namespace ddprun::worker
