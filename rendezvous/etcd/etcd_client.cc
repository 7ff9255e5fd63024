#include "rendezvous/etcd/etcd_client.h"

#include <grpc/support/time.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/text.h"
#include "ddprun/etcd/rpc.grpc.pb.h"
#include "rendezvous/client/failure_text.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/tls.h"

namespace ddprun::rendezvous {
namespace {

namespace pb = etcdserverpb;

// Pause between two rounds through all members.
constexpr absl::Duration kPause = absl::Milliseconds(50);
// No keepalive: etcd ends connections that are pinged more often than every 5 s. The timeout of
// each try bounds what a silent member costs.
constexpr int kBackoffMs = 100;

std::shared_ptr<grpc::Channel> Connected(const std::string& endpoint,
                                         const std::shared_ptr<grpc::ChannelCredentials>& how) {
  InitializeGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kBackoffMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kConnectTimeout)));
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(endpoint, how, arguments);
}

// A file that can't be read at the start is a mistake; later it may just be being replaced.
absl::Status CheckPem(const std::string& file) {
  if (file.empty()) return absl::OkStatus();
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream || text.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("for etcd: ", Quoted(file), " can't be read, or is no PEM file"));
  }
  return absl::OkStatus();
}

// Whether the member wasn't reached, or not in time. A member of etcd 3.4 whose leader doesn't
// answer before the call's deadline says so with UNKNOWN and Go's words.
bool IsOfConnection(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) ||
         (absl::IsUnknown(status) &&
          absl::StrContains(status.message(), "context deadline exceeded"));
}

}  // namespace

// One call, with all its tries. The data that gRPC's threads use isn't in here.
class EtcdClient::Operation {
 public:
  // Gets the outcome of a try; on the loop.
  using OnTry = std::function<void(absl::Status)>;

  Operation(absl::Duration patience, absl::Duration try_timeout)
      : patience_(patience), try_timeout_(try_timeout) {}
  virtual ~Operation() = default;

  // Begins a new try; its outcome is posted.
  virtual void Launch(const std::shared_ptr<grpc::Channel>& channel, const std::string& token,
                      absl::Duration timeout, std::shared_ptr<LoopInbox> inbox, OnTry on_try) = 0;
  // Breaks off the try.
  virtual void Cancel() = 0;
  // Calls `done` with the status, or with the reply of the last try if that was OK.
  virtual void Notify(const absl::Status& status) = 0;

  absl::Duration Left(Instant now) const { return deadline_ - now; }
  absl::Duration TryTimeout(Instant now) const { return std::min(try_timeout_, Left(now)); }
  void Start(Instant now) { deadline_ = now + patience_; }

  size_t tries = 0;
  size_t beside = 0;           // tries the member this many places after the first one
  bool waits = false;          // a call that ends without an answer is no error
  bool needs_token = true;     // if etcd has users
  bool authenticated = false;  // has had a fresh token
  std::unique_ptr<Timer> pause;

 private:
  const absl::Duration patience_;
  const absl::Duration try_timeout_;
  Instant deadline_;
};

namespace {

void Prepare(grpc::ClientContext& context, const std::string& token, absl::Duration timeout) {
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_micros(absl::ToInt64Microseconds(timeout), GPR_TIMESPAN)));
  if (!token.empty()) context.AddMetadata("token", token);
}

}  // namespace

template <typename Request, typename Reply>
class EtcdClient::Unary final : public Operation {
 public:
  // Makes a stub from the channel and calls the method.
  using Method = std::function<void(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext*,
                                    const Request*, Reply*, std::function<void(grpc::Status)>)>;

  Unary(Request request, absl::Duration patience, Method method, Done<Reply> done)
      : Operation(patience, kTryTimeout),
        request_(std::move(request)),
        method_(std::move(method)),
        done_(std::move(done)) {}

