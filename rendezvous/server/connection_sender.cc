#include "rendezvous/server/connection_sender.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/packet.h"

namespace ddprun::rendezvous {
namespace {

// As many connections as a listener's queue holds (net.core.somaxconn), and no more than leave most
// descriptors to gRPC's. A further one is closed, and its client connects again.
constexpr uint64_t kWaitingMax = 4096;

}  // namespace

ConnectionSender::ConnectionSender(EventLoop* loop, int socket)
    : loop_(loop),
      socket_(socket),
      waiting_max_(std::min<uint64_t>(kWaitingMax, DescriptorLimit() / 8)) {}

void ConnectionSender::Send(Fd connection) {
  if (waiting_.size() >= waiting_max_) return;
  waiting_.emplace_back().push_back(std::move(connection));
  if (writable_ == nullptr) SendWaiting();
}

void ConnectionSender::SendWaiting() {
  while (!waiting_.empty()) {
    // After any other error the connection is closed: the agent is gone, or the kernel lacks
    // memory.
    if (SendPacket(socket_, "c", waiting_.front()) == EAGAIN) {
      if (writable_ != nullptr) return;
      writable_ =
          std::make_unique<FdWatch>(loop_, socket_, FdWatch::Writable{}, [this] { SendWaiting(); });
      return;
    }
    waiting_.pop_front();
  }
  writable_.reset();
}

}  // namespace ddprun::rendezvous
