#include "launcher/stores/store_probe.h"

#include <netdb.h>
#include <uv.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/stores/tcp_store_client.h"

namespace ddprun::launcher {
namespace {

constexpr uint32_t kProbeNonce = 0;  // no worker's: theirs is their pid

}  // namespace

// Outlives the probe when that goes away while the resolver is busy.
struct StoreProbe::Resolution {
  uv_getaddrinfo_t request{};
  StoreProbe* owner = nullptr;

  static void OnDone(uv_getaddrinfo_t* request, int status, addrinfo* found) {
    const std::unique_ptr<Resolution> self(static_cast<Resolution*>(request->data));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, uv_freeaddrinfo);
    if (self->owner == nullptr) return;
    self->owner->resolution_ = nullptr;
    if (status != 0) return self->owner->End(uv_strerror(status));
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
      Address address;
      address.length = entry->ai_addrlen;
      std::memcpy(&address.bytes, entry->ai_addr, entry->ai_addrlen);
      self->owner->addresses_.push_back(address);
    }
    std::reverse(self->owner->addresses_.begin(), self->owner->addresses_.end());
    self->owner->TryNext(EADDRNOTAVAIL);
  }
};

StoreProbe::StoreProbe(EventLoop* loop, const std::string& host, uint16_t port,
                       absl::Duration bound, Until until,
                       std::function<void(std::string why)> on_done)
    : loop_(loop), bound_(bound), until_(until), on_done_(std::move(on_done)), timer_(loop, [this] {
        End(absl::StrCat("no answer within ", absl::FormatDuration(bound_)));
      }) {
  timer_.Arm(loop_->Now() + bound_);
  Resolve(host, port);
}

StoreProbe::~StoreProbe() {
  if (resolution_ != nullptr) resolution_->owner = nullptr;
}

void StoreProbe::Resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  resolution_ = new Resolution{.request = {}, .owner = this};
  resolution_->request.data = resolution_;
  const int error = uv_getaddrinfo(loop_->uv(), &resolution_->request, &Resolution::OnDone,
                                   host.c_str(), absl::StrCat(port).c_str(), &hints);
  if (error == 0) return;
  delete std::exchange(resolution_, nullptr);  // nothing was started: no thread, or no memory
  timer_.Arm(loop_->Now());                    // not from within the constructor
}

// `error`: why the address before did not do.
void StoreProbe::TryNext(int error) {
  watch_.reset();
  while (!addresses_.empty()) {
    const Address address = addresses_.back();
    addresses_.pop_back();
    socket_ = Fd(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool started = socket_.valid() &&
                         (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address.bytes),
                                  address.length) == 0 ||
                          errno == EINPROGRESS);
    if (started) {
      watch_ = std::make_unique<FdWatch>(loop_, socket_.get(), FdWatch::Writable{},
                                         [this] { OnConnected(); });
      return;
    }
    error = errno;
  }
  End(std::strerror(error));
}

void StoreProbe::OnConnected() {
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return TryNext(error);
  if (until_ == Until::kConnected) return End("");
  const std::string request = TcpStoreClient::Greeting(kProbeNonce);
  if (send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return TryNext(errno);
  }
  watch_.reset();  // a descriptor has one watch at a time
  watch_ = std::make_unique<FdWatch>(loop_, socket_.get(), [this] { OnAnswer(); });
}

void StoreProbe::OnAnswer() {
  char answer = 0;
  const ssize_t got = recv(socket_.get(), &answer, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return TryNext(errno);
  End(got > 0 ? "" : "the connection was closed, by another program or by this node's store");
}

void StoreProbe::End(const std::string& why) {
  watch_.reset();
  socket_.Reset();
  timer_.Disarm();
  addresses_.clear();
  if (resolution_ != nullptr) std::exchange(resolution_, nullptr)->owner = nullptr;
  const auto on_done = std::exchange(on_done_, nullptr);  // it may destroy us
  if (on_done) on_done(why);
}

}  // namespace ddprun::launcher