  void Launch(const std::shared_ptr<grpc::Channel>& channel, const std::string& token,
              absl::Duration timeout, std::shared_ptr<LoopInbox> inbox, OnTry on_try) override {
    flight_ = std::make_shared<Flight>();
    flight_->request = request_;
    Prepare(flight_->context, token, timeout);
    Flight* const raw = flight_.get();
    method_(channel, &raw->context, &raw->request, &raw->reply,
            [flight = flight_, inbox = std::move(inbox),
             on_try = std::move(on_try)](const grpc::Status& status) mutable {
              inbox->Post([on_try = std::move(on_try), status = FromGrpcStatus(status)] {
                on_try(status);
              });
            });
  }
  void Cancel() override {
    if (flight_ != nullptr) flight_->context.TryCancel();
  }
  void Notify(const absl::Status& status) override {
    if (!status.ok()) return done_(status);
    done_(std::move(flight_->reply));
  }

 private:
  struct Flight {
    grpc::ClientContext context;
    Request request;
    Reply reply;
  };
  const Request request_;
  const Method method_;
  const Done<Reply> done_;
  std::shared_ptr<Flight> flight_;  // also gRPC's while it is under way
};

// A stream for one request, up to the first reply that answers it.
template <typename Request, typename Reply>
class EtcdClient::Stream final : public Operation {
 public:
  using Method = std::function<void(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext*,
                                    grpc::ClientBidiReactor<Request, Reply>*)>;

  Stream(Request request, absl::Duration patience, absl::Duration try_timeout, Method method,
         bool (*answers)(const Reply&), Done<Reply> done)
      : Operation(patience, try_timeout),
        request_(std::move(request)),
        method_(std::move(method)),
        answers_(answers),
        done_(std::move(done)) {}

  void Launch(const std::shared_ptr<grpc::Channel>& channel, const std::string& token,
              absl::Duration timeout, std::shared_ptr<LoopInbox> inbox, OnTry on_try) override {
    flight_ = std::make_shared<Flight>(answers_, std::move(inbox), std::move(on_try));
    flight_->request = request_;
    Prepare(flight_->context, token, timeout);
    flight_->self = flight_;
    method_(channel, &flight_->context, flight_.get());
    flight_->StartWrite(&flight_->request);
    flight_->StartRead(&flight_->reply);
    flight_->StartCall();
  }
  void Cancel() override {
    if (flight_ != nullptr) flight_->context.TryCancel();
  }
  void Notify(const absl::Status& status) override {
    if (!status.ok()) return done_(status);
    done_(std::move(flight_->reply));
  }

 private:
  struct Flight final : public grpc::ClientBidiReactor<Request, Reply> {
    Flight(bool (*is_answer)(const Reply&), std::shared_ptr<LoopInbox> to, OnTry tell)
        : answers(is_answer), inbox(std::move(to)), on_try(std::move(tell)) {}

    void OnReadDone(bool ok) override {
      if (!ok) return;
      if (!answers(reply)) return this->StartRead(&reply);
      answered = true;
      context.TryCancel();  // etcd would hold the stream open
    }
    void OnDone(const grpc::Status& status) override {
      const std::shared_ptr<Flight> keep = std::move(self);
      absl::Status outcome = answered ? absl::OkStatus() : FromGrpcStatus(status);
      if (!answered && outcome.ok()) outcome = absl::UnavailableError("the stream ended");
      inbox->Post([on_try = std::move(on_try), outcome = std::move(outcome)] { on_try(outcome); });
    }

    bool (*const answers)(const Reply&);
    const std::shared_ptr<LoopInbox> inbox;
    OnTry on_try;
    grpc::ClientContext context;
    Request request;
    Reply reply;
    bool answered = false;         // gRPC's
    std::shared_ptr<Flight> self;  // until OnDone
  };
  const Request request_;
  const Method method_;
  bool (*const answers_)(const Reply&);
  const Done<Reply> done_;
  std::shared_ptr<Flight> flight_;
};

