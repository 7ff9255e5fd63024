#include "rendezvous/server/front_door.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/packet.h"
#include "rendezvous/server/core/doorkeeper.h"
#include "rendezvous/wire/tls.h"

// A stranger's connection, from accept(2) to gRPC (R9).
//
//   state      descriptors         lasts until
//   silent     `silent` and `fd`   its first byte, or silent_at_most is over: see below
//   refused    `silent` and `fd`   the peer has read why and closes, or silent_at_most is over
//   gRPC's     `fd`, and gRPC's    Known(): it is a member's then, and `fd` is closed
//
// In every state the connection may end, or the Doorkeeper may need its place.
//
//   first byte            wants_tls = false    wants_tls = true     on_store is set
//   0 to 21               gRPC                 refused              the store
//   22 (TLS)              gRPC                 gRPC                 as without
//   'P' (HTTP/2) etc.     gRPC                 refused              as without
//   none in time          ended                ended                the store
//
// The byte is only peeked at, so gRPC and the store get every byte.
//
// Why doesn't gRPC accept? gRPC 1.51 stops for good when accept(2) once finds no descriptor (the
// test TwinAListenerOfGrpcIsGoneForGood fails when that has changed), and it bounds neither
// connections by address nor streams of a client that hasn't acknowledged its settings: a few
// hundred idle connections kept every agent out. gRPC's resource quota would refuse members, too.
//
// Why not give each connection to gRPC at once? gRPC makes a transport for it. On a busy machine a
// crowd of idle connections, replaced as fast as they became a second old, then kept agents in the
// kernel's queue for longer than the 1.5 s that an agent gives an attempt.
//
// Why a duplicate? gRPC doesn't report the end of a connection, and a watch on its own descriptor
// would vanish with gRPC's close(2), after which the number may be another connection's. But gRPC
// calls shutdown(2) before it closes, which the duplicate sees. And shutdown(2) on the duplicate
// ends the connection for gRPC.

