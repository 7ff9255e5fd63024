#ifndef DDPRUN_RENDEZVOUS_WEB_WEB_SERVER_H_
#define DDPRUN_RENDEZVOUS_WEB_WEB_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/web/web_guests.h"

namespace ddprun::rendezvous {

// Whether an HTTP request's Authorization value ("" = it has none) has the secret: as "Bearer
// SECRET", which monitors send, or as the password of "Basic" with any user name, for which
// browsers ask. The time that it takes doesn't depend on the secret. Pure.
// Source: RFC 9110, 11.6.2; RFC 6750, 2.1; RFC 7617, 2.
bool IsAuthorized(absl::string_view authorization, const std::string& secret);

// A file of the status page, and the path under which it is served.
struct PageFile {
  const char* path;
  const char* type;
  const char* text;
};

// page.html, as "/", and the files of this folder that it loads.
extern const PageFile kPageFiles[6];

}  // namespace ddprun::rendezvous

namespace grpc {
class Channel;
}  // namespace grpc

namespace ddprun::rendezvous {

// What a rendezvous service shows over HTTP, read only, to every client that reaches the address
// and has the password, if there is one:
//   /                 a page for people that needs no network but this server
//   /api/v1/status    GetStatus as JSON (status_json.h)
//   /api/v1/curves    how the figures of the status went (curves.h)
//   /metrics          the status for Prometheus (curves.h)
//   /healthz          200 while the service's loop turns, else 503; needs no password
// Every answer comes from one GetStatus call, which may take kPatience; the service answers it like
// any other. There is at most one call at a time, for all clients that asked before it began; the
// pages and curves themselves don't wait for it. For the curves the server asks if no client does
// (CurveBook). Threads: two of its own; Start and the destructor: any, once.
//
// The HTTP library is libevent's evhttp: it needs only libc, and Debian has a static library of it
// for the wheel. Debian's cpp-httplib needs OpenSSL and brotli in every `ddprun`, and
// prometheus-cpp has no static library. The threads are its own, so that a slow reader delays no
// job.
class WebServer {
 public:
  struct Options {
    std::string listen;    // "host:port", as ParseStatusPage gives it; port 0 = any free one
    std::string token;     // of the jobs, "" = none; readers of the page don't need it
    std::string password;  // of the page's readers; "" = none
    // Bounds of connections; nullopt = by the limit of descriptors.
    std::optional<WebBounds> bounds;
  };
  // Errors: UNAVAILABLE: the address can't be listened on; the text names it.
  static absl::StatusOr<std::unique_ptr<WebServer>> Start(Options options,
                                                          std::shared_ptr<grpc::Channel> service);
  // Waits for the answer under way; closes open connections.
  virtual ~WebServer() = default;

  virtual uint16_t port() const = 0;
  // Asks this service from now on, because it has taken the jobs over. Threads: any.
  virtual void MoveTo(std::shared_ptr<grpc::Channel> service) = 0;
};

// Prints the page's address and, if the page has no password and other machines may reach it, that
// everybody there may read it. Returns its URL. Threads: any.
std::string AnnouncePage(const WebServer::Options& options, uint16_t port);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_WEB_SERVER_H_
