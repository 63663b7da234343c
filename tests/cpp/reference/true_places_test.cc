#include "reference/support.h"

namespace mithril::testing_support {
namespace {

template <class Place, class Run>
void expect_places(Run run, const std::vector<unsigned char>& mask) {
  std::vector<Place> wanted;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != 0) wanted.push_back(static_cast<Place>(i));
  }
  const Guarded<unsigned char> x(mask.size());
  const Guarded<Place> places(mask.size()), count(1);
  for (size_t i = 0; i < mask.size(); ++i) x[i] = mask[i];
  run(static_cast<int64_t>(mask.size()), x.data(), places.data(), count.data(), 0, 1);
  ASSERT_EQ(count[0], static_cast<Place>(wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(places[i], wanted[i]);
}

TEST(ReferenceTruePlaces, AreInOrderAndWithinBounds) {
  std::mt19937_64 random(1);
  for (const cpu::Isa isa : supported_isas()) {
    const auto& kernels = cpu::reference_kernels(isa);
    for (size_t n = 0; n < 70; ++n) {
      for (const uint64_t one_in : {1, 2, 9}) {  // all true, half, few
        std::vector<unsigned char> mask(n);
        for (unsigned char& each : mask) each = random() % one_in == 0 ? 1 : 0;
        expect_places<int32_t>(kernels.true_places_i32, mask);
        expect_places<int64_t>(kernels.true_places_i64, mask);
        expect_places<int64_t>(kernels.true_places_i64, std::vector<unsigned char>(n, 0));
      }
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support
