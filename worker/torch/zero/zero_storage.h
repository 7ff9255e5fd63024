#ifndef DDPRUN_WORKER_TORCH_ZERO_ZERO_STORAGE_H_
#define DDPRUN_WORKER_TORCH_ZERO_ZERO_STORAGE_H_

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/torch/zero/zero_layout.h"

namespace ddprun::worker {

// A parameter that is trained.
struct ZeroParameter {
  torch::Tensor tensor;
  std::string name;   // in the module
  size_t group = 0;   // of the optimizer
  size_t number = 0;  // over all groups, frozen ones included: its name in a state
};

struct ZeroBucket {
  ZeroBucketLayout layout;
  torch::Tensor parameters;  // [world_size * share]; the module's parameters are views of it
  torch::Tensor share;       // [share]: this rank's part of it
  // What the optimizer updates: `share` itself, or a copy of it, in CPU memory if state is
  // offloaded. In stage 3 `parameters` and `share` have memory only while they are gathered.
  torch::Tensor updated;
  // The gradient of `updated`; undefined before the first one.
  torch::Tensor gradient;
};

// A piece, and its part of the bucket's `updated`, which is a parameter for the optimizer.
struct ZeroPieceTensor {
  ZeroPiece piece;
  torch::Tensor tensor;  // [length]
};

struct ZeroPlacement {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  bool offloads = false;  // `updated` is in CPU memory
  bool apart = false;     // `updated` is a copy on any device (stage 3)
};

// The parameters in their buckets, and this rank's share of them. Order of the pieces: by group,
// then by parameter, which is how the share's optimizer counts its parameters.
class ZeroStorage {
 public:
  // Moves the parameters into buckets: each becomes a view.
  ZeroStorage(std::vector<ZeroParameter> parameters, std::vector<ZeroBucketLayout> layouts,
              const ZeroPlacement& placement);

  const std::vector<ZeroParameter>& parameters() const { return parameters_; }
  std::vector<ZeroBucket>& buckets() { return buckets_; }
  const std::vector<ZeroBucket>& buckets() const { return buckets_; }
  std::vector<ZeroPieceTensor>& pieces() { return pieces_; }
  const std::vector<ZeroPieceTensor>& pieces() const { return pieces_; }
  uint32_t rank() const { return placement_.rank; }
  bool offloads() const { return placement_.offloads; }

  // A piece's part of its bucket's `flat` [share].
  static torch::Tensor PartOf(const ZeroPiece& piece, const torch::Tensor& flat) {
    return flat.narrow(0, piece.share_begin, piece.length);
  }
  // The bucket's gradient, made when it is first needed, on the device of `updated`; pinned as
  // `updated` is, so that a GPU copies to it at full speed.
  static torch::Tensor& GradientOf(ZeroBucket& bucket);

  // Copies the updated shares back to the parameters, and the other way.
  void PublishShares();
  void RenewCopies();
  static void RenewCopy(ZeroBucket& bucket);

 private:
  void FillBucket(ZeroBucket& bucket);

  std::vector<ZeroParameter> parameters_;
  std::vector<ZeroBucket> buckets_;
  std::vector<ZeroPieceTensor> pieces_;
  const ZeroPlacement placement_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_STORAGE_H_
