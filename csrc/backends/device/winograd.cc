#include "backends/device/winograd.h"

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "backends/device/kernel_families.h"
#include "core/rounding.h"
#include "reference/dims.h"
#include "select/kernel_dims.h"

namespace mithril::device {
namespace {

constexpr int64_t kTaps = 3 * 3;
constexpr int64_t kFloat = sizeof(float);

// A device of long items takes a panel of a product, and whole vectors.
constexpr int64_t kLanes = 32;
constexpr int64_t kFewestUnits = 16;        // of the work, where sizes allow as many
constexpr int64_t kLeastUnits = 8;          // fewer leave cores idle that other kernels use
constexpr int64_t kFewestFilters = 32;      // of a share beside a block of tiles
constexpr int64_t kFewestTransformed = 16;  // of a share that is transformed for all tiles
constexpr int64_t kMostShare = 5 << 18;     // bytes of transformed filters: a second cache
constexpr int64_t kItemsOfThread = 2;       // so that threads which are slower get less
// No multiples of a page between elements: all of them would fall on one set of a cache.
constexpr int64_t kPadding = 16;

constexpr int64_t kMostWorkspace = int64_t{256} << 20;  // bytes: more must not replace memory

constexpr int64_t kCounted = -1;
std::atomic<int64_t> forced_tile = kCounted;

/// Divides the work of a step. Where items are long, what is transformed once is shared, and the
/// rest lies in scratch of each item: where there are more tiles than filters, units are blocks of
/// tiles, each with a share of the filters, whose patches lie in scratch; else they are shares of
/// the filters, which lie in scratch, with all tiles.
struct Division {
  WinogradLayout layout;
  bool by_tiles = true;
  int64_t blocks = 1;  // of `lanes` tiles
  int64_t shares = 1;  // of filters
  int64_t u_floats = 0, v_floats = 0, m_floats = 0;

