// Going back: records that are overwritten while a mark stands are copied first, arrays are cut
// to their lengths at the mark.
#include "infer/store.h"

namespace mithril::infer {

#define MITHRIL_EDIT(type, name, array, trail)        \
  type& Store::name(uint32_t i) {                     \
    type& record = array[i];                          \
    if (!frames_.empty() && record.stamp != stamp_) { \
      trail.emplace_back(i, record);                  \
      record.stamp = stamp_;                          \
    }                                                 \
    return record;                                    \
  }
MITHRIL_EDIT(CellRecord, edit_cell, cells_, cell_trail_)
MITHRIL_EDIT(ShapeRecord, edit_shape, shapes_, shape_trail_)
MITHRIL_EDIT(SeqRecord, edit_seq, seqs_, seq_trail_)
MITHRIL_EDIT(DimRecord, edit_dim, dims_, dim_trail_)
MITHRIL_EDIT(Propagator, edit_propagator, propagators_, propagator_trail_)
#undef MITHRIL_EDIT

Mark Store::mark() {
  Frame f;
  f.stamp = stamp_;
  f.cells = cells_.size();
  f.shapes = shapes_.size();
  f.seqs = seqs_.size();
  f.dims = dims_.size();
  f.propagators = propagators_.size();
  f.rules = rules_.size();
  f.facts = facts_.size();
  f.scopes = scopes_.size();
  f.log = log_.size();
  f.reprs = reprs_.size();
  f.repr_dims = repr_dims_.size();
  f.watches = watches_.size();
  f.args = args_.size();
  f.hosts = hosts_.size();
  f.lists = lists_.size();
  f.possible = possible_.size();
  f.bounds = bounds_.size();
  f.types = types_.size();
  f.events = events_.size();
  f.extras = extras_.size();
  f.bindings = bindings_.size();
  f.scope_entries = scope_entries_.size();
  f.names = names_.size();
  f.templates = templates_.size();
  f.owned_names = owned_names_.size();
  f.seq_names = seq_names_.size();
  f.symbols = symbol_dims_.size();
  f.owners = owners_.size();
  f.logged_rules = logged_rules_.size();
  f.cell_trail = cell_trail_.size();
  f.shape_trail = shape_trail_.size();
  f.seq_trail = seq_trail_.size();
  f.dim_trail = dim_trail_.size();
  f.propagator_trail = propagator_trail_.size();
  f.watch_trail = watch_trail_.size();
  f.scope_trail = scope_trail_.size();
  f.owner_trail = owner_trail_.size();
  f.symbol_trail = symbol_trail_.size();
  f.table = own_table_.size();
  f.queue.assign(queue_.begin() + static_cast<std::ptrdiff_t>(queue_at_), queue_.end());
  f.shape_queue = shape_queue_;
  f.steps = steps_;
  frames_.push_back(std::move(f));
  stamp_ = ++last_stamp_;
  return Mark{static_cast<uint32_t>(frames_.size())};
}

namespace {
template <class Array, class Trail>
void restore(Array& array, Trail& trail, size_t to) {
  while (trail.size() > to) {
    array[trail.back().first] = std::move(trail.back().second);
    trail.pop_back();
  }
}
}  // namespace

void Store::undo(Mark mark) {
  MITHRIL_CHECK(mark.depth > 0 && mark.depth <= frames_.size(), "undo: no such mark");
  while (frames_.size() >= mark.depth) {
    Frame& f = frames_.back();
    restore(cells_, cell_trail_, f.cell_trail);
    restore(shapes_, shape_trail_, f.shape_trail);
    restore(seqs_, seq_trail_, f.seq_trail);
    restore(dims_, dim_trail_, f.dim_trail);
    restore(propagators_, propagator_trail_, f.propagator_trail);
    while (watch_trail_.size() > f.watch_trail) {
      watches_[watch_trail_.back().first].next = watch_trail_.back().second;
      watch_trail_.pop_back();
    }
    restore(scopes_, scope_trail_, f.scope_trail);
    restore(owners_, owner_trail_, f.owner_trail);
    restore(symbol_dims_, symbol_trail_, f.symbol_trail);
    cells_.resize(f.cells);
    shapes_.resize(f.shapes);
    seqs_.resize(f.seqs);
    dims_.resize(f.dims);
    propagators_.resize(f.propagators);
    rules_.resize(f.rules);
    facts_.resize(f.facts);
    scopes_.resize(f.scopes);
    log_.resize(f.log);
    reprs_.resize(f.reprs);
    repr_dims_.resize(f.repr_dims);
    watches_.resize(f.watches);
    args_.resize(f.args);
    hosts_.resize(f.hosts);
    lists_.resize(f.lists);
    possible_.resize(f.possible);
    bounds_.resize(f.bounds);
    types_.resize(f.types);
    events_.resize(f.events);
    extras_.resize(f.extras);
    bindings_.resize(f.bindings);
    scope_entries_.resize(f.scope_entries);
    names_.resize(f.names);
    templates_.resize(f.templates);
    owned_names_.resize(f.owned_names);
    seq_names_.resize(f.seq_names);
    symbol_dims_.resize(f.symbols);
    owners_.resize(f.owners);
    logged_rules_.resize(f.logged_rules);
    own_table_.truncate(f.table);
    queue_ = std::move(f.queue);
    queue_at_ = 0;
    queued_.assign(propagators_.size(), 0);
    for (const uint32_t p : queue_) queued_[p] = 1;
    shape_queue_ = std::move(f.shape_queue);
    shape_queued_.assign(shapes_.size(), 0);
    for (const uint32_t s : shape_queue_) shape_queued_[s] = 1;
    steps_ = f.steps;
    stamp_ = f.stamp;
    frames_.pop_back();
  }
  failed_ = false;
  error_.reset();
  blamed_.clear();
  refused_ = {};
  error_at_rule_ = kNone;
  running_ = asserting_ = kNone;
}

void Store::release(Mark mark) {
  MITHRIL_CHECK(mark.depth > 0 && mark.depth == frames_.size(), "release: not the latest mark");
  stamp_ = frames_.back().stamp;
  frames_.pop_back();
  if (!frames_.empty()) return;
  cell_trail_.clear();
  shape_trail_.clear();
  seq_trail_.clear();
  dim_trail_.clear();
  propagator_trail_.clear();
  watch_trail_.clear();
  scope_trail_.clear();
  owner_trail_.clear();
  symbol_trail_.clear();
}

}  // namespace mithril::infer
