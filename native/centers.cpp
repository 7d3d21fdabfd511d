#include "centers.hpp"

#include <cmath>
#include <memory>

#include "vectors.hpp"
#include "whole.hpp"

namespace densehash {
namespace {

// Passes of k-means over the regions.
constexpr size_t kPasses = 4;
// From this many centres on, it pays to search by regions.
constexpr size_t kSeveral = 256;
// How many of the nearest by whole numbers are compared exactly.
constexpr size_t kClose = 4;
// Rows of a task, and how many of them are compared together at most.
constexpr size_t kRows = 1024, kSome = 16;

// In how many regions near its own a row looks for the nearest centre: it finds it 98 times in 100.
size_t near_for(size_t n_regions) {
  return static_cast<size_t>(std::sqrt(15 * static_cast<double>(n_regions))) + 1;
}

uint32_t nearest_region(const WholeCenters& wholes, float unit, const int32_t* sums) {
  int32_t least = std::numeric_limits<int32_t>::max();
  uint32_t nearest = 0;
  for (size_t r = 0; r < wholes.regions.size(); ++r) {
    const int32_t distance = whole_distance(wholes.means, r, unit, sums[r]);
    if (distance < least) least = distance, nearest = static_cast<uint32_t>(r);
  }
  return nearest;
}

}  // namespace

WholeRows::WholeRows(size_t count, size_t width)
    : padded_width(padded_width_for(width)), numbers((count + 7) / 8 * 8 * padded_width),
      steps((count + 7) / 8 * 8), squares(steps.size()) {}

void WholeRows::set(size_t row, const float* vector, size_t width, Metric metric) {
  steps[row] = to_whole(vector, width, numbers.data() + row * padded_width);
  const double square = sums<Metric::ip>(vector, vector, width).sum;
  squares[row] = metric == Metric::ip ? 0 : static_cast<float>(square);
}

size_t WholeCenters::largest() const {
  size_t most = 0;
  for (const Region& region : regions) most = std::max<size_t>(most, region.count);
  return (most + 7) / 8 * 8;
}

WholeCenters::WholeCenters(const float* rows, size_t n, size_t width, Metric by)
    : metric(by), count(n) {
  // Regions are made by k-means; the first means are centres at equal distances in the order in
  // which they were learnt. Whole numbers make it fast.
  const size_t n_regions =
      std::min(static_cast<size_t>(2 * std::sqrt(static_cast<double>(count))) + 1, count);
  WholeRows all(count, width);
  for (size_t i = 0; i < count; ++i) all.set(i, rows + i * width, width, Metric::l2);
  means = WholeRows(n_regions, width);
  for (size_t r = 0; r < n_regions; ++r)
    means.set(r, rows + r * count / n_regions * width, width, Metric::l2);
  const Dots dots = find_kernels("")->dots;
  std::vector<int32_t> products(means.steps.size());
  std::vector<uint32_t> nearest(count);
  std::vector<float> totals(n_regions * width);
  for (size_t pass = 0; pass < kPasses; ++pass) {
    regions.assign(n_regions, {0, 0});
    std::fill(totals.begin(), totals.end(), 0.0f);
    for (size_t i = 0; i < count; ++i) {
      dots(all.numbers.data() + i * all.padded_width, 1, means.numbers.data(), all.padded_width,
           means.steps.size(), products.data());
      nearest[i] = nearest_region(*this, all.steps[i], products.data());
      ++regions[nearest[i]].count;
      float* const total = totals.data() + nearest[i] * width;
      for (size_t j = 0; j < width; ++j) total[j] += rows[i * width + j];
    }
    for (size_t r = 0; r < n_regions; ++r) {
      if (regions[r].count == 0) continue;
      float* const total = totals.data() + r * width;
      for (size_t j = 0; j < width; ++j) total[j] /= static_cast<float>(regions[r].count);
      means.set(r, total, width, pass + 1 < kPasses ? Metric::l2 : metric);
    }
  }
  size_t places = 0;
  for (Region& region : regions) {
    region.first = static_cast<uint32_t>(places);
    places += (region.count + 7) / 8 * 8;
    region.count = 0;
  }
  centers = WholeRows(places, width);
  groups.resize(places);
  for (size_t i = 0; i < count; ++i) {
    Region& region = regions[nearest[i]];
    const size_t place = region.first + region.count++;
    centers.set(place, rows + i * width, width, metric);
    groups[place] = static_cast<uint32_t>(i);
  }
  const size_t n_near = std::min(near_for(n_regions), n_regions);
  std::vector<uint64_t> keys(n_regions);
  for (size_t r = 0; r < n_regions; ++r) {
    dots(means.numbers.data() + r * means.padded_width, 1, means.numbers.data(),
         means.padded_width, means.steps.size(), products.data());
    for (size_t i = 0; i < n_regions; ++i)
      keys[i] = make_float_key(whole_distance(means, i, means.steps[r], products[i]), i);
    std::sort(keys.begin(), keys.end());
    for (size_t i = 0; i < n_near; ++i)
      near.push_back(static_cast<uint32_t>(RowKey::position(keys[i])));
  }
}

size_t WholeCenters::looked_at_first() const {
  if (metric == Metric::ip || count < kSeveral) return regions.size();
  return static_cast<size_t>(std::sqrt(5 * static_cast<double>(regions.size()))) + 1;
}

namespace {

// The least keys so far, ascending.
struct Close {
  Close() { std::fill_n(keys, kClose, ~uint64_t{0}); }
  void add(uint64_t key) {
    for (size_t i = 0; key < keys[kClose - 1]; ++i)
      if (key < keys[i]) std::swap(key, keys[i]);
  }
  int32_t bound() const {  // nothing below it is left out
    return sorted_of(keys[kClose - 1]);
  }