  int64_t units() const { return by_tiles ? blocks * shares : shares; }
  int64_t shared_floats() const { return by_tiles ? u_floats : v_floats; }
  int64_t own_floats() const { return m_floats + (by_tiles ? v_floats : u_floats); }
};

Division divided(const Winograd& conv, Items items) {
  Division out;
  WinogradLayout& at = out.layout;
  at.share = conv.filters;
  at.row = conv.tiles();
  if (items == Items::kLong) {
    at.lanes = kLanes;
    out.blocks = core::ceil_div(conv.tiles(), kLanes);
    out.by_tiles = out.blocks * kLanes >= conv.filters;
    at.row = out.by_tiles ? kLanes : out.blocks * kLanes;
    const auto is_large = [&] {
      return at.share * conv.channels * conv.elements() * kFloat > kMostShare;
    };
    const int64_t fewest = out.by_tiles ? kFewestFilters : kFewestTransformed;
    while (at.share % (2 * fewest) == 0 && (out.units() < kFewestUnits || is_large())) {
      out.shares *= 2;
      at.share /= 2;
    }
  }
  const bool has_all = items == Items::kLong && out.by_tiles;
  at.u_step = (has_all ? conv.filters : at.share) * conv.channels + kPadding;
  at.v_step = conv.channels * at.row + kPadding;
  at.m_step = at.share * at.row + kPadding;
  out.u_floats = conv.elements() * at.u_step;
  out.v_floats = conv.elements() * at.v_step;
  out.m_floats = conv.elements() * at.m_step;
  return out;
}

// The products of all elements: of u, from filter `first` of so many on, with v (a1) to m (a2).
Product product_of(const Winograd& conv, const WinogradLayout& at, const std::string& first,
                   int64_t filters) {
  const int64_t row = conv.turned ? 1 : conv.channels;
  Product out;
  out.batches = conv.elements();
  out.m = at.share;
  out.n = out.b_row = out.c_row = at.row;
  out.k = conv.channels;
  out.begins = fmt::format(
      "const m_i64 at_a = batch * {} + ({}) * {}, at_b = batch * {}, at_c = batch * {};", at.u_step,
      first, row, at.v_step, at.m_step);
  out.left = std::string("u");
  out.left_row = fmt::format("i * {}", row);
  out.left_place = fmt::format("p * {}", conv.turned ? filters : 1);
  out.left_is_affine = true;
  out.b_col = 1;
  return out;
}

std::string pointer(const char* name, const std::string& at, bool is_written) {
  return fmt::format("M_GLOBAL {}m_f32* const {} = {};\n  ", is_written ? "" : "const ", name, at);
}

std::string product_text(const ProductText& text) {
  return fmt::format("{{\n  {}{}  {}}}\n", pointer("a1", "v", false), pointer("a2", "m", true),
                     text.text);
}

using Phase = plan::FunctionCall::Phase;

// Each phase is one text over all tiles.
std::vector<Phase> short_phases(const Winograd& conv, const std::string& workspace,
                                bool has_epilogue, const ProductLanguage& language,
                                const plan::RegisterTile& tile) {
  const Division d = divided(conv, Items::kShort);
  const std::string pointers =
      fmt::format("{}{}{}(void)u, (void)v, (void)m;\n  ", pointer("u", workspace, true),
                  pointer("v", fmt::format("{} + {}", workspace, d.u_floats), true),
                  pointer("m", fmt::format("{} + {}", workspace, d.u_floats + d.v_floats), true));
  const Product product = product_of(conv, d.layout, "0", conv.filters);
  const ProductText text = language.print({&product, 1}, tile);
  const int64_t tiles = conv.tiles();
  return {
      {pointers + print_filters(conv, d.layout, "0"), filter_units(conv, d.layout)},
      {pointers + print_patches(conv, d.layout, "0", tiles), conv.channels * tiles},
      {fmt::format("{}  {}{}", text.memory, pointers, product_text(text)),
       language.units({&product, 1}, tile), tile.threads, text.shared},
      {pointers + print_results(conv, d.layout, "0", tiles, "0", has_epilogue),
       conv.filters * tiles},
  };
}

// Counts the items of units that have memory of their own.
int64_t parts_of(const Division& division, int64_t threads) {
  return std::min(division.units(), threads * kItemsOfThread);
}

// A part of a unit that is a loop over units of its own.
constexpr const char* kPart = R"({{
      const m_i64 begin = 0, end = {};
      {}
    }}
)";

std::string part(int64_t units, const std::string& text) {
  return fmt::format(fmt::runtime(kPart), units, text);
}

// A unit is a block of tiles and a share of the filters; patches are kept for the next share.
constexpr const char* kByTiles = R"(m_i64 block_there = -1;
  for (m_i64 own_unit = begin; own_unit < end; ++own_unit) {{
    const m_i64 share = own_unit % {shares}, block = own_unit / {shares};
    const m_i64 first_tile = block * {lanes}, first_filter = share * {share};
    if (block != block_there) {patches}
    block_there = block;
    {product}
    {results}
  }}
)";

// A unit is a share of the filters.
constexpr const char* kByFilters = R"(for (m_i64 share = begin; share < end; ++share) {{
    const m_i64 first_filter = share * {share};
    {filters}
    {product}
    {results}
  }}
)";

