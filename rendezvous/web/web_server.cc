#include "rendezvous/web/web_server.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/thread.h>
#include <grpcpp/channel.h>
#include <netinet/in.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/core/admission.h"
#include "rendezvous/web/core/curve_book.h"
#include "rendezvous/web/curves.h"
#include "rendezvous/web/status_json.h"
#include "rendezvous/wire/status_pages.h"

namespace ddprun::rendezvous {

bool IsAuthorized(absl::string_view authorization, const std::string& secret) {
  const size_t blank = authorization.find(' ');
  if (blank == absl::string_view::npos) return false;
  const absl::string_view scheme = authorization.substr(0, blank);
  const absl::string_view rest = absl::StripAsciiWhitespace(authorization.substr(blank));
  if (absl::EqualsIgnoreCase(scheme, "Bearer")) return SameSecret(secret, std::string(rest));
  std::string user_and_password;
  if (!absl::EqualsIgnoreCase(scheme, "Basic") || !absl::Base64Unescape(rest, &user_and_password)) {
    return false;
  }
  const size_t colon = user_and_password.find(':');
  return colon != std::string::npos && SameSecret(secret, user_and_password.substr(colon + 1));
}

namespace {

constexpr absl::Duration kPatience = absl::Seconds(2);
// For a client that sends or reads nothing.
constexpr int kClientTimeoutS = 5;
constexpr int kRequestBytesMax = 8192;
// Health checks come from machines without secrets, and learn nothing else.
constexpr absl::string_view kHealthPath = "/healthz";
constexpr int kUnauthorized = 401;  // evhttp has no name for it

struct Answer {
  int status = HTTP_OK;
  const char* type = "text/plain; charset=utf-8";
  std::string body;
};

// The page loads nothing from other sites, and no other page may embed it.
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
  if (answer.status == kUnauthorized) {
    evhttp_add_header(headers, "WWW-Authenticate", "Basic realm=\"ddprun\", charset=\"UTF-8\"");
  }
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

using Status = absl::StatusOr<v1::GetStatusReply>;

// The answer for a path, made from a status. Params: started: the start of this process, for
// people.
struct StatusPath {
  absl::string_view path;
  const char* type;
  std::string (*show)(const v1::GetStatusReply& reply, absl::Time started);
};
constexpr StatusPath kStatusPaths[] = {
    {"/api/v1/status", "application/json",
     [](const v1::GetStatusReply& reply, absl::Time) { return StatusJson(reply, absl::Now()); }},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", &MetricsText},
    {kHealthPath, "text/plain; charset=utf-8",
     [](const v1::GetStatusReply&, absl::Time) { return std::string("ok\n"); }},
};
constexpr absl::string_view kCurvesPath = "/api/v1/curves";

class WebServerImpl final : public WebServer {
 public:
  WebServerImpl(Options options, std::shared_ptr<grpc::Channel> service)
      : options_(std::move(options)), stub_(v1::Rendezvous::NewStub(std::move(service))) {
    evthread_use_pthreads();  // for the end and for answers, which other threads signal
    base_ = event_base_new();
    http_ = evhttp_new(base_);
    answered_ = event_new(base_, -1, 0, &WebServerImpl::OnAnswered, this);
    look_ = event_new(base_, -1, 0, &WebServerImpl::OnLook, this);
    WaitForLook(CurveBook::kPeriod);
  }

  ~WebServerImpl() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wanted_.notify_all();
    if (asker_.joinable()) asker_.join();
    if (thread_.joinable()) {
      event_base_loopbreak(base_);
      thread_.join();
    }
    event_free(answered_);
    event_free(look_);
    guests_.reset();
    evhttp_free(http_);
    event_base_free(base_);
  }

  absl::Status Listen() {
    const std::string& listen = options_.listen;
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
    guests_ = std::make_unique<WebGuests>(
        base_, http_, bound, options_.bounds.value_or(WebBoundsFor(DescriptorLimit())));
    port_ = PortOf(evhttp_bound_socket_get_fd(bound));
    DDPRUN_ASSIGN_OR_RETURN(thread_, StartThread("the status page", [this] {
                              event_base_loop(base_, EVLOOP_NO_EXIT_ON_EMPTY);
                            }));
    DDPRUN_ASSIGN_OR_RETURN(asker_, StartThread("the status page's asker", [this] { Ask(); }));
    return absl::OkStatus();
  }

  void MoveTo(std::shared_ptr<grpc::Channel> service) override {
    const std::lock_guard lock(mutex_);
    stub_ = v1::Rendezvous::NewStub(std::move(service));
  }
  uint16_t port() const override { return port_; }

 private:
  static void OnRequest(evhttp_request* request, void* self) {
    const evhttp_cmd_type method = evhttp_request_get_command(request);
    if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
      return Send(request, {.status = HTTP_BADMETHOD, .body = "read only: GET or HEAD\n"});
    }
    const char* path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    static_cast<WebServerImpl*>(self)->Serve(request, path == nullptr ? "" : path);
  }

  void Serve(evhttp_request* request, absl::string_view path) {
    const char* authorization =
        evhttp_find_header(evhttp_request_get_input_headers(request), "Authorization");
    if (!options_.password.empty() && path != kHealthPath &&
        !IsAuthorized(authorization == nullptr ? "" : authorization, options_.password)) {
      return Send(request, {.status = kUnauthorized,
                            .body = "this page has a password (--status_page_token_file): send it "
                                    "as Bearer, or as Basic with any user\n"});
    }
    for (const StatusPath& one : kStatusPaths) {
      if (path != one.path) continue;
      waiting_.push_back({request, &one});
      return AskIfIdle();
    }
    Send(request, path == kCurvesPath ? Answer{.type = "application/json",
                                               .body = CurvesJson(book_, MonotonicNow())}
                                      : AnswerTo(path));
  }

