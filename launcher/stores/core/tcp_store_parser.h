#ifndef DDPRUN_LAUNCHER_STORES_CORE_TCP_STORE_PARSER_H_
#define DDPRUN_LAUNCHER_STORES_CORE_TCP_STORE_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The requests of torch's c10d::TCPStore clients.
enum class TcpStoreVerb : uint8_t {
  kPing,        // number: 32 bits, echoed
  kSet,         // key, value
  kCompareSet,  // key, expected, value
  kGet,         // key
  kAdd,         // key, number
  kCheck,       // keys
  kWait,        // keys
  kCount,
  kDelete,    // key
  kAppend,    // key, value
  kMultiGet,  // keys
  kCancelWait,
  kQueuePush,    // key, value
  kQueuePop,     // key
  kQueueLength,  // key
  kListKeys,
  kBarrier,  // key, number: of clients
};

// One request. Fields that its verb doesn't use are empty.
struct TcpStoreRequest {
  TcpStoreVerb verb = TcpStoreVerb::kPing;
  std::vector<std::string> keys;  // several only for verbs with `keys`
  std::string expected;
  std::string value;
  int64_t number = 0;
};

// The limits of one request.
struct TcpStoreRequestBounds {
  size_t key_bytes = 8192;            // torch's own bound
  size_t value_bytes = 16U << 20;     // torch's own is 8 MiB
  size_t keys = 1U << 17;             // of one request; torch's own bound
  size_t key_list_bytes = 16U << 20;  // all keys of one request
};

// Parses the bytes of one connection, in pieces of any size, into requests.
//
// The first bytes of a connection determine the dialect. Clients of torch 2.2 and newer begin with
// the command VALIDATE and a magic number; older ones have neither, and other numbers for the
// commands. MULTI_SET is returned as one kSet for each of its pairs.
//
// Accepts any bytes: an invalid request is an error, and no memory is allocated for a claimed
// length before the bytes have come. Pure. Threads: one at a time.
class TcpStoreParser {
 public:
  explicit TcpStoreParser(const TcpStoreRequestBounds& bounds) : bounds_(bounds) {}

  // Takes bytes off the front of `input`, up to the end of the next request. nullopt = all were
  // taken, and no request is complete. After an error the connection is of no use.
  // Errors: INVALID_ARGUMENT: not a request that we know; RESOURCE_EXHAUSTED: a bound.
  absl::StatusOr<std::optional<TcpStoreRequest>> Next(absl::string_view* input);

  // The bytes of the incomplete request.
  size_t held_bytes() const { return held_bytes_; }

 private:
  enum class Dialect { kUnknown, kValidated, kOld };
  // "More bytes are needed" is false.
  using Taken = absl::StatusOr<bool>;

  Taken TakeGreeting(absl::string_view* input);
  Taken TakeCommand(absl::string_view* input);
  absl::Status Begin(uint8_t command);
  Taken TakeField(absl::string_view* input);
  Taken TakeKeys(absl::string_view* input);
  Taken TakePair(absl::string_view* input);
  Taken TakeKey(absl::string_view* input);
  Taken TakeText(absl::string_view* input, size_t bytes_max, const char* what, std::string* text);
  Taken TakeCount(absl::string_view* input);
  // A little-endian number of `bytes` bytes, once they are there.
  std::optional<uint64_t> TakeNumber(absl::string_view* input, size_t bytes);
  TcpStoreRequest Emit();

  TcpStoreRequestBounds bounds_;
  Dialect dialect_ = Dialect::kUnknown;
  bool in_request_ = false;
  const char* fields_ = "";  // that are still to come; see Shape in tcp_store_parser.cc
  TcpStoreRequest request_;
  std::string key_;                 // that is coming
  std::string scratch_;             // a number that has come in part
  std::optional<uint64_t> length_;  // of the text that is coming
  std::optional<uint64_t> count_;   // of keys or pairs still to come
  size_t held_bytes_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_CORE_TCP_STORE_PARSER_H_
