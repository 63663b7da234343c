// The order of families is the order of the op list in documentation and stubs.
#include "ir/registry.h"
#include "ops/control.h"
#include "ops/derivative.h"
#include "ops/families.h"

namespace mithril::ir {

void define_builtin_ops(Registry& registry) {
  constexpr std::pair<const char*, void (*)(OpFamily&)> kFamilies[] = {
      {"elementwise", ops::define_elementwise},
      {"special", ops::define_special},
      {"angle", ops::define_angle},
      {"robust", ops::define_robust},
      {"activation", ops::define_activation},
      {"smooth_activation", ops::define_smooth_activation},
      {"threshold_activation", ops::define_threshold_activation},
      {"reduce", ops::define_reduce},
      {"scan", ops::define_scan},
      {"movement", ops::define_movement},
      {"rearrange", ops::define_rearrange},
      {"diagonal", ops::define_diagonal},
      {"index", ops::define_index},
      {"places", ops::define_places},
      {"order", ops::define_order},
      {"matmul", ops::define_matmul},
      {"linalg", ops::define_linalg},
      {"fourier", ops::define_fourier},
      {"creation", ops::define_creation},
      {"host", ops::define_host},
      {"conv", ops::define_conv},
      {"pool", ops::define_pool},
      {"norm", ops::define_norm},
      {"attention", ops::define_attention},
      {"loss", ops::define_loss},
      {"pointwise_loss", ops::define_pointwise_loss},
      {"similarity_loss", ops::define_similarity_loss},
      {"likelihood_loss", ops::define_likelihood_loss},
      {"features", ops::define_features},
      {"random", ops::define_random},
      {"optimizer", ops::define_optimizer},
      {"derivative", ops::define_derivative},
      {"control", ops::define_control},
  };
  for (const auto& [name, define] : kFamilies) {
    OpFamily family(registry, name);
    define(family);
  }
}

}  // namespace mithril::ir