  bool is_empty() const { return keys[0] == ~uint64_t{0}; }

  uint64_t keys[kClose];
};

// Finds the nearest centres of rows. Rows of one region are compared with the same centres, several
// rows together.
class CenterFinder {
 public:
  CenterFinder(const WholeCenters& wholes, const float* centers, size_t width)
      : wholes_(wholes), centers_(centers), width_(width), dots_(find_kernels("")->dots),
        n_near_(wholes.near.size() / wholes.regions.size()), whole_(kRows, width),
        some_(kSome, width), sums_(kSome * std::max(wholes.means.steps.size(), wholes.largest())),
        distances_(wholes.largest()) {}

  void find(const float* rows, size_t count, uint32_t* out) {
    in_region_.clear();
    for (size_t r = 0; r < count; ++r)
      whole_.steps[r] = to_whole(rows + r * width_, width_, numbers_of(whole_, r));
    for (size_t first = 0; first < count; first += kSome) {
      const size_t n = std::min(kSome, count - first);
      const size_t n_means = wholes_.means.steps.size();
      dots_(numbers_of(whole_, first), n, wholes_.means.numbers.data(), whole_.padded_width,
            n_means, sums_.data());
      for (size_t i = 0; i < n; ++i)
        in_region_.push_back(RowKey::make(
            nearest_region(wholes_, whole_.steps[first + i], sums_.data() + i * n_means),
            first + i));
    }
    std::sort(in_region_.begin(), in_region_.end());
    for (size_t begin = 0, end = 0; begin < count; begin = end) {
      const size_t region = RowKey::first(in_region_[begin]);
      while (end < count && end < begin + kSome && RowKey::first(in_region_[end]) == region) ++end;
      find(rows, begin, end, wholes_.near.data() + region * n_near_, out);
    }
  }

 private:
  static int8_t* numbers_of(WholeRows& rows, size_t row) {
    return rows.numbers.data() + row * rows.padded_width;
  }

  void find(const float* rows, size_t begin, size_t end, const uint32_t* near, uint32_t* out) {
    const size_t n = end - begin;
    Close close[kSome];
    for (size_t i = 0; i < n; ++i) {
      const size_t row = RowKey::position(in_region_[begin + i]);
      std::copy_n(numbers_of(whole_, row), whole_.padded_width, numbers_of(some_, i));
      some_.steps[i] = whole_.steps[row];
    }
    for (size_t j = 0; j < n_near_; ++j) look(wholes_.regions[near[j]], n, close);
    if (close->is_empty())  // all these regions are empty
      for (const WholeCenters::Region region : wholes_.regions) look(region, n, close);
    for (size_t i = 0; i < n; ++i) {
      const size_t row = RowKey::position(in_region_[begin + i]);
      out[row] = nearest_of(close[i], rows + row * width_);
    }
  }

  void look(WholeCenters::Region region, size_t n, Close* close) {
    const size_t padded = (region.count + 7) / 8 * 8;
    dots_(some_.numbers.data(), n,
          wholes_.centers.numbers.data() + region.first * some_.padded_width, some_.padded_width,
          padded, sums_.data());
    for (size_t i = 0; i < n; ++i)
      look(region, some_.steps[i], sums_.data() + i * padded, close[i]);
  }

  void look(WholeCenters::Region region, float unit, const int32_t* __restrict sums,
            Close& close) {
    const float* const squares = wholes_.centers.squares.data() + region.first;
    const float* const steps = wholes_.centers.steps.data() + region.first;
    int32_t* const __restrict distances = distances_.data();
    const float twice = 2 * unit;
    int32_t least = std::numeric_limits<int32_t>::max();
    for (size_t i = 0; i < region.count; ++i) {
      distances[i] = sortable_number(squares[i] - twice * steps[i] * static_cast<float>(sums[i]));
      least = std::min(least, distances[i]);
    }
    if (least > close.bound()) return;
    for (size_t i = 0; i < region.count; ++i)
      if (distances[i] <= close.bound()) close.add(make_float_key(distances[i], region.first + i));
  }

  uint32_t nearest_of(const Close& close, const float* row) const {
    float least = std::numeric_limits<float>::infinity();
    uint32_t found = wholes_.groups[RowKey::position(close.keys[0])];
    for (const uint64_t key : close.keys) {
      if (key == ~uint64_t{0}) break;
      const uint32_t number = wholes_.groups[RowKey::position(key)];
      const auto distance =
          static_cast<float>(sums<Metric::l2>(row, centers_ + number * width_, width_).sum);
      if (distance < least || (distance == least && number < found))
        least = distance, found = number;
    }
    return found;
  }

  const WholeCenters& wholes_;
  const float* centers_;
  size_t width_;
  Dots dots_;
  size_t n_near_;
  WholeRows whole_, some_;
  std::vector<int32_t> sums_, distances_;
  std::vector<uint64_t> in_region_;  // pairs of a region and a row in it
};

}  // namespace

void nearest_centers(const WholeCenters& wholes, const float* centers, size_t width,
                     const float* rows, size_t count, Control& control, uint32_t* out) {
  const size_t n_tasks = (count + kRows - 1) / kRows;
  const double work = static_cast<double>(count * wholes.count * width) / 8;
  const size_t n_workers = control.worth_starting(work);
  std::vector<std::unique_ptr<CenterFinder>> finders(n_workers);
  control.run(n_workers, n_tasks, [&](size_t task, size_t worker) {
    control.poll(worker);
    if (!finders[worker]) finders[worker] = std::make_unique<CenterFinder>(wholes, centers, width);
    const size_t first = task * kRows;
    finders[worker]->find(rows + first * width, std::min(kRows, count - first), out + first);
  });
}

}  // namespace densehash