// ------------------------------------------------------------- the members and the tries

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Create(EventLoop* loop,
                                                               EtcdSettings settings) {
  DDPRUN_CHECK(!settings.endpoints.empty(), "etcd has an endpoint");
  std::unique_ptr<EtcdClient> client(new EtcdClient(loop, std::move(settings)));
  if (absl::Status status = client->Connect(); !status.ok()) return status;
  return client;
}

EtcdClient::EtcdClient(EventLoop* loop, EtcdSettings settings)
    : loop_(loop), settings_(std::move(settings)), inbox_(LoopInbox::Create(loop)) {}

EtcdClient::~EtcdClient() {
  inbox_->Close();
  for (const auto& [id, operation] : operations_) operation->Cancel();
}

absl::Status EtcdClient::Connect() {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (settings_.tls) {
    for (const auto* file : {&settings_.ca_file, &settings_.cert_file, &settings_.key_file}) {
      if (absl::Status read = CheckPem(*file); !read.ok()) return read;
    }
    credentials = ForeignCredentialsOf(
        {.ca = settings_.ca_file, .certificate = settings_.cert_file, .key = settings_.key_file});
  }
  for (const std::string& endpoint : settings_.endpoints) {
    members_.push_back({.endpoint = endpoint, .channel = Connected(endpoint, credentials)});
  }
  return absl::OkStatus();
}

std::vector<std::string> EtcdClient::Endpoints() const {
  std::vector<std::string> endpoints = settings_.endpoints;
  std::rotate(endpoints.begin(), endpoints.begin() + static_cast<ptrdiff_t>(current_),
              endpoints.end());
  return endpoints;
}

std::string EtcdClient::Name() const {
  return absl::StrCat("etcd at ", absl::StrJoin(settings_.endpoints, ", "));
}

uint64_t EtcdClient::Begin(std::unique_ptr<Operation> operation) {
  const uint64_t id = next_id_++;
  operation->Start(loop_->Now());
  operation->pause = std::make_unique<Timer>(loop_, [this, id] { Try(id); });
  operations_.emplace(id, std::move(operation));
  Try(id);
  return id;
}

// Drops a call when its caller needs no answer any more.
void EtcdClient::Abandon(uint64_t id) {
  const auto found = operations_.find(id);
  if (found == operations_.end()) return;
  found->second->Cancel();
  operations_.erase(found);
}

void EtcdClient::Try(uint64_t id) {
  const auto found = operations_.find(id);
  if (found == operations_.end()) return;
  Operation& operation = *found->second;
  const bool with_token = operation.needs_token && !settings_.user.empty();
  if (with_token && token_.empty()) return Authenticate(id);
  ++operation.tries;
  const size_t member = (current_ + operation.beside) % members_.size();
  const absl::Duration timeout =
      std::max(operation.TryTimeout(loop_->Now()), absl::Milliseconds(1));
  operation.Launch(members_[member].channel, with_token ? token_ : "", timeout, inbox_,
                   [this, id, member](const absl::Status& status) { OnTried(id, member, status); });
}

void EtcdClient::OnTried(uint64_t id, size_t member, const absl::Status& status) {
  const auto found = operations_.find(id);
  if (found == operations_.end()) return;
  Operation& operation = *found->second;
  // A try that timed out doesn't say why no member answers; an earlier one may have.
  if (!absl::IsDeadlineExceeded(status)) members_[member].trouble = status;
  if (status.ok()) {
    if (operation.waits) current_ = member;
    return End(id, status);
  }
  const bool of_token =
      absl::IsUnauthenticated(status) && operation.needs_token && !settings_.user.empty();
  if (of_token) {
    token_.clear();  // the token has expired, or the member doesn't know it
    if (!std::exchange(operation.authenticated, true)) return Try(id);
    // A fresh token may fail as well, if tokens live shorter than a busy machine needs to use them.
    if (operation.Left(loop_->Now()) > kPause) return operation.pause->Arm(loop_->Now() + kPause);
  }
  if (!IsOfConnection(status)) return End(id, Explain(status, member));
  const bool in_vain = operation.waits && absl::IsDeadlineExceeded(status);
  if (operation.beside != 0) {
    operation.beside = operation.beside % (members_.size() - 1) + 1;
  } else if (current_ == member && !in_vain) {  // other calls may have moved on meanwhile
    current_ = (member + 1) % members_.size();
  }
  if (operation.Left(loop_->Now()) <= absl::Milliseconds(1)) {
    const absl::Status& trouble = members_[member].trouble;
    return End(id, Explain(IsOfConnection(trouble) ? trouble : status, member));
  }
  const bool all_were_tried = operation.tries % members_.size() == 0 || operation.beside != 0;
  operation.pause->Arm(loop_->Now() + (all_were_tried ? kPause : absl::ZeroDuration()));
}

