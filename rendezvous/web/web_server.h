#ifndef DDPRUN_RENDEZVOUS_WEB_WEB_SERVER_H_
#define DDPRUN_RENDEZVOUS_WEB_WEB_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/web/web_guests.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace ddprun::rendezvous {

// What a rendezvous service shows over HTTP, read only, to everybody who reaches the address and
// has its password, where it has one:
//   /                 a page for people that needs no network but this server
//   /api/v1/status    GetStatus as JSON (status_json.h)
//   /api/v1/curves    how its figures went (curves.h)
//   /metrics          the same for Prometheus (metrics_text.h)
//   /healthz          200 while the service's loop turns, else 503; without the password, too
// Every answer comes from one GetStatus call, which has kPatience; the service answers it as any
// other. At most one call at a time, for all who asked before it began; the pages and curves
// themselves don't wait for it. For the curves it asks where nobody else does (CurveBook). Threads:
// two of its own; Start and the destructor: any, once.
//
// libevent's evhttp: it needs only libc, and Debian has an archive of it for the wheel. Debian's
// cpp-httplib needs OpenSSL and brotli in every `ddprun`; prometheus-cpp has no archive. Threads
// of its own, so that a slow reader holds up no job.
class WebServer {
 public:
  struct Options {
    std::string listen;    // "host:port", as ParseStatusPage gives it; port 0 = any free one
    std::string token;     // of the jobs, "" = none; who reads the page needs none
    std::string password;  // of who reads the page; "" = anybody may
    // How many connections are kept; none = as the limit of descriptors allows.
    std::optional<WebBounds> bounds;
  };
  // Errors: UNAVAILABLE — the address can't be listened on; the text names it.
  static absl::StatusOr<std::unique_ptr<WebServer>> Start(Options options,
                                                          std::shared_ptr<grpc::Channel> service);
  // Waits for the answer under way; open connections are cut off.
  virtual ~WebServer() = default;

  virtual uint16_t port() const = 0;
  // Asks this service from now on: it has taken the jobs over. Threads: any.
  virtual void MoveTo(std::shared_ptr<grpc::Channel> service) = 0;
};

// Tells the user where the page is, and, where it has no password and other machines may reach it,
// that everybody there may read it. Returns its URL. Threads: any.
std::string AnnouncePage(const WebServer::Options& options, uint16_t port);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_WEB_SERVER_H_
