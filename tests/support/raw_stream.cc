#include "tests/support/raw_stream.h"

#include <utility>

#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {

class RawStream::Call final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                              public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<LoopInbox> inbox, const std::shared_ptr<grpc::Channel>& channel)
      : inbox_(std::move(inbox)), stub_(channel) {}

  void Start(bool reads) {
    self_ = shared_from_this();
    stub_.PrepareBidiStreamingCall(&context, "/ddprun.rendezvous.v1.Rendezvous/Attend",
                                   grpc::StubOptions(), this);
    AddHold();
    if (reads) StartRead(&incoming_);
    StartCall();
  }

  void Advance() {
    if (over || writing_) return;
    if (!queue.empty()) {
      writing_ = true;
      return StartWrite(&queue.front());
    }
    if (half_close && !std::exchange(half_closed_, true)) StartWritesDone();
  }

  void Read() {
    if (!over) StartRead(&incoming_);
  }

  // Starts no further operation.
  void End() {
    if (!std::exchange(over, true)) RemoveHold();
  }

  void OnReadInitialMetadataDone(bool ok) override {
    Post([this, ok] { open = ok; });
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Post([this] { End(); });
    v1::ServiceMessage message;
    const bool parsed = ParseBytes(incoming_, &message);
    Post([this, parsed, message] {
      if (parsed) received.push_back(message);
      Read();
    });
  }
  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      writing_ = false;
      queue.pop_front();
      if (!ok) queue.clear();
      Advance();
    });
  }
  void OnDone(const grpc::Status& end) override {
    Post([this, end] { status = FromGrpcStatus(end); });
    self_.reset();
  }

  grpc::ClientContext context;
  std::deque<grpc::ByteBuffer> queue;
  std::vector<v1::ServiceMessage> received;
  std::optional<absl::Status> status;
  bool open = false;
  bool half_close = false;
  bool over = false;

 private:
  void Post(std::function<void()> call) {
    inbox_->Post([self = shared_from_this(), call = std::move(call)] { call(); });
  }

  std::shared_ptr<LoopInbox> inbox_;
  grpc::GenericStub stub_;
  std::shared_ptr<Call> self_;
  grpc::ByteBuffer incoming_;
  bool writing_ = false;
  bool half_closed_ = false;
};

RawStream::RawStream(EventLoop* loop, const std::shared_ptr<grpc::Channel>& channel, bool reads)
    : inbox_(LoopInbox::Create(loop)), call_(std::make_shared<Call>(inbox_, channel)) {
  call_->Start(reads);
}

RawStream::~RawStream() {
  inbox_->Close();
  call_->context.TryCancel();
  call_->End();
}

void RawStream::SendBytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  call_->queue.emplace_back(&slice, 1);
  call_->Advance();
}

void RawStream::HalfClose() {
  call_->half_close = true;
  call_->Advance();
}

void RawStream::Cancel() { call_->context.TryCancel(); }
void RawStream::Read() { call_->Read(); }
bool RawStream::open() const { return call_->open; }
bool RawStream::done() const { return call_->status.has_value(); }
absl::Status RawStream::status() const { return *call_->status; }
const std::vector<v1::ServiceMessage>& RawStream::received() const { return call_->received; }
size_t RawStream::unsent() const { return call_->queue.size(); }

const v1::ServiceMessage* RawStream::Last(bool (v1::ServiceMessage::*has)() const) const {
  for (auto it = received().rbegin(); it != received().rend(); ++it) {
    if (((*it).*has)()) return &*it;
  }
  return nullptr;
}

}  // namespace ddprun::rendezvous
