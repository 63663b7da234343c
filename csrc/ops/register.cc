// The order of families is the order of the op list in documentation and stubs.
#include "ir/registry.h"
#include "ops/control.h"
#include "ops/derivative.h"
#include "ops/families.h"

namespace mithril::ir {

void define_builtin_ops(Registry& registry) {
  struct Family {
    const char* name;
    void (*define)(OpFamily&);
    Precision precision = Precision::kFollows;
  };
  constexpr Family kFamilies[] = {
      {"elementwise", ops::define_elementwise},
      {"special", ops::define_special, Precision::kWide},
      {"angle", ops::define_angle},
      {"robust", ops::define_robust, Precision::kWide},
      {"activation", ops::define_activation},
      {"smooth_activation", ops::define_smooth_activation},
      {"threshold_activation", ops::define_threshold_activation},
      {"reduce", ops::define_reduce, Precision::kWide},
      {"scan", ops::define_scan, Precision::kWide},
      {"movement", ops::define_movement},
      {"rearrange", ops::define_rearrange},
      {"diagonal", ops::define_diagonal},
      {"index", ops::define_index},
      {"places", ops::define_places},
      {"order", ops::define_order},
      {"matmul", ops::define_matmul, Precision::kHalf},
      {"linalg", ops::define_linalg, Precision::kWide},
      {"matrix_functions", ops::define_matrix_functions, Precision::kWide},
      {"fourier", ops::define_fourier, Precision::kWide},
      {"creation", ops::define_creation},
      {"host", ops::define_host},
      {"conv", ops::define_conv, Precision::kHalf},
      {"pool", ops::define_pool},
      {"norm", ops::define_norm, Precision::kWide},
      {"attention", ops::define_attention, Precision::kHalf},
      {"loss", ops::define_loss, Precision::kWide},
      {"pointwise_loss", ops::define_pointwise_loss, Precision::kWide},
      {"similarity_loss", ops::define_similarity_loss, Precision::kWide},
      {"likelihood_loss", ops::define_likelihood_loss, Precision::kWide},
      {"features", ops::define_features, Precision::kWide},
      {"random", ops::define_random},
      {"optimizer", ops::define_optimizer, Precision::kWide},
      {"derivative", ops::define_derivative},
      {"control", ops::define_control},
  };
  for (const Family& one : kFamilies) {
    OpFamily family(registry, one.name, one.precision);
    one.define(family);
  }
}

}  // namespace mithril::ir
