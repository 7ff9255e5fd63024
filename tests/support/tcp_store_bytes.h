#ifndef DDPRUN_TESTS_SUPPORT_TCP_STORE_BYTES_H_
#define DDPRUN_TESTS_SUPPORT_TCP_STORE_BYTES_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// What clients of torch's TCPStore send and its servers answer, for tests. Numbers are
// little-endian. Threads: any.
namespace ddprun::launcher::tcp_store_bytes {

inline std::string Number(uint64_t number, int bytes = 8) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}
inline std::string Text(absl::string_view text) { return absl::StrCat(Number(text.size()), text); }
inline std::string Texts(std::initializer_list<absl::string_view> texts) {
  std::string all = Number(texts.size());
  for (const absl::string_view text : texts) absl::StrAppend(&all, Text(text));
  return all;
}
inline std::string Command(int number) { return std::string(1, static_cast<char>(number)); }

inline std::string Validate() { return Command(0) + Number(0x3C85F7CE, 4); }
inline std::string Set(absl::string_view key, absl::string_view value) {
  return Command(1) + Text(key) + Text(value);
}
inline std::string CompareSet(absl::string_view key, absl::string_view expected,
                              absl::string_view desired) {
  return Command(2) + Text(key) + Text(expected) + Text(desired);
}
inline std::string Get(absl::string_view key) { return Command(3) + Text(key); }
inline std::string Add(absl::string_view key, int64_t amount) {
  return Command(4) + Text(key) + Number(static_cast<uint64_t>(amount));
}
inline std::string Check(std::initializer_list<absl::string_view> keys) {
  return Command(5) + Texts(keys);
}
inline std::string Wait(std::initializer_list<absl::string_view> keys) {
  return Command(6) + Texts(keys);
}
inline std::string Count() { return Command(7); }
inline std::string Delete(absl::string_view key) { return Command(8) + Text(key); }
inline std::string Append(absl::string_view key, absl::string_view value) {
  return Command(9) + Text(key) + Text(value);
}
inline std::string MultiGet(std::initializer_list<absl::string_view> keys) {
  return Command(10) + Texts(keys);
}
inline std::string MultiSet(std::initializer_list<absl::string_view> keys_and_values) {
  std::string all = Command(11) + Number(keys_and_values.size() / 2);
  for (const absl::string_view text : keys_and_values) absl::StrAppend(&all, Text(text));
  return all;
}
inline std::string CancelWait() { return Command(12); }
inline std::string Ping(uint32_t nonce) { return Command(13) + Number(nonce, 4); }
inline std::string QueuePush(absl::string_view key, absl::string_view value) {
  return Command(14) + Text(key) + Text(value);
}
inline std::string QueuePop(absl::string_view key) { return Command(15) + Text(key); }
inline std::string QueueLength(absl::string_view key) { return Command(16) + Text(key); }
inline std::string ListKeys() { return Command(17); }
inline std::string Barrier(absl::string_view key, int64_t world_size) {
  return Command(18) + Text(key) + Number(static_cast<uint64_t>(world_size));
}

}  // namespace ddprun::launcher::tcp_store_bytes

#endif  // DDPRUN_TESTS_SUPPORT_TCP_STORE_BYTES_H_