std::vector<Phase> long_phases(const Winograd& conv, const std::string& workspace,
                               bool has_epilogue, int64_t threads, const ProductLanguage& language,
                               const plan::RegisterTile& tile) {
  const Division d = divided(conv, Items::kLong);
  const WinogradLayout& at = d.layout;
  WinogradLayout whole = at;  // of what lies in the workspace
  if (d.by_tiles) whole.share = conv.filters;
  const Product product =
      product_of(conv, at, d.by_tiles ? "first_filter" : "0", d.by_tiles ? conv.filters : at.share);
  const ProductText text = language.print({&product, 1}, tile);
  const int64_t blocks = d.by_tiles ? 1 : d.blocks;
  const std::string first_tile = d.by_tiles ? "first_tile" : "0";
  const std::string filters = print_filters(conv, whole, d.by_tiles ? "0" : "first_filter");
  const std::string patches = print_patches(conv, at, first_tile, blocks);
  const std::string units = fmt::format(
      fmt::runtime(d.by_tiles ? kByTiles : kByFilters), fmt::arg("shares", d.shares),
      fmt::arg("lanes", kLanes), fmt::arg("share", at.share),
      fmt::arg("filters", part(filter_units(conv, at), filters)),
      fmt::arg("patches", part(conv.channels, patches)),
      fmt::arg("product", part(language.units({&product, 1}, tile), product_text(text))),
      fmt::arg("results", part(at.share * blocks, print_results(conv, at, first_tile, blocks,
                                                                "first_filter", has_epilogue))));
  const char *const shared = d.by_tiles ? "u" : "v", *const own = d.by_tiles ? "v" : "u";
  Phase first{pointer(shared, workspace, true) + (d.by_tiles ? filters : patches),
              d.by_tiles ? filter_units(conv, whole) : conv.channels * blocks};
  Phase second{
      fmt::format("{}  {}{}{}{}", text.memory, pointer(shared, workspace, false),
                  pointer(own, "(M_GLOBAL m_f32*)scratch", true),
                  pointer("m", fmt::format("{} + {}", own, d.own_floats() - d.m_floats), true),
                  units),
      d.units()};
  second.scratch_parts = parts_of(d, threads);
  second.scratch_bytes = d.own_floats() * kFloat;
  second.scratch_at = d.shared_floats() * kFloat;
  return {std::move(first), std::move(second)};
}

// ---------------------------------------------------------------- whether

// In multiply-adds for each pair of a channel and a filter, as the panels of products have columns;
// what is not multiplied was measured in the same unit, or is counted in bytes.
struct Cost {
  int64_t columns;       // of a panel
  double filter, patch;  // an element of a filter; of a patch, of one channel: there, or back
  double launches;       // more than products of gathered taps have
};
constexpr Cost kLongCost = {kLanes, 40, 40, 0};
// Each element is written once and read once, and a byte takes as long as 16 multiply-adds.
constexpr Cost kShortCost = {64, 128, 128, 1e8};

double cost_of(const Winograd& conv, const Cost& cost) {
  const auto elements = static_cast<double>(conv.elements());
  const auto channels = static_cast<double>(conv.channels);
  const auto filters = static_cast<double>(conv.filters);
  const auto columns = static_cast<double>(core::round_up(conv.tiles(), cost.columns));
  return elements * (columns + cost.filter + cost.patch * columns * (1 / channels + 1 / filters)) +
         cost.launches / (channels * filters);
}

// Products of gathered taps go by whole panels of an image's results.
double cost_of_taps(const Winograd& conv, const Cost& cost) {
  const int64_t columns = core::round_up(conv.h_out * conv.w_out, cost.columns);
  return static_cast<double>(kTaps * conv.images * columns);
}

bool divides_well(const Winograd& conv, Items items) {
  const Division d = divided(conv, items);
  const int64_t floats =
      items == Items::kLong ? d.shared_floats() : d.u_floats + d.v_floats + d.m_floats;
  const int64_t least = items == Items::kLong ? kLeastUnits : 1;
  return d.units() >= least && floats * kFloat <= kMostWorkspace;
}

bool can_have_tiles(const KernelRequest& request, const ref_conv2d_dims& d) {
  const int64_t ones[] = {d.groups, d.stride_h, d.stride_w, d.dilation_h, d.dilation_w};
  const int64_t sizes[] = {d.batch, d.c_in, d.h_in, d.w_in, d.c_out, d.h_out, d.w_out};
  return request.outputs[0].dtype == core::DType::kFloat32 && d.kh == 3 && d.kw == 3 &&
         std::all_of(std::begin(ones), std::end(ones), [](int64_t n) { return n == 1; }) &&
         std::all_of(std::begin(sizes), std::end(sizes), [](int64_t n) { return n > 0; });
}

