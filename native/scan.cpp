#include "scan.hpp"

namespace densehash {
namespace {

// Codes in a block. By tables: so many that the tables' way into the first-level cache is
// forgotten. One by one: few enough to stay there for the next query.
constexpr size_t kGroupBlock = 2048;
size_t row_block(size_t bytes) {
  return std::clamp(32 * 1024 / bytes / kRun * kRun, 4 * kRun, 64 * kRun);
}
// Tables of a batch: most of a second-level cache.
constexpr size_t kTableBytes = 768 * 1024;
constexpr size_t kMostQueries = 256;

// Bits [first, first + width) of a part of a query.
unsigned field_of(const uint8_t* part, size_t part_bytes, size_t first, size_t width) {
  const size_t byte = first / 8;
  unsigned two = part[byte];
  if (byte + 1 < part_bytes) two |= static_cast<unsigned>(part[byte + 1]) << 8;
  return two >> first % 8 & ((1u << width) - 1);
}

// The table of one field. Byte b of entry v holds the distance of v to query b of the group in
// its low half, and to query b + entry in its high half.
void fill_table(const uint8_t* const* queries, size_t entry, size_t part_bytes, size_t first,
                size_t width, uint8_t* table) {
  uint8_t change[8][kGroup / 2];  // what one more bit in v adds to each byte
  for (size_t b = 0; b < entry; ++b) {
    const unsigned low = field_of(queries[b], part_bytes, first, width);
    const unsigned high = field_of(queries[b + entry], part_bytes, first, width);
    table[b] = static_cast<uint8_t>(__builtin_popcount(low) + 16 * __builtin_popcount(high));
    for (size_t bit = 0; bit < width; ++bit)
      change[bit][b] =
          static_cast<uint8_t>((low >> bit & 1 ? -1 : 1) + (high >> bit & 1 ? -16 : 16));
  }
  for (unsigned v = 1; v < 1u << width; ++v) {
    const uint8_t* from = table + (v & (v - 1)) * entry;  // v without its lowest bit
    const uint8_t* by = change[__builtin_ctz(v)];
    uint8_t* to = table + v * entry;
    for (size_t b = 0; b < entry; ++b) to[b] = static_cast<uint8_t>(from[b] + by[b]);
  }
}

// So many queries of a group take less time by its tables than otherwise, at 64 to 512 bits on NEON:
// half a group as long as 21 to 27 queries one by one, a whole one 15 to 19 queries longer.
constexpr size_t kFewestOfHalf = 27, kFewestOfWhole = kGroup / 2 + 15;

}  // namespace

Layout::Parts::Parts(const GroupKernels& kernels, size_t bytes) : kernels(kernels) {
  if (kernels.entry == 0) return;
  const Cut cut = bytes <= 8 ? kernels.short_codes : kernels.long_codes;
  for (size_t first_byte = 0; first_byte < bytes; first_byte += cut.part_bits / 8) {
    Part part{};
    part.first_byte = first_byte;
    part.bytes = std::min(cut.part_bits / 8, bytes - first_byte);
    const size_t bits = 8 * part.bytes;
    // As few fields as pair_bits for two of them allow; bits left over go to the first of a pair.
    part.fields = (2 * bits + cut.pair_bits - 1) / cut.pair_bits;
    const size_t narrow = cut.pair_bits / 2;
    size_t left_over = bits > narrow * part.fields ? bits - narrow * part.fields : 0;
    size_t bit = 0;
    for (size_t f = 0; f < part.fields; ++f) {
      size_t width = std::min(narrow, bits - bit);
      if (f % 2 == 0 && left_over > 0) ++width, --left_over;
      FieldSlot& slot = part.slots[f / 8];
      const size_t byte = bit / 8;
      slot.pick[f % 8 * 2] = static_cast<uint8_t>(byte);
      slot.pick[f % 8 * 2 + 1] = static_cast<uint8_t>(std::min(byte + 1, part.bytes - 1));
      slot.shift[f % 8] = static_cast<uint16_t>(bit % 8);
      slot.mask[f % 8] = static_cast<uint16_t>((1u << width) - 1);
      slot.base[f % 8] = static_cast<uint16_t>(part.table_bytes);
      part.widths[f] = static_cast<uint8_t>(width);
      part.table_bytes += kernels.entry << width;
      bit += width;
    }
    fields += part.fields;
    table_bytes += part.table_bytes;
    parts.push_back(part);
  }
}

size_t Batch::most_queries(const Layout& layout) {
  if (layout.whole.parts.empty()) return kMostQueries;
  const size_t groups = kTableBytes / layout.whole.table_bytes;
  return std::clamp<size_t>(groups, 1, kMostQueries / kGroup) * kGroup;
}

Batch::Batch(const Kernels& kernels, const Layout& layout, Codes queries)
    : kernels_(kernels), queries_(queries), whole_{layout.whole}, half_{layout.half} {
  if (layout.whole.parts.empty()) return;
  whole_.count = (queries.count + kGroup - kFewestOfWhole) / kGroup;
  half_.first_query = whole_.end_query();
  half_.first_table = whole_.end_table();
  half_.count = queries.count >= half_.first_query + kFewestOfHalf;
  tables_.resize(half_.end_table() / sizeof(CacheLine) + 1);
  fill_tables(whole_);
  fill_tables(half_);
}

void Batch::fill_tables(const Groups& groups) {
  uint8_t* table = reinterpret_cast<uint8_t*>(tables_.data()) + groups.first_table;
  const size_t entry = groups.layout.kernels.entry;
  for (size_t group = 0; group < groups.count; ++group) {
    for (const Layout::Part& part : groups.layout.parts) {
      const uint8_t* of_group[kGroup];
      for (size_t lane = 0; lane < groups.queries(); ++lane) {
        const size_t q = groups.first_query + group * groups.queries() + lane;
        of_group[lane] = queries_.row(std::min(q, queries_.count - 1)) + part.first_byte;
      }
      size_t first = 0;
      for (size_t f = 0; f < part.fields; ++f) {
        fill_table(of_group, entry, part.bytes, first, part.widths[f], table);
        table += entry << part.widths[f];
        first += part.widths[f];
      }
    }
  }
}

Scan::Scan(const Batch& batch, Control& control, size_t worker)
    : batch_(batch), control_(control), worker_(worker), fits_byte_(batch.bits() < 255) {
  const bool by_tables = batch.whole_.count + batch.half_.count > 0;
  block_ = by_tables ? kGroupBlock : row_block(batch.queries_.bytes);
  const size_t entries = block_ * (by_tables ? kGroup : 1);
  tile_.resize(entries * (fits_byte_ ? 1 : 2) / sizeof(CacheLine));
  runs_.resize(entries / kRun);
  if (by_tables) {
    const size_t fields = std::max(batch.whole_.layout.fields, batch.half_.layout.fields);
    offsets_.resize(block_ * fields + 8);  // expand writes eight at a time
  }
}

const uint16_t* Scan::part_offsets(const Groups& groups, size_t part) const {
  size_t fields = 0;
  for (size_t p = 0; p < part; ++p) fields += groups.layout.parts[p].fields;
  return offsets_.data() + block_ * fields;
}

const uint8_t* Scan::part_table(const Groups& groups, size_t group, size_t part) const {
  size_t bytes = groups.first_table + group * groups.layout.table_bytes;
  for (size_t p = 0; p < part; ++p) bytes += groups.layout.parts[p].table_bytes;
  return reinterpret_cast<const uint8_t*>(batch_.tables_.data()) + bytes;
}

void Scan::expand(const Groups& groups, const uint8_t* codes, size_t count) {
  // In order: what a part writes too much is overwritten by the next.
  for (size_t p = 0; p < groups.layout.parts.size(); ++p) {
    const Layout::Part& part = groups.layout.parts[p];
    groups.layout.kernels.expand(codes, batch_.queries_.bytes, part.first_byte, part.bytes, count,
                                 part.slots, part.fields,
                                 const_cast<uint16_t*>(part_offsets(groups, p)));
  }
}

}  // namespace densehash