namespace ddprun::rendezvous {
namespace {

// Accepts in one turn of the loop: a queue full of strangers (4,096 by default, net.core.somaxconn)
// takes 16 turns, so it is through before an agent behind them gives its attempt up.
constexpr int kAcceptsPerEvent = 256;
// One warning a minute: a peer that makes descriptors run out once can do so for ever.
constexpr absl::Duration kWarnEvery = absl::Minutes(1);

// accept(2): errors of the new connection itself, which is gone.
bool IsOfTheConnection(int error) {
  return error == EINTR || error == ECONNABORTED || error == EPROTO || error == ENETDOWN ||
         error == EHOSTDOWN || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ENOPROTOOPT || error == EOPNOTSUPP || error == ENONET || error == ETIMEDOUT ||
         error == EPERM;
}

}  // namespace

FrontDoor::FrontDoor(EventLoop* loop, EventLog* events, Refusals* refusals, TcpListener listener,
                     std::unique_ptr<Acceptor> acceptor, Options options)
    : loop_(loop),
      events_(events),
      refusals_(refusals),
      listener_(std::move(listener)),
      acceptor_(std::move(acceptor)),
      options_(std::move(options)),
      keeper_(options_.bounds),
      again_(loop, [this] { WaitOrAccept(); }) {
  for (const Fd& socket : listener_.sockets) {
    watches_.push_back(std::make_unique<FdWatch>(loop, socket.get(),
                                                 [this, fd = socket.get()] { AcceptSome(fd); }));
  }
}

FrontDoor::~FrontDoor() { watches_.clear(); }

void FrontDoor::AcceptSome(int listener) {
  for (int i = 0; i < kAcceptsPerEvent && keeper_.NextAccept() <= loop_->Now(); ++i) {
    if (!AcceptOne(listener)) break;
  }
  WaitOrAccept();
}

// Returns false if no connection waits, or none can be accepted now.
bool FrontDoor::AcceptOne(int listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  Fd connection(accept4(listener, reinterpret_cast<sockaddr*>(&address), &length,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection.valid()) {
    if (IsOfTheConnection(errno)) return true;
    if (errno != EAGAIN && errno != EWOULDBLOCK) OutOfDescriptors(errno);
    return false;
  }
  Fd own(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) {
    OutOfDescriptors(errno);
    return false;
  }
  Admit(std::move(connection), std::move(own), PeerOf(address));
  return true;
}

void FrontDoor::Admit(Fd connection, Fd own, const PeerAddress& peer) {
  const ConnectionId id(++last_id_);
  const Instant now = loop_->Now();
  const Doorkeeper::Answer answer = keeper_.Accepted(id, AddressGroup(peer), now);
  if (answer.evicted.has_value()) Evict(*answer.evicted);
  if (!answer.admitted) {
    refusals_->Count(now, "connection_turned_away", PeerText(peer),
                     absl::ResourceExhaustedError("too many connections came from its address "
                                                  "within a second and said nothing, or one of "
                                                  "them was turned out"));
    return;
  }
  Guest& guest = guests_[id];
  guest.peer = peer;
  guest.fd = std::move(own);
  guest.ended = std::make_unique<FdWatch>(loop_, guest.fd.get(), FdWatch::Ended(), [this, id] {
    End(id);
    WaitOrAccept();
  });
  by_peer_[peer] = id;
  guest.silent = std::move(connection);
  guest.speaks =
      std::make_unique<FdWatch>(loop_, guest.silent.get(), [this, id] { HearFirst(id); });
  guest.patience = std::make_unique<Timer>(loop_, [this, id] { LosePatience(id); });
  guest.patience->Arm(now + options_.silent_at_most);
}

void FrontDoor::HandOver(Fd connection) {
  Acceptor::NewConnectionParameters parameters;
  parameters.fd = connection.Release();
  acceptor_->HandleNewConnection(&parameters);
}

void FrontDoor::HearFirst(ConnectionId id) {
  Guest& guest = guests_.at(id);
  char first = 0;
  const ssize_t n = recv(guest.silent.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  guest.speaks.reset();
  if (n <= 0) return;  // the end of the connection, which `ended` handles
  if (options_.on_store != nullptr && BeginsTcpStore(first)) return PassToStore(id);
  const std::string answer =
      options_.wants_tls ? AnswerWithoutTls(absl::string_view(&first, 1)) : "";
  if (answer.empty()) {
    guest.patience.reset();
    return HandOver(std::move(guest.silent));
  }
  refusals_->Count(loop_->Now(), "without_tls", PeerText(guest.peer),
                   absl::UnauthenticatedError("it speaks without TLS, which this service wants"));
  // Only the sending half is closed, so that the peer can read the answer: a full close with unread
  // bytes would reset the connection.
  send(guest.silent.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(guest.silent.get(), SHUT_WR);
}

void FrontDoor::LosePatience(ConnectionId id) {
  // The first byte may have arrived while the loop was held up.
  if (guests_.at(id).speaks != nullptr) HearFirst(id);
  const auto guest = guests_.find(id);
  if (guest == guests_.end() || !guest->second.silent.valid()) return;
  // gRPC's clients send at once; a TCPStore of torch 2.1 or before may have nothing to ask so soon.
  if (guest->second.speaks != nullptr && options_.on_store != nullptr) return PassToStore(id);
  End(id);
  WaitOrAccept();
}

void FrontDoor::PassToStore(ConnectionId id) {
  Guest& guest = guests_.at(id);
  guest.speaks.reset();
  Fd connection = std::move(guest.silent);
  Drop(id);
  // The listener's timeout is for gRPC's connections, which have keepalives; 0 = the system's own.
  const int timeout = 0;
  setsockopt(connection.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
  options_.on_store(std::move(connection));
  WaitOrAccept();
}

void FrontDoor::OutOfDescriptors(int error_number) {
  const Instant now = loop_->Now();
  if (const auto evicted = keeper_.OutOfDescriptors(now); evicted.has_value()) Evict(*evicted);
  if (now < next_warning_) return;
  next_warning_ = now + kWarnEvery;
  const uint64_t limit = DescriptorLimit();
  const std::string why(ErrnoStatus(error_number, "accept").message());
  Notify(absl::StrCat("warning: ", options_.server,
                      " can't accept connections at the moment: ", why, "; its limit is ", limit,
                      " descriptors: raise the hard limit, ulimit -Hn, where other nodes can't "
                      "connect"));
  events_->Write(now, "no_descriptor",
                 {{"why", why}, {"limit", limit}, {"strangers", keeper_.strangers()}});
}

void FrontDoor::Evict(ConnectionId id) {
  const auto guest = guests_.find(id);
  if (guest == guests_.end()) return;
  refusals_->Count(loop_->Now(), "connection_evicted", PeerText(guest->second.peer),
                   absl::ResourceExhaustedError("others needed the place of this connection, which "
                                                "hasn't shown whose it is"));
  End(id);
}

// Ends the connection for every descriptor of it: gRPC sees the end and closes its own, whether it
// reads or not.
void FrontDoor::End(ConnectionId id) {
  shutdown(guests_.at(id).fd.get(), SHUT_RDWR);
  Drop(id);
}

void FrontDoor::Drop(ConnectionId id) {
  const auto guest = guests_.find(id);
  const auto of_peer = by_peer_.find(guest->second.peer);
  // The entry may be that of a newer connection, from the same port to another of our addresses.
  if (of_peer != by_peer_.end() && of_peer->second == id) by_peer_.erase(of_peer);
  guests_.erase(guest);
  keeper_.Forget(id);
}

std::optional<ConnectionId> FrontDoor::StrangerOf(const std::string& peer) const {
  const std::optional<PeerAddress> address = ParsePeer(peer);
  if (!address.has_value()) return std::nullopt;
  const auto found = by_peer_.find(*address);
  return found == by_peer_.end() ? std::nullopt : std::optional(found->second);
}

void FrontDoor::Known(const std::string& peer) {
  const std::optional<ConnectionId> id = StrangerOf(peer);
  if (!id.has_value()) return;
  Drop(*id);
  WaitOrAccept();
}

void FrontDoor::TurnOut(const std::string& peer) {
  const std::optional<ConnectionId> id = StrangerOf(peer);
  if (!id.has_value()) return;
  refusals_->Count(loop_->Now(), "connection_turned_out", peer,
                   absl::ResourceExhaustedError("it opens more calls at a time than the service "
                                                "allows"));
  keeper_.Ban(AddressGroup(guests_.at(*id).peer), loop_->Now());
  End(*id);
  WaitOrAccept();
}

// Pauses or resumes the listener after each step of keeper_. While it is paused, connections wait
// in the kernel's queue.
void FrontDoor::WaitOrAccept() {
  const Instant next = keeper_.NextAccept();
  const bool pause = next > loop_->Now();
  if (pause) again_.Arm(next);
  if (std::exchange(paused_, pause) == pause) return;
  if (!pause) again_.Disarm();
  for (const auto& watch : watches_) {
    if (pause) {
      watch->Pause();
    } else {
      watch->Resume();
    }
  }
}

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
