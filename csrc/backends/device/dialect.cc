#include "backends/device/dialect.h"

#include <algorithm>
#include <bit>

#include "backends/device/block_products.h"
#include "emit/c_doubles.h"
#include "emit/c_like_text.h"

namespace mithril::device {

std::string PrintOptions::prelude() const {
  const std::string head = *dialect.head;
  return (has_doubles ? head : emit::without_doubles(head)) + emit::kInstructions;
}

void PrintOptions::limit_threads(int most) {
  constexpr int kFewest = 16;  // lanes of the canonical order
  const auto rows = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(most, 0))));
  threads_of_rows = rows < kFewest ? 0 : std::min(threads_of_rows, rows);
  if (tile.threads > most) tile.threads = threads_of_tile(most);
}

}  // namespace mithril::device