  static Answer AnswerTo(absl::string_view path) {
    for (const PageFile& file : kPageFiles) {
      if (path == file.path) return {.type = file.type, .body = file.text};
    }
    return {.status = HTTP_NOTFOUND,
            .body = "there are /, /api/v1/status, /api/v1/curves, /metrics and /healthz\n"};
  }

  // ------------------------------------------------------------- asking on a thread of its own

  // A waiting request. If its client is gone, evhttp frees it when it is answered.
  struct Waiting {
    evhttp_request* request;
    const StatusPath* path;
  };

  void AskIfIdle() {
    if (is_asking_ || (waiting_.empty() && !look_is_due_)) return;
    is_asking_ = true;
    look_is_due_ = false;
    asked_ = std::exchange(waiting_, {});
    {
      const std::lock_guard lock(mutex_);
      ask_ = true;
    }
    wanted_.notify_all();
  }

  // Runs on asker_.
  void Ask() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wanted_.wait(lock, [this] { return ask_ || ending_; });
      if (ending_) return;
      ask_ = false;
      const std::shared_ptr<v1::Rendezvous::Stub> stub = stub_;
      lock.unlock();
      v1::GetStatusReply reply;
      const Instant began = MonotonicNow();
      const grpc::Status status =
          FetchWholeStatus(*stub, /*run_id=*/"", options_.token, kPatience, &reply);
      lock.lock();
      cost_ = MonotonicNow() - began;
      answer_ = status.ok() ? Status(std::move(reply))
                            : Status(absl::UnavailableError(status.error_message()));
      event_active(answered_, 0, 0);
    }
  }

  static void OnAnswered(evutil_socket_t, short, void* self) {
    static_cast<WebServerImpl*>(self)->AnswerAll();
  }

  void AnswerAll() {
    Status answer;
    absl::Duration cost;
    {
      const std::lock_guard lock(mutex_);
      answer = std::move(answer_);
      cost = cost_;
    }
    is_asking_ = false;
    const Instant now = MonotonicNow();
    if (answer.ok()) book_.Take(now, ReadingsOf(*answer, now));
    WaitForLook(answer.ok() ? CurveBook::PauseAfter(cost) : CurveBook::kPeriod);
    for (const Waiting& one : std::exchange(asked_, {})) {
      Send(one.request, FromStatus(*one.path, answer));
    }
    AskIfIdle();
  }

  Answer FromStatus(const StatusPath& path, const Status& status) const {
    if (status.ok()) return {.type = path.type, .body = path.show(*status, started_)};
    return {.status = HTTP_SERVUNAVAIL,
            .body = absl::StrCat(
                "the rendezvous service doesn't answer: ", status.status().message(), "\n")};
  }

  // ------------------------------------------------------------- curves without readers

  // Restarts the wait for the next look. Every answer does so, whichever client asked for it.
  void WaitForLook(absl::Duration pause) {
    const timeval time = absl::ToTimeval(pause);
    evtimer_add(look_, &time);
  }

  static void OnLook(evutil_socket_t, short, void* self) {
    auto* const server = static_cast<WebServerImpl*>(self);
    server->look_is_due_ = true;
    server->AskIfIdle();
  }

  const Options options_;
  const absl::Time started_ = absl::Now();
  event_base* base_ = nullptr;
  evhttp* http_ = nullptr;
  event* answered_ = nullptr;
  event* look_ = nullptr;              // a timer
  std::unique_ptr<WebGuests> guests_;  // of http_; destroyed before it
  uint16_t port_ = 0;
  std::vector<Waiting> waiting_;  // the thread's: requests for the next status
  std::vector<Waiting> asked_;    // the thread's: requests for the status that is under way
  bool is_asking_ = false;        // the thread's, like the fields below; asked_ may be empty
  bool look_is_due_ = false;
  CurveBook book_;
  std::mutex mutex_;  // guards the fields below
  std::condition_variable wanted_;
  std::shared_ptr<v1::Rendezvous::Stub> stub_;
  bool ask_ = false;
  bool ending_ = false;
  Status answer_;
  absl::Duration cost_;  // how long the last answer took
  std::thread thread_;
  std::thread asker_;
};

}  // namespace

std::string AnnouncePage(const WebServer::Options& options, uint16_t port) {
  const std::string host = options.listen.substr(0, options.listen.rfind(':'));
  std::string url = absl::StrCat("http://", host, ":", port, "/");
  Notify(absl::StrCat("status page on ", url, " (metrics: ", url, "metrics)"));
  // A name for this machine alone that isn't known here gets a needless warning.
  if (options.password.empty() && !IsLoopback(host)) {
    Notify(absl::StrCat("warning: anybody who can reach ", url, " can read the jobs' status: ",
                        "--status_page_token_file gives the page a password"));
  }
  return url;
}

absl::StatusOr<std::unique_ptr<WebServer>> WebServer::Start(
    Options options, std::shared_ptr<grpc::Channel> service) {
  auto server = std::make_unique<WebServerImpl>(std::move(options), std::move(service));
  DDPRUN_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace ddprun::rendezvous
