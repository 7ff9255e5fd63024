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

// How many connections a web server keeps, and for how long.
struct WebBounds {
  DoorBounds door = {.strangers = 48, .per_address = 24};
  // The longest life of a connection, which has one request and its answer, however slowly its
  // bytes come.
  absl::Duration age = absl::Seconds(10);
};

// Most descriptors are for the service, which shares the process: each connection here takes two.
WebBounds WebBoundsFor(uint64_t descriptors);

// Bounds the connections of an evhttp by a Doorkeeper, because evhttp bounds neither their number
// nor their age, and if no descriptor is left, it tries to accept again and again. A second
// descriptor of each connection is used to end it, and to see its end: evhttp shuts a connection
// down before it closes it. Threads: that of the base.
class WebGuests {
 public:
  // Requires: `http` serves no connection so far, and lives as long as this. Listens on `socket`
  // while the bounds allow it.
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
    event* changes;  // owned; destroyed before fd
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
  std::vector<bufferevent*> taken_;       // evhttp's connections that aren't guests so far
  std::map<ConnectionId, Guest> guests_;  // the strangers of keeper_, the oldest first
  Doorkeeper keeper_;
  uint64_t last_id_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_WEB_GUESTS_H_
