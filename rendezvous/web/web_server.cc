#include "rendezvous/web/web_server.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/thread.h>
#include <grpcpp/channel.h>
#include <netinet/in.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/web/metrics_text.h"
#include "rendezvous/web/status_json.h"
#include "rendezvous/web/status_page.h"
#include "rendezvous/wire/status_pages.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(2);
// Of a client that sends or reads nothing.
constexpr int kClientTimeoutS = 5;
constexpr int kRequestBytesMax = 8192;

struct Answer {
  int status = HTTP_OK;
  const char* type = "text/plain; charset=utf-8";
  std::string body;
};

// The page loads nothing from elsewhere, and nobody else's page may show it.
constexpr std::pair<const char*, const char*> kHeaders[] = {
    {"Cache-Control", "no-store"},
    {"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Connection", "close"},
};

void Send(evhttp_request* request, const Answer& answer) {
  evkeyvalq* headers = evhttp_request_get_output_headers(request);
  evhttp_add_header(headers, "Content-Type", answer.type);
  for (const auto& [name, value] : kHeaders) evhttp_add_header(headers, name, value);
  if (answer.status == HTTP_BADMETHOD) evhttp_add_header(headers, "Allow", "GET, HEAD");
  evbuffer* body = evbuffer_new();
  evbuffer_add(body, answer.body.data(), answer.body.size());
  evhttp_send_reply(request, answer.status, /*reason=*/nullptr, body);
  evbuffer_free(body);
}

uint16_t PortOf(evutil_socket_t listener) {
  sockaddr_in6 own{};
  socklen_t size = sizeof(own);
  // The port is at the same place in both protocols' addresses.
  getsockname(listener, reinterpret_cast<sockaddr*>(&own), &size);
  return ntohs(own.sin6_port);
}

class WebServerImpl final : public WebServer {
 public:
  WebServerImpl(std::shared_ptr<grpc::Channel> service, std::string token)
      : stub_(v1::Rendezvous::NewStub(std::move(service))), token_(std::move(token)) {
    evthread_use_pthreads();  // for the end, which another thread asks for
    base_ = event_base_new();
    http_ = evhttp_new(base_);
  }

  ~WebServerImpl() override {
    if (thread_.joinable()) {
      event_base_loopbreak(base_);
      thread_.join();
    }
    evhttp_free(http_);
    event_base_free(base_);
  }

  absl::Status Listen(const std::string& listen) {
    const size_t colon = listen.rfind(':');
    std::string host(absl::StripSuffix(absl::StripPrefix(listen.substr(0, colon), "["), "]"));
    if (host == "localhost") host = "127.0.0.1";
    const int port = std::stoi(listen.substr(colon + 1));
    evhttp_set_gencb(http_, &WebServerImpl::OnRequest, this);
    evhttp_set_timeout(http_, kClientTimeoutS);
    evhttp_set_max_headers_size(http_, kRequestBytesMax);
    evhttp_set_max_body_size(http_, kRequestBytesMax);
    evhttp_bound_socket* bound =
        evhttp_bind_socket_with_handle(http_, host.c_str(), static_cast<uint16_t>(port));
    if (bound == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("the status page can't listen on ", listen,
                       ": the port is in use, or the address is not this machine's (give another "
                       "--status_page)"));
    }
    port_ = PortOf(evhttp_bound_socket_get_fd(bound));
    DDPRUN_ASSIGN_OR_RETURN(thread_, StartThread("the status page", [this] {
                              event_base_loop(base_, EVLOOP_NO_EXIT_ON_EMPTY);
                            }));
    return absl::OkStatus();
  }

  uint16_t port() const override { return port_; }

 private:
  static void OnRequest(evhttp_request* request, void* self) {
    const evhttp_cmd_type method = evhttp_request_get_command(request);
    if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
      return Send(request, {.status = HTTP_BADMETHOD, .body = "read only: GET or HEAD\n"});
    }
    const char* path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    Send(request, static_cast<WebServerImpl*>(self)->AnswerTo(path == nullptr ? "" : path));
  }

  Answer AnswerTo(const std::string& path) {
    if (path == "/") return {.type = "text/html; charset=utf-8", .body = kPageHtml};
    if (path == "/page.js") return {.type = "text/javascript; charset=utf-8", .body = kPageScript};
    if (path == "/page.css") return {.type = "text/css; charset=utf-8", .body = kPageStyle};
    if (path == "/api/v1/status") return FromStatus("application/json", StatusJson);
    if (path == "/metrics") {
      return FromStatus("text/plain; version=0.0.4; charset=utf-8",
                        [](const v1::GetStatusReply& reply) -> absl::StatusOr<std::string> {
                          return MetricsText(reply);
                        });
    }
    if (path == "/healthz") {
      return FromStatus("text/plain; charset=utf-8",
                        [](const v1::GetStatusReply&) -> absl::StatusOr<std::string> {
                          return std::string("ok\n");
                        });
    }
    return {.status = HTTP_NOTFOUND,
            .body = "there are /, /api/v1/status, /metrics and /healthz\n"};
  }

  using Show = std::function<absl::StatusOr<std::string>(const v1::GetStatusReply&)>;
  Answer FromStatus(const char* type, const Show& show) {
    v1::GetStatusReply reply;
    const grpc::Status status = FetchWholeStatus(*stub_, /*run_id=*/"", token_, kPatience, &reply);
    absl::StatusOr<std::string> body = absl::UnavailableError(status.error_message());
    if (status.ok()) body = show(reply);
    if (body.ok()) return {.type = type, .body = *std::move(body)};
    return {.status = HTTP_SERVUNAVAIL,
            .body = absl::StrCat("the rendezvous service doesn't answer: ", body.status().message(),
                                 "\n")};
  }

  const std::unique_ptr<v1::Rendezvous::Stub> stub_;
  const std::string token_;
  event_base* base_ = nullptr;
  evhttp* http_ = nullptr;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WebServer>> WebServer::Start(const std::string& listen,
                                                            std::shared_ptr<grpc::Channel> service,
                                                            std::string token) {
  auto server = std::make_unique<WebServerImpl>(std::move(service), std::move(token));
  if (const absl::Status status = server->Listen(listen); !status.ok()) return status;
  return server;
}

}  // namespace ddprun::rendezvous
