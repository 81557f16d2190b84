"""CUDA's core compute libraries for Python (cuda.compute): reductions, scans, sorts, searches and selections of CUB, compiled at
run time for operators written in Python."""
import nvjitlink_as_ptx

LINKER = nvjitlink_as_ptx.load()
import cuda.compute as compute
import cupy
import numpy as np
from cuda.compute import OpKind, SortOrder, TransformIterator, gpu_struct

COUNT = 3000
random = np.random.default_rng(1)
equal = np.testing.assert_array_equal


def integers(low, high, kind=np.int32, count=COUNT):
    return random.integers(low, high, count).astype(kind)


def room(kind, count=COUNT):
    return cupy.empty(count, kind)


def reduce():
    values, out = integers(0, 1000), room(np.int32, 1)
    squares = TransformIterator(cupy.asarray(values), lambda value: value * value % 7)
    compute.reduce_into(d_in=squares, d_out=out, op=lambda a, b: a + b, num_items=COUNT, h_init=np.array([5], np.int32))
    assert out.get()[0] == 5 + (values * values % 7).sum()


def reduce_structs():
    pair = gpu_struct({"index": np.int32, "value": np.float32})
    pairs = np.empty(COUNT, pair.dtype)
    pairs["index"], pairs["value"] = np.arange(COUNT), random.random(COUNT)
    out = room(np.uint8, pair.dtype.itemsize).view(pair.dtype)

    def larger(a, b):
        return a if a.value > b.value else b

    compute.reduce_into(d_in=cupy.asarray(pairs.view(np.uint8)).view(pair.dtype), d_out=out, op=larger, num_items=COUNT,
                        h_init=pair(-1, -1.0))
    assert out.get()[0]["index"] == pairs["value"].argmax()


def scan():
    values, out = integers(0, 9), room(np.int32)
    compute.exclusive_scan(d_in=cupy.asarray(values), d_out=out, op=OpKind.PLUS, num_items=COUNT,
                           init_value=np.array([3], np.int32))
    equal(out.get(), 3 + np.cumsum(values) - values)


def radix_sort():
    keys, values, sorted_keys, sorted_values = integers(-2**31, 2**31 - 1), np.arange(COUNT), room(np.int32), room(np.int64)
    compute.radix_sort(d_in_keys=cupy.asarray(keys), d_out_keys=sorted_keys, d_in_values=cupy.asarray(values),
                       d_out_values=sorted_values, order=SortOrder.ASCENDING, num_items=COUNT)
    order = np.argsort(keys, kind="stable")
    equal(sorted_keys.get(), keys[order])
    equal(sorted_values.get(), order)


def merge_sort():
    keys, out = random.random(COUNT), room(np.float64)
    compute.merge_sort(d_in_keys=cupy.asarray(keys), d_out_keys=out, num_items=COUNT, op=OpKind.LESS)
    equal(out.get(), np.sort(keys))


def segmented_reduce():
    values, out = integers(0, 100, np.int64), room(np.int64, 3)
    begins, ends = np.array([0, 100, 100]), np.array([100, 100, COUNT])
    compute.segmented_reduce(d_in=cupy.asarray(values), d_out=out, start_offsets_in=cupy.asarray(begins),
                             end_offsets_in=cupy.asarray(ends), op=OpKind.PLUS, num_segments=3, h_init=np.array([0]))
    equal(out.get(), [values[begin:end].sum() for begin, end in zip(begins, ends)])


def unique():
    keys, values = np.sort(integers(0, 50)), np.arange(COUNT, dtype=np.int32)
    out_keys, out_values, count = room(np.int32), room(np.int32), room(np.int64, 1)
    compute.unique_by_key(d_in_keys=cupy.asarray(keys), d_in_items=cupy.asarray(values), d_out_keys=out_keys,
                          d_out_items=out_values, d_out_num_selected=count, op=OpKind.EQUAL_TO, num_items=COUNT)
    expected, first = np.unique(keys, return_index=True)
    assert count.get()[0] == len(expected)
    equal(out_keys.get()[:len(expected)], expected)
    equal(out_values.get()[:len(expected)], first)


def partition():
    values, low, high, rest = integers(0, 100), *(room(np.int32) for _ in range(3))
    counts = room(np.int64, 2)
    compute.three_way_partition(d_in=cupy.asarray(values), d_first_part_out=low, d_second_part_out=high,
                                d_unselected_out=rest, d_num_selected_out=counts, num_items=COUNT,
                                select_first_part_op=lambda value: value < 20, select_second_part_op=lambda value: value > 70)
    first, second = (int(count) for count in counts.get())
    equal(low.get()[:first], values[values < 20])
    equal(high.get()[:second], values[values > 70])
    equal(rest.get()[:COUNT - first - second], values[(values >= 20) & (values <= 70)])


def histogram():
    samples, bins = random.random(COUNT, np.float32), cupy.zeros(10, np.int32)
    compute.histogram_even(d_samples=cupy.asarray(samples), d_histogram=bins, num_output_levels=11,
                           lower_level=np.float32(0), upper_level=np.float32(1), num_samples=COUNT)
    equal(bins.get(), np.histogram(samples, 10, (0, 1))[0])


def search():
    """Where nvrtc knows PTX ISA 9.2, its reads are bulk copies that ignore bytes at their ends; so are those of transform()."""
    data, wanted, out = np.sort(integers(0, 1000)), integers(-5, 1005, count=300), room(np.uintp, 300)
    compute.lower_bound(d_data=cupy.asarray(data), num_items=COUNT, d_values=cupy.asarray(wanted), num_values=300, d_out=out)
    equal(out.get(), np.searchsorted(data, wanted))


def transform():
    left, right, out = random.random(COUNT, np.float32), random.random(COUNT, np.float32), room(np.float32)
    for skip in (0, 1, 3):  # addresses that are multiples of 4 only
        count = COUNT - skip
        compute.binary_transform(d_in1=cupy.asarray(left)[skip:], d_in2=cupy.asarray(right)[skip:], d_out=out,
                                 op=lambda a, b: a * b + 1, num_items=count)
        np.testing.assert_allclose(out.get()[:count], (left * right + 1)[skip:], rtol=1e-6)


for step in (reduce, reduce_structs, scan, radix_sort, merge_sort, segmented_reduce, unique, partition, histogram, search,
             transform):
    step()
print("cuda.compute:", compute.__name__, "on", cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
