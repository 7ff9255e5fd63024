#include "rendezvous/core/job/recovery.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ddprun::rendezvous {

void Recovery::Begin(Instant now, uint64_t life, std::set<uint64_t> awaited, uint64_t vanished) {
  DDPRUN_CHECK(life_ == 0 && life > 0, absl::StrCat(life));
  life_ = life;
  news_ = true;
  began_ = now;
  awaited_ = std::move(awaited);
  vanished_ = vanished;
}

uint64_t Recovery::vanished() const {
  return awaited_.size() == 1 && awaited_.contains(vanished_) ? vanished_ : 0;
}

bool Recovery::NoteBack(uint64_t node_order) {
  NoteHeard(node_order);
  if (awaited_.erase(node_order) == 0) return false;
  ++back_;
  return awaited_.empty();
}

bool Recovery::NoteGone(uint64_t node_order) {
  if (awaited_.erase(node_order) == 0) return false;
  ++gone_;
  return awaited_.empty();
}

std::string Recovery::BrokenInvariant() const {
  if (life_ == 0 && (open() || back_ + gone_ > 0)) return "nodes are awaited by the first service";
  return awaited_.contains(0) ? "a node without an order is awaited" : "";
}

}  // namespace ddprun::rendezvous
