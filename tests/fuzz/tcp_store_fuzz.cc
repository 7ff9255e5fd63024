#include "tests/fuzz/tcp_store_fuzz.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "launcher/stores/core/tcp_store.h"

namespace ddprun::launcher {
namespace {

class Run {
 public:
  Run() {
    for (uint64_t& id : open_) Open(&id);
  }

  TcpStoreFuzzResult Of(absl::string_view bytes) {
    while (!bytes.empty()) {
      const auto step = static_cast<uint8_t>(bytes[0]);
      bytes.remove_prefix(1);
      uint64_t& id = open_[step & 3U];
      if ((step & 4U) != 0) {
        store_.Close(TcpConnectionId(id));
        Open(&id);
      } else {
        const size_t size = std::min<size_t>((step >> 3U) * size_t{4}, bytes.size());
        Take(store_.Receive(TcpConnectionId(id), bytes.substr(0, size)));
        bytes.remove_prefix(size);
      }
      store_.CheckInvariants();
      result_.waits = std::max(result_.waits, store_.waiter_count());
    }
    for (const uint64_t id : open_) store_.Close(TcpConnectionId(id));
    store_.CheckInvariants();
    DDPRUN_CHECK(store_.waiter_count() == 0 && store_.connection_count() == 0, "not empty");
    return result_;
  }

 private:
  void Open(uint64_t* id) {
    *id = ++last_;
    store_.Open(TcpConnectionId(*id));
  }
  void Take(const std::vector<TcpStoreEffect>& effects) {
    for (const TcpStoreEffect& effect : effects) {
      const auto slot = std::find(open_.begin(), open_.end(), effect.connection.value());
      DDPRUN_CHECK(slot != open_.end(), "an effect on a connection that is not open");
      DDPRUN_CHECK(effect.error.ok() || (effect.bytes.empty() && effect.value == nullptr),
                   "bytes for a connection that ends");
      result_.reply_bytes += effect.bytes.size();
      if (effect.error.ok()) continue;
      ++result_.closed;
      Open(&*slot);
    }
  }

  TcpStore store_{{.request = {.key_bytes = 16, .value_bytes = 64, .keys = 8, .key_list_bytes = 64},
                   .keys = 8,
                   .bytes = 400}};
  std::array<uint64_t, 4> open_{};
  uint64_t last_ = 0;
  TcpStoreFuzzResult result_;
};

}  // namespace

TcpStoreFuzzResult FuzzTcpStore(absl::string_view bytes) { return Run().Of(bytes); }

}  // namespace ddprun::launcher
