#include "scan.hpp"

namespace densehash {
namespace {

// Codes in a block. With lookups: so many that loading the lookups into the first-level cache costs
// little. One by one: few enough to stay in this cache for the next query.
constexpr size_t kBundleBlock = 2048;
size_t row_block(size_t bytes) {
  return std::clamp(32 * 1024 / bytes / kRun * kRun, 4 * kRun, 64 * kRun);
}
// Bytes for the lookups of a batch: most of a second-level cache.
constexpr size_t kLookupBytes = 768 * 1024;
constexpr size_t kMostQueries = 256;

// Bits [first, first + width) of a part of a query.
unsigned field_of(const uint8_t* part, size_t part_bytes, size_t first, size_t width) {
  const size_t byte = first / 8;
  unsigned two = part[byte];
  if (byte + 1 < part_bytes) two |= static_cast<unsigned>(part[byte + 1]) << 8;
  return two >> first % 8 & ((1u << width) - 1);
}

// The lookup of one field. Byte b of entry v holds the distance of v to query b of the bundle in
// its low half, and to query b + entry in its high half.
void fill_lookup(const uint8_t* const* queries, size_t entry, size_t part_bytes, size_t first,
                 size_t width, uint8_t* lookup) {
  uint8_t change[8][kBundle / 2];  // what one more bit in v adds to each byte
  for (size_t b = 0; b < entry; ++b) {
    const unsigned low = field_of(queries[b], part_bytes, first, width);
    const unsigned high = field_of(queries[b + entry], part_bytes, first, width);
    lookup[b] = static_cast<uint8_t>(__builtin_popcount(low) + 16 * __builtin_popcount(high));
    for (size_t bit = 0; bit < width; ++bit)
      change[bit][b] =
          static_cast<uint8_t>((low >> bit & 1 ? -1 : 1) + (high >> bit & 1 ? -16 : 16));
  }
  for (unsigned v = 1; v < 1u << width; ++v) {
    const uint8_t* from = lookup + (v & (v - 1)) * entry;  // v without its lowest bit
    const uint8_t* by = change[__builtin_ctz(v)];
    uint8_t* to = lookup + v * entry;
    for (size_t b = 0; b < entry; ++b) to[b] = static_cast<uint8_t>(from[b] + by[b]);
  }
}

// From this many queries in a bundle on, lookups are faster, at 64 to 512 bits on NEON: half a
// bundle takes as long as 21 to 27 queries one by one, a whole bundle 15 to 19 queries longer.
constexpr size_t kFewestOfHalf = 27, kFewestOfWhole = kBundle / 2 + 15;

}  // namespace

Layout::Parts::Parts(const BundleKernels& kernels, size_t bytes) : kernels(kernels) {
  if (kernels.entry == 0) return;
  const Cut cut = bytes <= 8 ? kernels.short_codes : kernels.long_codes;
  for (size_t first_byte = 0; first_byte < bytes; first_byte += cut.part_bits / 8) {
    Part part{};
    part.first_byte = first_byte;
    part.bytes = std::min(cut.part_bits / 8, bytes - first_byte);
    const size_t bits = 8 * part.bytes;
    // As few fields as pair_bits for each two allow; leftover bits go to the first of a pair.
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
      slot.base[f % 8] = static_cast<uint16_t>(part.lookup_bytes);
      part.widths[f] = static_cast<uint8_t>(width);
      part.lookup_bytes += kernels.entry << width;
      bit += width;
    }
    fields += part.fields;
    lookup_bytes += part.lookup_bytes;
    parts.push_back(part);
  }
}

size_t Batch::most_queries(const Layout& layout) {
  if (layout.whole.parts.empty()) return kMostQueries;
  const size_t bundles = kLookupBytes / layout.whole.lookup_bytes;
  return std::clamp<size_t>(bundles, 1, kMostQueries / kBundle) * kBundle;
}

Batch::Batch(const Kernels& kernels, const Layout& layout, Codes queries)
    : kernels_(kernels), queries_(queries), whole_{layout.whole}, half_{layout.half} {
  if (layout.whole.parts.empty()) return;
  whole_.count = (queries.count + kBundle - kFewestOfWhole) / kBundle;
  half_.first_query = whole_.end_query();
  half_.first_lookup = whole_.end_lookup();
  half_.count =
      !layout.half.parts.empty() && queries.count >= half_.first_query + kFewestOfHalf;
  lookups_.resize(half_.end_lookup() / sizeof(CacheLine) + 1);
  fill_lookups(whole_);
  fill_lookups(half_);
}

void Batch::fill_lookups(const Bundles& bundles) {
  uint8_t* lookup = reinterpret_cast<uint8_t*>(lookups_.data()) + bundles.first_lookup;
  const size_t entry = bundles.layout.kernels.entry;
  for (size_t bundle = 0; bundle < bundles.count; ++bundle) {
    for (const Layout::Part& part : bundles.layout.parts) {
      const uint8_t* of_bundle[kBundle];
      for (size_t lane = 0; lane < bundles.queries(); ++lane) {
        const size_t q = bundles.first_query + bundle * bundles.queries() + lane;
        of_bundle[lane] = queries_.row(std::min(q, queries_.count - 1)) + part.first_byte;
      }
      size_t first = 0;
      for (size_t f = 0; f < part.fields; ++f) {
        fill_lookup(of_bundle, entry, part.bytes, first, part.widths[f], lookup);
        lookup += entry << part.widths[f];
        first += part.widths[f];
      }
    }
  }
}

Scan::Scan(const Batch& batch, Control& control, size_t worker)
    : batch_(batch), control_(control), worker_(worker), fits_byte_(batch.bits() < 255),
      wraps_(batch.bits() == 256) {
  const bool by_lookups = batch.whole_.count + batch.half_.count > 0;
  block_ = by_lookups ? kBundleBlock : row_block(batch.queries_.bytes);
  const size_t entries = block_ * (by_lookups ? kBundle : 1);
  tile_.resize(entries * (fits_byte_ ? 1 : 2) / sizeof(CacheLine));
  runs_.resize(entries / kRun);
  if (by_lookups) {
    const size_t fields = std::max(batch.whole_.layout.fields, batch.half_.layout.fields);
    offsets_.resize(block_ * fields + 8);  // expand writes eight at a time
  }
}

const uint16_t* Scan::part_offsets(const Bundles& bundles, size_t part) const {
  size_t fields = 0;
  for (size_t p = 0; p < part; ++p) fields += bundles.layout.parts[p].fields;
  return offsets_.data() + block_ * fields;
}

const uint8_t* Scan::part_lookups(const Bundles& bundles, size_t bundle, size_t part) const {
  size_t bytes = bundles.first_lookup + bundle * bundles.layout.lookup_bytes;
  for (size_t p = 0; p < part; ++p) bytes += bundles.layout.parts[p].lookup_bytes;
  return reinterpret_cast<const uint8_t*>(batch_.lookups_.data()) + bytes;
}

void Scan::expand(const Bundles& bundles, const uint8_t* codes, size_t count) {
  // In order: what a part writes beyond its end is overwritten by the next.
  for (size_t p = 0; p < bundles.layout.parts.size(); ++p) {
    const Layout::Part& part = bundles.layout.parts[p];
    bundles.layout.kernels.expand(codes, batch_.queries_.bytes, part.first_byte, part.bytes, count,
                                  part.slots, part.fields,
                                  const_cast<uint16_t*>(part_offsets(bundles, p)));
  }
}

}  // namespace densehash