// Tells whether all that is transformed would be more than any memory holds: sizes that somebody
// only asks about are not multiplied any further.
bool is_immense(const Winograd& conv) {
  constexpr double kMostFloats = 0x1p48;
  const auto channels = static_cast<double>(conv.channels);
  const auto filters = static_cast<double>(conv.filters);
  const double results = static_cast<double>(conv.images) * static_cast<double>(conv.h_out + 3) *
                         static_cast<double>(conv.w_out + 3);
  // No more elements of patches than 4 for each result, those of tiles of 2.
  return 36 * channels * filters + 4 * (channels + filters) * results > kMostFloats;
}

std::optional<Winograd> with_tile(Winograd conv, Items items) {
  if (is_immense(conv)) return {};
  conv.tile = is_winograd_tile_forced() ? forced_tile.load() : winograd_tile(conv, items);
  return conv.tile == 0 ? std::nullopt : std::optional(conv);
}

}  // namespace

int64_t winograd_tile(const Winograd& conv, Items items) {
  constexpr int64_t kFewest = 16;   // channels and filters
  constexpr double kMargin = 1.15;  // that a count may be off
  if (conv.channels < kFewest || conv.filters < kFewest) return 0;
  const bool is_long = items == Items::kLong;
  const Cost& unit = is_long ? kLongCost : kShortCost;
  double least = cost_of_taps(conv, unit) / kMargin;
  int64_t best = 0;
  for (const int64_t tile : {4, 2}) {
    Winograd other = conv;
    other.tile = tile;
    const double cost = cost_of(other, unit);
    if (cost >= least || !divides_well(other, items)) continue;
    least = cost;
    best = tile;
  }
  return best;
}

void force_winograd_tile(std::optional<int64_t> tile) { forced_tile = tile.value_or(kCounted); }
bool is_winograd_tile_forced() { return forced_tile != kCounted; }

std::optional<Winograd> winograd_of_conv2d(const KernelRequest& request, Items items) {
  const ref_conv2d_dims d = select::conv2d_dims(request);
  if (!can_have_tiles(request, d)) return {};
  return with_tile(
      {d.batch, d.c_in, d.h_in, d.w_in, d.c_out, d.h_out, d.w_out, d.pad_top, d.pad_left, false},
      items);
}

std::optional<Winograd> winograd_of_conv2d_dx(const KernelRequest& request, Items items) {
  const ref_conv2d_dims d = select::conv2d_dx_dims(request);
  if (!can_have_tiles(request, d)) return {};
  return with_tile({d.batch, d.c_out, d.h_out, d.w_out, d.c_in, d.h_in, d.w_in, 2 - d.pad_top,
                    2 - d.pad_left, true},
                   items);
}

plan::Step winograd_step(const KernelRequest& request, const Winograd& conv, Items items,
                         const ProductLanguage& language) {
  const Division d = divided(conv, items);
  const bool has_epilogue = request.epilogue != nullptr;
  const size_t workspace = 3 + (has_epilogue ? request.epilogue->operands.size() - 1 : 0);
  plan::Step step;
  plan::FunctionCall call;
  call.name = request.op.name;
  call.in_phases = [conv, items, language, has_epilogue, threads = request.threads,
                    name = fmt::format("a{}", workspace)](const plan::RegisterTile& tile) {
    return items == Items::kLong ? long_phases(conv, name, has_epilogue, threads, language, tile)
                                 : short_phases(conv, name, has_epilogue, language, tile);
  };
  if (has_epilogue) call.finish = finish_of(request);
  step.units = d.units();
  const int64_t floats = items == Items::kLong
                             ? d.shared_floats() + parts_of(d, request.threads) * d.own_floats()
                             : d.u_floats + d.v_floats + d.m_floats;
  step.workspace_bytes = floats * kFloat;
  step.call = std::make_shared<const plan::Call>(std::move(call));
  const double pairs = static_cast<double>(conv.channels) * static_cast<double>(conv.filters);
  const double results = static_cast<double>(conv.images * conv.h_out * conv.w_out);
  step.work = {2.0 * static_cast<double>(kTaps) * pairs * results, plan::Work::Unit::kFlops};
  step.nanoseconds = 2 * pairs * cost_of(conv, kLongCost) / plan::kFlopsPerNanosecond;
  return step;
}

}  // namespace mithril::device