void EtcdClient::End(uint64_t id, const absl::Status& status) {
  const auto found = operations_.find(id);
  // `done` may destroy the client.
  const std::unique_ptr<Operation> operation = std::move(found->second);
  operations_.erase(found);
  operation->pause.reset();
  operation->Notify(status);
}

absl::Status EtcdClient::Explain(const absl::Status& status, size_t member) const {
  const std::string name = absl::StrCat("etcd at ", members_[member].endpoint);
  if (!IsOfConnection(status)) return {status.code(), absl::StrCat(name, ": ", status.message())};
  if (IsTlsTrouble(status)) {
    return absl::UnauthenticatedError(absl::StrCat(
        name,
        " can't be authenticated (TLS: ", status.message().substr(status.message().rfind(':') + 1),
        "): has its certificate expired, does it name that host, and is ca_cert of "
        "--rdzv_conf the CA that signed it?"));
  }
  const char* hint = "; does it want TLS (--rdzv_conf protocol=https)?";
  if (settings_.tls) {
    hint = settings_.cert_file.empty()
               ? "; does it speak TLS, and want a certificate (--rdzv_conf cert=…,key=…)?"
               : "; does it speak TLS, and know the CA of our certificate?";
  }
  return absl::UnavailableError(absl::StrCat(Name(), " does not answer; ",
                                             members_[member].endpoint, ": ",
                                             BareReason(status.message(), hint)));
}

// Each call without a token asks for one of its own; the last one is kept.
void EtcdClient::Authenticate(uint64_t waiting) {
  pb::AuthenticateRequest request;
  request.set_name(settings_.user);
  request.set_password(settings_.password);
  auto operation = std::make_unique<Unary<pb::AuthenticateRequest, pb::AuthenticateResponse>>(
      std::move(request), operations_.at(waiting)->Left(loop_->Now()),
      [](const auto& channel, auto* context, const auto* in, auto* out, auto callback) {
        pb::Auth::NewStub(channel)->async()->Authenticate(context, in, out, std::move(callback));
      },
      [this, waiting](const absl::StatusOr<pb::AuthenticateResponse>& reply) {
        OnAuthenticated(waiting, reply);
      });
  operation->needs_token = false;
  Begin(std::move(operation));
}

void EtcdClient::OnAuthenticated(uint64_t waiting,
                                 const absl::StatusOr<pb::AuthenticateResponse>& reply) {
  if (operations_.count(waiting) == 0) return;
  if (!reply.ok()) {
    return End(waiting, {reply.status().code(), absl::StrCat("as user '", settings_.user,
                                                             "': ", reply.status().message())});
  }
  token_ = reply->token();
  Try(waiting);
}

// ------------------------------------------------------------- the calls

void EtcdClient::Range(const std::string& key, absl::Duration patience,
                       Done<pb::RangeResponse> done) {
  pb::RangeRequest request;
  request.set_key(key);
  Range(std::move(request), patience, std::move(done));
}

