#ifndef DDPRUN_RENDEZVOUS_WEB_WEB_GUESTS_H_
#define DDPRUN_RENDEZVOUS_WEB_WEB_GUESTS_H_

#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "base/fd.h"
#include "base/instant.h"
#include "rendezvous/server/core/doorkeeper.h"

struct bufferevent;

namespace ddprun::rendezvous {

// How many connections a server of pages keeps, and for how long.
struct WebBounds {
  DoorBounds door = {.strangers = 48, .per_address = 24};
  // Of a connection, which is one request and its answer: however slowly its bytes come.
  absl::Duration age = absl::Seconds(10);
};

// Most are for the service, whose process this is: each connection here takes two.
WebBounds WebBoundsFor(uint64_t descriptors);

// Bounds the connections of an evhttp by a Doorkeeper, because evhttp has no bound on their number
// and age, and accepts again at once, for ever, when no descriptor is left. By a second descriptor
// a connection is ended, and its end seen: evhttp shuts one down before it closes it. Threads: that
// of the base.
class WebGuests {
 public:
  // `http` serves nobody yet, and lives as long as this. Listens by `socket` as far as it may.
  WebGuests(event_base* base, evhttp* http, evhttp_bound_socket* socket, const WebBounds& bounds);
  ~WebGuests();
  WebGuests(const WebGuests&) = delete;
  WebGuests& operator=(const WebGuests&) = delete;

 private:
  struct Guest {
    WebGuests* owner;
    ConnectionId id;
    Instant since;
    Fd fd;
    event* changes;  // owned; goes before fd
  };

  static bufferevent* OnConnection(event_base* base, void* self);
  static void OnTaken(evutil_socket_t, short, void* self);
  static void OnChange(evutil_socket_t, short, void* guest);
  static void OnTime(evutil_socket_t, short, void* self);
  static void OnError(evconnlistener* listener, void* http);

  void Take(bufferevent* connection, Instant now);
  void End(ConnectionId id);
  void OutOfDescriptors(Instant now);
  void ListenOrWait();

  const WebBounds bounds_;
  event_base* const base_;
  evconnlistener* const listener_;
  event* const look_;                     // at taken_
  event* const timer_;                    // for the next age, place or try
  std::vector<bufferevent*> taken_;       // evhttp's, from now on, but not yet guests
  std::map<ConnectionId, Guest> guests_;  // the keeper's strangers, the oldest first
  Doorkeeper keeper_;
  uint64_t last_id_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_WEB_GUESTS_H_
