#ifndef DDPRUN_TOOLS_PREFLIGHT_DATAGRAM_EXCHANGE_H_
#define DDPRUN_TOOLS_PREFLIGHT_DATAGRAM_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"
#include "tools/preflight/core/link_facts.h"
#include "tools/preflight/sockets.h"

namespace ddprun::launcher {

// A datagram of a network check.
struct ProbeDatagram {
  enum class Kind : uint8_t {
    kData = 1,  // counted
    kPing = 2,  // counted, and answered
    kPong = 3,  // the answer, with the ping's time
    kHere = 4,  // to node 0, from a node that can't reach the store
  };
  Kind kind = Kind::kData;
  uint32_t from = 0;    // node
  uint32_t pass = 0;    // of the check
  uint64_t token = 0;   // of the check, to recognize strays; 0 in kHere
  int64_t sent_ns = 0;  // on the clock of the ping's sender

  friend bool operator==(const ProbeDatagram&, const ProbeDatagram&) = default;
};

inline constexpr size_t kProbeBytes = 32;

// kProbeBytes, little endian.
std::string EncodeProbe(const ProbeDatagram& probe);
// nullopt = not a datagram of a check.
std::optional<ProbeDatagram> DecodeProbe(absl::string_view bytes);

// A node's UDP side of the check. A thread counts and answers datagrams from the beginning, so
// nodes needn't begin at the same moment. Threads: the one that made it; the class has another of
// its own.
class DatagramExchange {
 public:
  // Binds `port` if it is free, else any port. Errors: errno.
  static absl::StatusOr<std::unique_ptr<DatagramExchange>> Open(uint16_t port);
  ~DatagramExchange();

  uint16_t port() const { return bound_.port; }
  int family() const { return bound_.family; }

  // From now on datagrams with this token count. `peers`: by node; nothing is sent to empty
  // addresses.
  void Begin(uint32_t node, uint64_t token, std::vector<SocketAddress> peers);

  // Sends `count` datagrams to each of `targets`, in bursts over a third of a second. Blocks.
  void Send(uint32_t pass, const std::vector<uint32_t>& targets, uint32_t count);
  // Sends one kHere to `address`.
  void SendHere(uint32_t node, const SocketAddress& address);

  // The measurements of this pass, for each peer from which anything came.
  NodeMeasurements Measurements(uint32_t pass);
  // Nodes from which a kHere came.
  std::set<uint32_t> Heard();

 private:
  struct Seen {
    uint32_t arrived = 0;
    int64_t round_trip_ns = INT64_MAX;
  };

  DatagramExchange(BoundSocket bound, Fd stop);
  void Receive();
  bool ReceiveOne();
  void Take(const ProbeDatagram& probe, const SocketAddress& source);
  void SendProbe(const ProbeDatagram& probe, const SocketAddress& address) const;

  const BoundSocket bound_;
  const Fd stop_;     // eventfd(2): readable when the thread is to end
  std::mutex mutex_;  // guards the fields below
  uint32_t node_ = 0;
  uint64_t token_ = 0;
  std::vector<SocketAddress> peers_;
  std::map<uint32_t, std::vector<Seen>> passes_;
  std::set<uint32_t> heard_;
  uint32_t overrun_ = 0;  // by the socket, since it was made
  uint32_t overrun_told_ = 0;
  std::thread thread_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_DATAGRAM_EXCHANGE_H_