void EtcdClient::Range(pb::RangeRequest request, absl::Duration patience,
                       Done<pb::RangeResponse> done) {
  Begin(std::make_unique<Unary<pb::RangeRequest, pb::RangeResponse>>(
      std::move(request), patience,
      [](const auto& channel, auto* context, const auto* in, auto* out, auto callback) {
        pb::KV::NewStub(channel)->async()->Range(context, in, out, std::move(callback));
      },
      std::move(done)));
}

void EtcdClient::Txn(pb::TxnRequest request, absl::Duration patience, Done<pb::TxnResponse> done) {
  Begin(std::make_unique<Unary<pb::TxnRequest, pb::TxnResponse>>(
      std::move(request), patience,
      [](const auto& channel, auto* context, const auto* in, auto* out, auto callback) {
        pb::KV::NewStub(channel)->async()->Txn(context, in, out, std::move(callback));
      },
      std::move(done)));
}

void EtcdClient::Grant(int64_t lease, absl::Duration ttl, absl::Duration patience,
                       Done<pb::LeaseGrantResponse> done) {
  pb::LeaseGrantRequest request;
  request.set_id(lease);
  request.set_ttl(std::max<int64_t>(1, absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1)))));
  Begin(std::make_unique<Unary<pb::LeaseGrantRequest, pb::LeaseGrantResponse>>(
      std::move(request), patience,
      [](const auto& channel, auto* context, const auto* in, auto* out, auto callback) {
        pb::Lease::NewStub(channel)->async()->LeaseGrant(context, in, out, std::move(callback));
      },
      std::move(done)));
}

void EtcdClient::Revoke(int64_t lease, absl::Duration patience,
                        Done<pb::LeaseRevokeResponse> done) {
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  Begin(std::make_unique<Unary<pb::LeaseRevokeRequest, pb::LeaseRevokeResponse>>(
      std::move(request), patience,
      [](const auto& channel, auto* context, const auto* in, auto* out, auto callback) {
        pb::Lease::NewStub(channel)->async()->LeaseRevoke(context, in, out, std::move(callback));
      },
      std::move(done)));
}

void EtcdClient::KeepAlive(int64_t lease, absl::Duration patience,
                           Done<pb::LeaseKeepAliveResponse> done) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  Begin(std::make_unique<Stream<pb::LeaseKeepAliveRequest, pb::LeaseKeepAliveResponse>>(
      std::move(request), patience, kTryTimeout,
      [](const auto& channel, auto* context, auto* reactor) {
        pb::Lease::NewStub(channel)->async()->LeaseKeepAlive(context, reactor);
      },
      [](const pb::LeaseKeepAliveResponse& /*reply*/) { return true; }, std::move(done)));
}

void EtcdClient::AwaitChange(const std::string& key, int64_t revision, absl::Duration patience,
                             const std::function<void(absl::Status)>& done) {
  const size_t watches = std::min<size_t>(members_.size(), 2);
  auto ids = std::make_shared<std::vector<uint64_t>>();
  for (size_t beside = 0; beside < watches; ++beside) {
    pb::WatchRequest request;
    request.mutable_create_request()->set_key(key);
    request.mutable_create_request()->set_start_revision(revision + 1);
    auto watch = std::make_unique<Stream<pb::WatchRequest, pb::WatchResponse>>(
        std::move(request), patience, patience,
        [](const auto& channel, auto* context, auto* reactor) {
          pb::Watch::NewStub(channel)->async()->Watch(context, reactor);
        },
        // A canceled watch counts as a change: etcd has refused it, or has compacted the revision,
        // so the caller reads the key again.
        [](const pb::WatchResponse& reply) { return reply.canceled() || reply.events_size() > 0; },
        [this, ids, beside, done](const absl::StatusOr<pb::WatchResponse>& reply) {
          if (beside != 0 && !reply.ok()) return;  // the first watch reports the error
          for (const uint64_t id : *ids) Abandon(id);
          done(reply.status());
        });
    watch->beside = beside;
    watch->waits = true;
    ids->push_back(Begin(std::move(watch)));
  }
}

}  // namespace ddprun::rendezvous
