#include "rendezvous/web/web_guests.h"

#include <event2/bufferevent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "rendezvous/wire/peer.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint64_t kDescriptorsMin = 1024;  // if the limit is unknown: the usual soft limit

// libevent passes evhttp's argument to the error callback, not ours. There is one server for each
// thread.
thread_local WebGuests* of_this_thread = nullptr;

}  // namespace

WebBounds WebBoundsFor(uint64_t descriptors) {
  if (descriptors == 0) descriptors = kDescriptorsMin;
  const uint64_t most = std::clamp<uint64_t>(descriptors / 32, 4, WebBounds().door.strangers);
  return {.door = {.strangers = most, .per_address = most / 2}};
}

WebGuests::WebGuests(event_base* base, evhttp* http, evhttp_bound_socket* socket,
                     const WebBounds& bounds)
    : bounds_(bounds),
      base_(base),
      listener_(evhttp_bound_socket_get_listener(socket)),
      look_(event_new(base, -1, 0, &WebGuests::OnTaken, this)),
      timer_(event_new(base, -1, 0, &WebGuests::OnTime, this)),
      keeper_(bounds.door) {
  event_active(look_, 0, 0);  // OnTaken runs first on the base's thread, which OnError needs
  evhttp_set_bevcb(http, &WebGuests::OnConnection, this);
  evconnlistener_set_error_cb(listener_, &WebGuests::OnError);
}

WebGuests::~WebGuests() {
  while (!guests_.empty()) End(guests_.begin()->first);
  event_free(timer_);
  event_free(look_);
}

// evhttp has accepted a connection, and uses the returned bufferevent for it.
bufferevent* WebGuests::OnConnection(event_base* base, void* self) {
  auto* const guests = static_cast<WebGuests*>(self);
  bufferevent* const connection = bufferevent_socket_new(base, -1, 0);
  guests->taken_.push_back(connection);
  // Disabled here, because evhttp would otherwise accept all waiting connections first.
  if (guests->guests_.size() + guests->taken_.size() >= guests->bounds_.door.strangers) {
    evconnlistener_disable(guests->listener_);
  }
  event_active(guests->look_, 0, 0);
  return connection;
}

void WebGuests::OnTaken(evutil_socket_t, short, void* self) {
  auto* const guests = static_cast<WebGuests*>(self);
  of_this_thread = guests;
  const Instant now = MonotonicNow();
  for (bufferevent* connection : std::exchange(guests->taken_, {})) guests->Take(connection, now);
  guests->ListenOrWait();
}

// A connection that isn't kept is shut down: evhttp sees its end, and closes it.
void WebGuests::Take(bufferevent* connection, Instant now) {
  const int socket = bufferevent_getfd(connection);
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length);
  Fd own(fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) {
    shutdown(socket, SHUT_RDWR);
    return OutOfDescriptors(now);
  }
  const ConnectionId id(++last_id_);
  const Doorkeeper::Answer answer = keeper_.Accepted(id, AddressGroup(PeerOf(address)), now);
  if (answer.evicted.has_value()) End(*answer.evicted);
  if (!answer.admitted) {
    shutdown(socket, SHUT_RDWR);
    return;
  }
  Guest& guest = guests_[id];
  guest.owner = this;
  guest.id = id;
  guest.since = now;
  guest.fd = std::move(own);
  // Edge-triggered: evhttp reads the data, not this.
  guest.changes =
      event_new(base_, guest.fd.get(), EV_READ | EV_ET | EV_PERSIST, &WebGuests::OnChange, &guest);
  event_add(guest.changes, nullptr);
}

void WebGuests::OnChange(evutil_socket_t fd, short, void* changed) {
  pollfd state{.fd = fd, .events = 0, .revents = 0};
  if (poll(&state, 1, 0) < 1) return;  // neither broken nor ended by both sides
  const auto* const guest = static_cast<Guest*>(changed);
  WebGuests* const owner = guest->owner;
  owner->End(guest->id);
  owner->ListenOrWait();
}

// Whatever evhttp is doing with the connection, it sees its end.
void WebGuests::End(ConnectionId id) {
  const auto guest = guests_.find(id);
  if (guest == guests_.end()) return;
  event_free(guest->second.changes);
  shutdown(guest->second.fd.get(), SHUT_RDWR);
  guests_.erase(guest);
  keeper_.Forget(id);
}

void WebGuests::OnTime(evutil_socket_t, short, void* self) {
  static_cast<WebGuests*>(self)->ListenOrWait();
}

void WebGuests::OnError(evconnlistener* /*listener*/, void* /*http*/) {
  of_this_thread->OutOfDescriptors(MonotonicNow());
  of_this_thread->ListenOrWait();
}

void WebGuests::OutOfDescriptors(Instant now) {
  if (const auto evicted = keeper_.OutOfDescriptors(now); evicted.has_value()) End(*evicted);
}

void WebGuests::ListenOrWait() {
  const Instant now = MonotonicNow();
  while (!guests_.empty() && guests_.begin()->second.since + bounds_.age <= now) {
    End(guests_.begin()->first);
  }
  const Instant accept = keeper_.NextAccept();
  Instant next = accept > now ? accept : Instant::Infinite();
  if (!guests_.empty()) next = std::min(next, guests_.begin()->second.since + bounds_.age);
  if (next == Instant::Infinite()) {
    event_del(timer_);
  } else {
    // Rounded up: early is too early.
    const timeval wait = absl::ToTimeval(next - now + absl::Milliseconds(1));
    event_add(timer_, &wait);
  }
  if (accept > now) {
    evconnlistener_disable(listener_);
  } else {
    evconnlistener_enable(listener_);
  }
}

}  // namespace ddprun::rendezvous
